// What workers did with a request's attempts is counted when it is over.
#include "conditions/recent_outcomes.h"
#include "proxy/conditions/conditions_feature.h"
#include "proxy/exchange/request.h"
#include "proxy/exchange/step.h"
#include "proxy/thread/io_thread.h"

namespace vllm_router {
namespace {

bool NothingToDo(Request& /*request*/) { return false; }

// The client left, or the router ended it: that says nothing of the worker.
bool IsOurs(const RequestInfo& info) {
  return info.end == ExchangeEnd::kClientGone || info.end == ExchangeEnd::kSlowClient ||
         info.end == ExchangeEnd::kDrain || (info.status >= 400 && info.status < 500);
}

void CountAttempts(Request& request) {
  const RequestInfo& info = request.info;
  auto* const outcomes = request.thread.features.Find<RecentOutcomes>();
  if (outcomes == nullptr) return;  // a thread without features
  for (const AttemptInfo& attempt : info.attempts_made) {
    const bool is_last = &attempt == &info.attempts_made.back();
    if (attempt.status == 0 && is_last && IsOurs(info)) continue;
    outcomes->Add(
        attempt.worker->id, info.model,
        {.status = is_last && info.broke_off() ? 0 : attempt.status,
         .error = attempt.error,
         .is_stream = info.stream,
         .head_ns = attempt.responded_ns == 0 ? 0 : attempt.responded_ns - attempt.sent_ns},
        info.end_ns);
  }
}

}  // namespace

extern constexpr Step kOutcomesStep = {.name = "outcomes", .begin = &NothingToDo, .on_end = &CountAttempts};

}  // namespace vllm_router
