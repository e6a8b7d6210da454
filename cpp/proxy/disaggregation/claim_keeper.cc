#include "proxy/disaggregation/claim_keeper.h"

#include <string.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/text.h"
#include "base/time_units.h"
#include "proxy/api/pd_settings.h"
#include "proxy/api/settings.h"
#include "proxy/client/http_client.h"
#include "proxy/telemetry/stage_telemetry.h"
#include "proxy/telemetry/telemetry.h"
#include "proxy/thread/io_thread.h"
#include "worker/fleet_view.h"

namespace vllm_router {
namespace {

constexpr int64_t kRejectTimeoutMs = 2'000;
constexpr int64_t kCollectTimeoutMs = 30'000;
constexpr size_t kMostAttempts = 3;
constexpr size_t kMostSilent = 256;

// The client's key, which is kept no longer than it is needed.
void Wipe(KvBlocks* blocks) {
  std::string& key = blocks->freeing.authorization;
  ::explicit_bzero(key.data(), key.size());
}

size_t BytesOf(const KvBlocks& blocks) {
  const KvFreeing& freeing = blocks.freeing;
  return sizeof(blocks) + blocks.parameters.size() + blocks.model.size() + freeing.path.size() +
         freeing.request.size() + freeing.authorization.size();
}

// By the engine or its API, and not by something in front of it.
bool IsRejected(int status) { return status == 400 || status == 404 || status == 422; }

}  // namespace

// Any decode worker whose blocks fit can tell the prefill worker; one with little to do has the most time for it.
std::vector<std::shared_ptr<Worker>> ClaimKeeper::WorkersFor(const KvBlocks& blocks) {
  std::vector<std::shared_ptr<Worker>> workers;
  const std::shared_ptr<const FleetView>& fleet = thread_.fleet.Get();
  if (fleet->stages() == nullptr) return workers;
  const FleetView& decode = *fleet->stages()->decode;
  for (const uint32_t position : decode.eligible()) {
    const std::shared_ptr<Worker>& worker = decode.members()[position].worker;
    if (MayPair(blocks.prefill->kv_group, worker->kv_group)) workers.push_back(worker);
  }
  std::ranges::stable_sort(workers, {}, [&](const std::shared_ptr<Worker>& worker) {
    const bool is_last = worker->id == blocks.freeing.avoid || silent_.contains(worker->id);
    return std::pair(is_last, worker->load.open_requests());
  });
  if (workers.size() > kMostAttempts) workers.resize(kMostAttempts);
  return workers;
}

ClaimKeeper::~ClaimKeeper() {
  for (KvBlocks& blocks : waiting_) Wipe(&blocks);
}

void ClaimKeeper::Ended(KvClaimEnd end, KvBlocks blocks, int64_t /*age_ns*/) {
  if (end != KvClaimEnd::kOrphaned) {  // and has no key
    thread_.telemetry.stages().ClaimEnded(KvClaimEndName(end));
    return;
  }
  const size_t bytes = BytesOf(blocks);
  if (bytes > kMostWaitingBytes - waiting_bytes_) return LeaveToLease(&blocks);
  waiting_bytes_ += bytes;
  waiting_.push_back(std::move(blocks));
  FreeWaiting();
}

// As many as the limits permit.
void ClaimKeeper::FreeWaiting() {
  if (std::exchange(starting_, true)) return;  // one of them has ended at once
  const std::shared_ptr<const Settings> settings = thread_.settings.Get();
  const PdSettings& pd = settings->pd;
  const bool frees = pd.orphan != PdOrphan::kExpire && pd.orphan_max != 0;
  while (!waiting_.empty() && (!frees || freeing_ < pd.orphan_max)) {
    KvBlocks blocks = std::move(waiting_.front());
    waiting_.pop_front();
    waiting_bytes_ -= BytesOf(blocks);
    const int64_t age_ns = thread_.clock.NowNanos() - blocks.made_ns;
    if (frees && age_ns < pd.handoff_limit_ms * kNanosPerMs) {
      Spawn(Free(std::move(blocks)));
    } else {
      LeaveToLease(&blocks);
    }
  }
  starting_ = false;
}

void ClaimKeeper::LeaveToLease(KvBlocks* blocks) {
  Wipe(blocks);
  thread_.telemetry.stages().ClaimEnded(KvClaimEndName(KvClaimEnd::kExpired));
}

Task<void> ClaimKeeper::Free(KvBlocks blocks) {
  ++freeing_;
  const std::vector<std::shared_ptr<Worker>> workers = WorkersFor(blocks);
  const bool collects = !blocks.freeing.request.empty();
  const std::string path = collects ? std::move(blocks.freeing.path) : "/v1/completions";
  const std::string body =
      collects ? std::move(blocks.freeing.request)
               : Concat(
                     blocks.model.empty() ? std::string("{") : Concat("{\"model\":", blocks.model, ","),
                     "\"prompt\":\"x\",\"max_tokens\":-3,\"kv_transfer_params\":", blocks.parameters, "}");
  bool freed = false;
  for (size_t i = 0; i < workers.size(); ++i) {
    const StatusOr<HttpResponse> response = co_await thread_.http.PostAs(
        blocks.freeing.authorization, workers[i]->url, path, body,
        collects ? kCollectTimeoutMs : kRejectTimeoutMs);
    if (response.ok()) {
      silent_.erase(workers[i]->id);
    } else {
      if (silent_.size() >= kMostSilent) silent_.clear();  // of workers that have left, too
      silent_.insert(workers[i]->id);
    }
    freed = response.ok() && (collects ? response->status / 100 == 2 : IsRejected(response->status));
    if (response.ok() || collects)
      break;  // one that fetches may have begun, and they are never fetched twice
  }
  Wipe(&blocks);
  --freeing_;
  thread_.telemetry.stages().ClaimEnded(freed ? "collected" : KvClaimEndName(KvClaimEnd::kExpired));
  FreeWaiting();
}

}  // namespace vllm_router
