#include "proxy/disaggregation/pair_claim.h"

#include <string>
#include <string_view>
#include <utility>

#include "proxy/api/settings.h"
#include "proxy/disaggregation/claim_keeper.h"
#include "proxy/telemetry/request_info.h"
#include "proxy/thread/io_thread.h"

namespace vllm_router {

void PairClaim::Make(
    const PairRequest& request, const StageLeg& source, Timer::Callback late, void* context) {
  const BodyMap::Member* const model = request.body->Find("model");
  claim_ = KvClaim(
      *thread_.features.Find<ClaimKeeper>(), thread_.clock,
      {.prefill = source.worker(),
       .parameters = std::string(*source.result().prefill.parameters),
       .model = std::string(model != nullptr ? model->value : std::string_view()),
       .made_ns = thread_.clock.NowNanos()});
  handoff_.Arm(thread_.loop.timers(), settings_.pd.handoff_limit_ms, late, context);
}

void PairClaim::End(
    KvClaimEnd end, const PairRequest& request, const UpstreamPair& pair, std::optional<WorkerId> avoid) {
  handoff_.Disarm();
  // A decode worker that serves no request alone cannot be sent one that frees blocks, either.
  const bool may_free = request.connector->traits().decode_can_prefill;
  if (end == KvClaimEnd::kOrphaned && !may_free) end = KvClaimEnd::kExpired;
  info_.claim = KvClaimEndName(end);
  switch (end) {
    case KvClaimEnd::kRedeemed:
      return claim_.Redeem();
    case KvClaimEnd::kRejected:
      return claim_.Reject();
    case KvClaimEnd::kExpired:
      return claim_.Expire();
    default:
      break;
  }
  KvFreeing freeing = Freeing(request, pair);
  freeing.avoid = avoid;
  claim_.Orphan(std::move(freeing));
}

KvFreeing PairClaim::Freeing(const PairRequest& request, const UpstreamPair& pair) const {
  KvFreeing freeing;
  freeing.authorization = ForwardedAuthorization(*request.message.head, request.message.client);
  if (settings_.pd.orphan != PdOrphan::kCollect) return freeing;
  // Prefill's copy, one token and no stream, with the parameters for decode.
  BodyPatch patch = PrefillPatch(request.route, *request.body, *request.connector, pair.Attempt());
  patch.InsertBytes("kv_transfer_params", claim_.blocks().parameters);
  freeing.path = request.message.head->path;
  freeing.request = patch.Apply(*request.body, request.insertions).Joined();
  return freeing;
}

}  // namespace vllm_router
