// Where another worker may go on with a stream's token ids, its own worker is asked for them. Behind all other edits of the
// body. Off, it costs a branch.
#include <algorithm>
#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "base/time_units.h"
#include "continuation/eligibility.h"
#include "proxy/api/settings.h"
#include "proxy/continuation/continuation_feature.h"
#include "proxy/continuation/rest_of_stream.h"
#include "proxy/continuation/thread_continuation.h"
#include "proxy/exchange/request.h"
#include "proxy/exchange/step.h"
#include "proxy/thread/io_thread.h"
#include "routing/body_map.h"

namespace vllm_router {
namespace {

constexpr std::string_view kName = "return_token_ids";
// Workers of a model that rejected it get it no more for so long: they may be upgraded.
constexpr int64_t kRefusedNs = 60 * kNanosPerSecond;

bool MayAsk(const Request& request) {
  return MayGoOn(request) && request.head->method == "POST" && request.head->minor_version > 0 &&
         request.fully_read() && !request.stream_body && request.attempts == &request.retry_loop &&
         request.workers.stages == EligibleWorkers::Stages::kNone && !request.workers.holder &&
         !FindHeader(request.head->fields, "content-encoding");
}

bool IsServed(ContinueApi api) { return api == ContinueApi::kCompletions || api == ContinueApi::kChat; }

bool AskForIds(Request& request) {
  if (request.settings.continuation.streams != ContinueStreams::kTokens || !MayAsk(request)) return false;
  const std::optional<ContinueApi> api = ContinueApiOf(request.head->path);
  if (!api || !IsServed(*api)) return false;
  std::optional<BodyMap> own;
  if (request.edits.members() == nullptr) own = BodyMap::Read(request.body->held());
  const BodyMap& body = own ? *own : *request.edits.members();
  Eligibility eligibility = CheckEligibility(request.head->path, body);
  if (eligibility.WhyNot(ContinueMethod::kTokens, ContinuePhase::kReasoning) != ContinueReason::kNone)
    return false;
  const BodyMap::Member* const model = body.Find("model");
  std::string name(model != nullptr ? model->value : std::string_view());
  const ThreadContinuation& thread = *request.thread.features.Find<ThreadContinuation>();
  if (thread.refused.Has(name, request.thread.clock.NowNanos())) return false;
  TokenRequest& asked = request.state.Emplace<TokenRequest>(TokenRequest{
      .api = *api, .eligibility = eligibility, .member = {}, .hides = true, .model = std::move(name)});
  const BodyMap::Member* const given = body.Find(kName);
  const bool is_asked =
      given != nullptr && given->type != BodyMap::Type::kNull && given->type != BodyMap::Type::kFalse;
  if (is_asked) {  // however the client spells it: what its engine makes of that is the client's
    asked.hides = false;
    return false;
  }
  std::vector<BodyInsertion> edits;
  if (given != nullptr) {
    asked.member = "true";
    edits.push_back({.at = given->value.data(), .text = asked.member, .removed = given->value.size()});
  } else {
    asked.member = R"(return_token_ids":true,")";
    edits.push_back({.at = body.members().front().name.data(), .text = asked.member});
  }
  request.edits.Insert(std::move(edits));
  request.edits.MakeCopy(request.body->held());
  request.edits.set_edits_response();
  return false;
}

bool IsRejection(int status) { return status == 400 || status == 422; }

// Its client may not be to blame.
bool TakeBack(Request& request) {
  auto* const asked = request.state.Find<TokenRequest>();
  if (asked == nullptr || asked->member.empty() || asked->refused_by) return false;
  if (!request.attempts->sent()) return false;  // the copy is in use
  if (!IsRejection(request.attempts->response().head().status)) return false;
  asked->refused_by = request.info.worker->id;
  request.edits.Withdraw(asked->member, request.body->held());
  return true;
}

// Without the member it is no bad request for the same worker, whose engine does not know the member.
void LearnRefusal(Request& request, const ResponseHead& response) {
  const auto* const asked = request.state.Find<TokenRequest>();
  if (asked == nullptr || response.status != 200 || asked->refused_by != request.info.worker->id) return;
  ThreadContinuation& thread = *request.thread.features.Find<ThreadContinuation>();
  thread.refused.Add(asked->model, request.thread.clock.NowNanos() + kRefusedNs);
}

}  // namespace

extern constexpr Step kTokenIdsStep = {
    .name = "token_ids", .begin = &AskForIds, .on_response = &LearnRefusal, .takes_back = &TakeBack};

}  // namespace vllm_router
