#include "proxy/exchange/upstream_request.h"

#include <utility>

#include "proxy/api/settings.h"
#include "proxy/thread/io_thread.h"
#include "proxy/thread/quarantine.h"

namespace vllm_router {
namespace {

AttemptPhase PhaseOf(const UpstreamMessage& message) {
  if (!message.pair) return AttemptPhase::kInference;
  return message.is_prefill() ? AttemptPhase::kPrefill : AttemptPhase::kDecode;
}

}  // namespace

UpstreamRequest::UpstreamRequest(
    IoThread& thread, const Settings& settings, RequestInfo& info, ServerErrors& server_errors,
    const Message& message, const Hooks& hooks, Ticket ticket, std::optional<BreakerPass> pass)
    : thread_(thread),
      settings_(settings),
      message_(message),
      ticket_(std::move(ticket)),
      record_(info, ticket_.shared_worker(), PhaseOf(message)),
      outcome_(thread, settings, server_errors, ticket_, record_, std::move(pass)),
      connection_(thread),
      sender_(thread, message_, hooks, connection_, record_),
      progress_(thread, message_, ticket_, sender_),
      response_(thread, connection_, sender_, record_) {}

Task<UpstreamRequest::End> UpstreamRequest::Run(bool fresh_connection) {
  // A body that cannot be sent twice must not use a connection that its worker may just be closing.
  bool fresh = fresh_connection || !message_.replayable();
  for (;;) {
    if (fresh || !connection_.TakeIdle(worker()->id)) {  // LEASE
      const std::optional<HttpError> error =
          co_await connection_.Connect(*worker(), settings_.connect_timeout_ms);
      if (cancelled_) co_return End::kCancelled;
      if (error) co_return Fail(*error);
    }
    record_.Connected(thread_.clock.NowNanos(), connection_.is_reused());
    sender_.WriteHead(worker()->url);
    co_await thread_.loop.TurnEnd();
    progress_.Begin(settings_);
    sender_.Send(settings_.upstream_write_timeout_ms);  // SEND
    const UpstreamResponse::Awaited awaited = co_await response_.AwaitHead(message_, settings_);
    if (awaited == UpstreamResponse::Awaited::kHead) {
      OnResponse();
      co_return End::kResponded;
    }
    if (cancelled_) co_return End::kCancelled;
    const HttpError error = WhyEnded(awaited);
    const bool stale = awaited == UpstreamResponse::Awaited::kEnded && !connection_.given_up() &&
                       connection_.is_reused() && !response_.has_come() && message_.replayable();
    outcome_.SetLost(error == HttpError::kWorkerClosed && (sender_.sent() || response_.has_come()));
    co_await sender_.Stop();
    connection_.Release(/*reusable=*/false);
    if (cancelled_) co_return End::kCancelled;
    if (!stale || outcome_.drained()) co_return Fail(error);
    // The worker closed an idle connection while we wrote: not its failure, and not an attempt. If a new
    // connect fails, though, the worker may have crashed because of the request.
    fresh = true;
    message_.body->Rewind();
    record_.SendsAgain();
  }
}

void UpstreamRequest::OnResponse() {
  const ResponseHead& head = response_.head();
  // A successful connect shows nothing: a terminating process may close its listener after its connections.
  if (head.status < 500) ReportWorkerUp(thread_, worker()->url, record_.last_sent_ns());
  outcome_.Responded(head);
  if (!settings_.detects_hangs()) return;
  progress_.Responded(head, record_.route());
  if (response_.HasBodyByte()) progress_.CountFirstByte();
}

// AWAIT ended without a head.
HttpError UpstreamRequest::WhyEnded(UpstreamResponse::Awaited awaited) const {
  if (const std::optional<HttpError> given_up = connection_.given_up()) return *given_up;
  const bool is_bad = awaited == UpstreamResponse::Awaited::kBad;
  return is_bad ? HttpError::kWorkerBadResponse : HttpError::kWorkerClosed;
}

UpstreamRequest::End UpstreamRequest::Fail(HttpError error) {
  outcome_.Failed(error);
  return End::kFailed;
}

void UpstreamRequest::Cancel() {
  cancelled_ = true;
  connection_.Close();
}

void UpstreamRequest::WorkerDied() {
  if (connection_.is_leased() && !outcome_.responded()) connection_.GiveUp(HttpError::kWorkerClosed);
}

void UpstreamRequest::WorkerDrained() {
  outcome_.Drain();
  connection_.Close();
}

void UpstreamRequest::MoveAway() {
  outcome_.Move();
  connection_.GiveUp(HttpError::kFirstByteTimeout);
}

bool UpstreamRequest::AwaitsFirstByte() const {
  return sender_.sent() && !outcome_.responded() && !connection_.given_up() && connection_.is_leased() &&
         !connection_.HasUnread();
}

void AddWait(
    UpstreamRequest& attempt, Route route, size_t* reads_bodies, std::vector<HangDetector::Wait>* waits) {
  if (RouteOf(route).computes) waits->push_back(attempt.progress().DescribeWait(reads_bodies));
}

}  // namespace vllm_router
