#include "proxy/exchange/exchange.h"

#include <utility>

#include "base/clock.h"
#include "proxy/api/settings.h"
#include "proxy/exchange/connection.h"
#include "proxy/exchange/resumable_response.h"
#include "proxy/exchange/step.h"
#include "proxy/telemetry/telemetry.h"
#include "proxy/thread/io_thread.h"

namespace vllm_router {

// Else it would come from the heap, once for each request.
static_assert(sizeof(Exchange) <= FramePool::kLargest);

namespace {

// The time of a step that has a span, in a trace that is kept.
class SpanOfStep {
 public:
  SpanOfStep(const Step& step, Request& request) {
    if (step.span.empty()) return;
    RequestTrace* const trace = request.info.trace.get();
    if (trace == nullptr || !trace->sampled) return;
    trace_ = trace;
    clock_ = &request.thread.clock;
    part_ = {.name = step.span, .begin_ns = clock_->NowNanos()};
  }
  void End() const {
    if (trace_ == nullptr) return;
    trace_->parts.push_back(part_);
    trace_->parts.back().end_ns = clock_->NowNanos();
  }

 private:
  RequestTrace* trace_ = nullptr;
  const Clock* clock_ = nullptr;
  RequestTrace::Part part_{};
};

}  // namespace

Exchange::Exchange(Connection& connection) : request_(*this, connection, client_), client_(request_) {}

Task<void> Exchange::Run() {
  for (const Step* const step : request_.pipeline.steps()) {
    if (step->begin != nullptr && !step->begin(request_)) continue;
    const SpanOfStep span(*step, request_);
    const Verdict verdict = co_await step->run(request_);
    span.End();
    if (verdict == Verdict::kNext && !request_.is_cancelled()) continue;
    if (verdict == Verdict::kNext) co_await client_.ReplyCancelled();
    request_.info.stopped_at = step->name;
    break;
  }
  if (request_.is_cancelled()) request_.permit.Release();  // what is kept for the workers' sake needs none
  co_await request_.attempts->Finished();
  Finish();
}

void Exchange::Cancel(CancelReason reason) {
  Request& request = request_;
  if (!request.is_cancelled()) {
    request.cancelled = reason;
    request.scope.Cancel();
    request.attempts->Cancel();
    client_.Cancelled();
    if (request.body.has_value() && !request.body->complete()) request.body->Stop();
  }
  if (reason == CancelReason::kShutdown) request.attempts->CancelKept();
}

// Of a second run at this worker, beside the stream that is relayed; null: there is none.
Attempts* Exchange::AttemptsBeside(const Worker& worker) const {
  ResumableResponse* const resumable = ResumableOf(request_);
  Attempts* const beside = resumable != nullptr ? resumable->beside() : nullptr;
  return beside != nullptr && beside->IsAt(worker) ? beside : nullptr;
}

void Exchange::WorkerDied(const Worker& worker) {
  Request& request = request_;
  if (Attempts* const beside = AttemptsBeside(worker)) return beside->WorkerDied(worker);
  const bool is_relayed = request.info.worker.get() == &worker;
  ResumableResponse* const resumable = ResumableOf(request);
  const bool is_resuming = resumable != nullptr && resumable->resuming();
  if (!client_.has_bytes() || !is_relayed || is_resuming) {
    request.attempts->WorkerDied(worker);
    return;
  }
  if (!request.relaying) return;
  if (resumable != nullptr) resumable->WorkerDied();
  if (request.settings.dead_worker_grace_ms == 0) {
    LeaveWorkerOrCancel(request, CancelReason::kWorkerDead);
  } else {
    request.ArmDeadline(request.settings.dead_worker_grace_ms, [](void* context) {
      LeaveWorkerOrCancel(*static_cast<Request*>(context), CancelReason::kWorkerDead);
    });
  }
}

void Exchange::WorkerDrains(const Worker& worker) {
  ResumableResponse* const resumable = ResumableOf(request_);
  if (resumable != nullptr && request_.relaying && request_.info.worker.get() == &worker) {
    resumable->WorkerDrains();
  }
}

void Exchange::WorkerDrained(const Worker& worker) {
  if (Attempts* const beside = AttemptsBeside(worker)) {
    beside->WorkerDrained(worker);
    return;
  }
  ResumableResponse* const resumable = ResumableOf(request_);
  if (resumable != nullptr && resumable->resuming()) {
    request_.attempts->WorkerDrained(worker);
    return;
  }
  const bool is_relayed = client_.has_bytes() && request_.info.worker.get() == &worker;
  if (is_relayed || !request_.attempts->WorkerDrained(worker))
    LeaveWorkerOrCancel(request_, CancelReason::kDrained);
}

// ---- the end

void Exchange::Finish() {
  Request& request = request_;
  RequestInfo& info = request.info;
  Connection& connection = request.connection;
  request.deadline.Disarm();
  request.total_deadline.Disarm();
  info.end_ns = request.thread.clock.NowNanos();
  client_.Finish();
  RecordEnd();
  ArrivingResponse& response = request.attempts->response();
  if (response.ticket() != nullptr && !response.ticket()->finished()) FinishTicket(*response.ticket());
  response.AddAttemptTo(&info);
  response.ReleaseConnection(request.lease_reusable);
  request.permit.Release();
  if (request.body.has_value()) {
    info.bytes_in = request.body->bytes() + request.tunnelled_in;
    if (!request.body->complete()) connection.keep = false;
    request.body->Release();
    client_.watch().ReturnPipelined();
  }
  if (!connection.socket.is_open()) connection.keep = false;
  request.pipeline.OnEnd(request);
  Record();
  // Who sees that it is over sees it in the metrics.
  if (request.proxied) request.thread.telemetry.in_flight.fetch_sub(1, std::memory_order_release);
}

void Exchange::Record() {
  Request& request = request_;
  RequestInfo& info = request.info;
  if (info.pd != nullptr && info.pd->pair_id.empty() && info.worker != nullptr)
    info.pd->pair_id = request.id.for_workers;
  // A connection that ended before it sent anything was no exchange.
  if (info.head_ns == 0 && info.status == 0 && info.bad_request_rule.empty()) return;
  if (info.wall_us == 0) info.wall_us = UnixMicros();  // the head was rejected
  info.client = request.connection.peer.address;
  info.request_id = std::move(request.id.id);
  request.thread.telemetry.Record(info);
  request.thread.FlushLogSoon();
}

// What cut the exchange, in the words of metrics and log.
void Exchange::RecordEnd() {
  RequestInfo& info = request_.info;
  switch (request_.cancelled) {
    case CancelReason::kNone:
    case CancelReason::kBodyFailed:  // the response has its own status
      break;
    case CancelReason::kClientGone:
      info.end = ExchangeEnd::kClientGone;
      break;
    case CancelReason::kSlowClient:
      info.end = ExchangeEnd::kSlowClient;
      break;
    case CancelReason::kIdleTimeout:
    case CancelReason::kTotalTimeout:
    case CancelReason::kSlowWorker:
      info.end = ExchangeEnd::kTimeout;
      if (info.error.empty()) info.error = CodeOfCut(request_.cancelled);
      break;
    case CancelReason::kWorkerDead:
      request_.worker_failed = true;
      info.end = ExchangeEnd::kWorkerGone;
      info.error = CodeOfCut(request_.cancelled);
      break;
    case CancelReason::kShutdown:
    case CancelReason::kDrained:
      info.end = ExchangeEnd::kDrain;
      break;
  }
}

void Exchange::FinishTicket(Ticket& ticket) {
  const RequestInfo& info = request_.info;
  Outcome outcome{.status = info.worker != nullptr && client_.has_bytes() ? info.status : 0};
  outcome.end = info.end == ExchangeEnd::kClientGone || info.end == ExchangeEnd::kSlowClient
                    ? Outcome::End::kClientGone
                : request_.worker_failed || info.end == ExchangeEnd::kTimeout ? Outcome::End::kWorkerFailed
                : info.attempts == 0                                          ? Outcome::End::kNotSent
                                                                              : Outcome::End::kFinished;
  const ResumableResponse* const resumable = ResumableOf(request_);
  const bool has_first_token = resumable == nullptr || !resumable->resumed();
  if (info.first_body_ns != 0 && has_first_token) {
    outcome.first_token_ms = static_cast<double>(info.first_body_ns - info.head_ns) / 1e6;
  }
  outcome.prompt_tokens = info.prompt_tokens;
  // With transferred blocks, what decode reports as cached was cached at prefill.
  const bool is_own = info.pd == nullptr || !info.pd->transferred;
  if (is_own) outcome.cached_tokens = info.cached_tokens;
  outcome.output_tokens = info.completion_tokens;
  ticket.Finish(outcome);
}

}  // namespace vllm_router
