// Attempts at workers until one responds: SELECT, LEASE, SEND and AWAIT (proxy/exchange/retry_loop.h), and again when a
// worker that was full has room, or when a request that was evicted has its turn.
#include <span>
#include <string>
#include <utility>

#include "proxy/api/settings.h"
#include "proxy/exchange/connection.h"
#include "proxy/exchange/downstream.h"
#include "proxy/exchange/request.h"
#include "proxy/exchange/step.h"
#include "proxy/exchange/worker_gate.h"
#include "proxy/steps/admit.h"
#include "proxy/telemetry/telemetry.h"
#include "proxy/thread/io_thread.h"
#include "worker/fleet_view.h"

namespace vllm_router {
namespace {

Task<Attempts::End> RunAttempts(Request& request) {
  Attempts::Call call{
      .message =
          {.head = request.head.get(),
           .body = &*request.body,
           .stream_body = request.stream_body,
           .client = ClientSideOf(request)},
      .choice =
          {.key = &request.key,
           .path = request.head->path,
           .pinned = request.workers.holder,
           .pinned_work = MayContinueResponse(request),
           .stage = request.workers.first_stage(),
           .model = request.workers.model.get(),
           .gate = request.workers.gate},
      .id = &request.id,
      .client_restricted = request.client_restricted,
      .insertions = {}};
  if (request.workers.stages == EligibleWorkers::Stages::kBoth) {
    call.insertions = request.edits.insertions();
  } else {
    call.message.copy = request.edits.copy();
  }
  const Attempts::End end = co_await request.attempts->Run(call);
  co_return end;
}

// A 404 may also be about a stored response, or about the path.
bool MayLackModel(const Request& request) {
  return request.attempts->response().head().status == 404 && request.workers.model != nullptr &&
         request.route().computes && !MayContinueResponse(request) &&
         request.head->path.starts_with("/v1/") && request.thread.fleet.Get()->models()->names->any_said;
}

// A worker rejected what a step had added. It did not fail, and another attempt follows, at whichever worker.
Task<void> EndRejected(Request& request) {
  Attempts& attempts = *request.attempts;
  attempts.ResponseEnded(ResponseEnd::kWhole);
  co_await attempts.Finished();
  ArrivingResponse& response = attempts.response();
  response.AddAttemptTo(&request.info);
  if (response.ticket() != nullptr) response.ticket()->Finish({.end = Outcome::End::kClientGone});
  response.ReleaseConnection(/*reusable=*/false);
  request.body->Rewind();
}

Task<Verdict> Attempt(Request& request) {
  Attempts& attempts = *request.attempts;
  Attempts::End end{};
  bool again = false;
  do {
    request.ArmTotalDeadline(request.settings.request_timeout_ms);
    end = co_await RunAttempts(request);
    while ((end == Attempts::End::kFull || end == Attempts::End::kEvicted) && !request.is_cancelled()) {
      request.total_deadline.Disarm();
      Verdict verdict = Verdict::kNext;
      if (end == Attempts::End::kEvicted) {
        verdict = co_await request.workers.gate->WaitAgain();
      } else {
        verdict = co_await WaitForWorker(request);
      }
      if (verdict == Verdict::kEnd || request.is_cancelled()) co_return verdict;
      request.ArmTotalDeadline(request.settings.request_timeout_ms);
      end = co_await RunAttempts(request);
    }
    again =
        end == Attempts::End::kResponded && !request.is_cancelled() && request.pipeline.TakesBack(request);
    if (again) co_await EndRejected(request);
  } while (again && !request.is_cancelled());
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
