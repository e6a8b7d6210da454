// Attempts at workers until one responds: SELECT, LEASE, SEND and AWAIT (proxy/exchange/retry_loop.h), and again when a
// worker that was full has room.
#include <span>
#include <string>
#include <utility>

#include "proxy/api/settings.h"
#include "proxy/exchange/connection.h"
#include "proxy/exchange/downstream.h"
#include "proxy/exchange/request.h"
#include "proxy/exchange/step.h"
#include "proxy/steps/admit.h"
#include "proxy/telemetry/telemetry.h"
#include "proxy/thread/io_thread.h"
#include "worker/fleet_view.h"

namespace vllm_router {
namespace {

Task<Attempts::End> RunAttempts(Request& request) {
  Attempts::Call call{
      .message =
          {.head = request.head,
           .body = &*request.body,
           .stream_body = request.stream_body,
           .client = request.client_side()},
      .choice =
          {.key = &request.key,
           .path = request.head->path,
           .pinned = request.holder,
           .pinned_work = request.may_continue_response(),
           .model = request.model.get(),
           .stage = request.first_stage()},
      .id = &request.id,
      .client_restricted = request.client_restricted,
      .insertions = {}};
  const Request::EditedMessage* const edited = request.edited_message.get();
  if (request.workers == Workers::kBothStages) {
    if (edited != nullptr) call.insertions = edited->edits;
  } else {
    call.message.copy = edited != nullptr ? &edited->copy : request.stripped;
  }
  const Attempts::End end = co_await request.attempts->Run(call);
  co_return end;
}

// A 404 may also be about a stored response, or about the path.
bool MayLackModel(const Request& request) {
  return request.attempts->response().head().status == 404 && request.model != nullptr &&
         request.route().computes && !request.may_continue_response() &&
         request.head->path.starts_with("/v1/") && request.thread.fleet.Get()->models()->names->any_said;
}

Task<Verdict> Attempt(Request& request) {
  Attempts& attempts = *request.attempts;
  request.ArmTotalDeadline(request.settings.request_timeout_ms);
  Attempts::End end = co_await RunAttempts(request);
  if (request.key.shared_hits && request.info.decision) {
    request.thread.telemetry.SharedCacheBeyond(request.info.decision->shared_beyond);
  }
  while (end == Attempts::End::kFull && !request.is_cancelled()) {
    request.total_deadline.Disarm();
    const Verdict verdict = co_await WaitForWorker(request);
    if (verdict == Verdict::kEnd || request.is_cancelled()) co_return verdict;
    request.ArmTotalDeadline(request.settings.request_timeout_ms);
    end = co_await RunAttempts(request);
  }
  if (request.is_cancelled()) {
    if (request.cancelled == CancelReason::kTotalTimeout) attempts.RecordTimeout();
    co_return Verdict::kNext;
  }
  attempts.SettleServerErrors();
  if (end == Attempts::End::kResponded) {
    if (MayLackModel(request)) request.thread.health.lacks_model(request.info.worker);
    co_return Verdict::kNext;
  }
  const bool is_drained = attempts.error() == HttpError::kWorkerDrained;
  request.worker_failed = !is_drained;
  if (is_drained) request.info.end = ExchangeEnd::kDrain;
  if (attempts.timed_out()) request.info.end = ExchangeEnd::kTimeout;
  std::string text = attempts.message();
  co_await request.client.ReplyError(attempts.error(), std::move(text));
  co_return Verdict::kEnd;
}

}  // namespace

extern constexpr Step kUpstreamStep = {.name = "upstream", .run = &Attempt};

}  // namespace vllm_router
