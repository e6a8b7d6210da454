#include "proxy/continuation/second_run.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/time_units.h"
#include "continuation/token_stream.h"
#include "http/dechunk.h"
#include "proxy/api/settings.h"
#include "proxy/continuation/rest_of_stream.h"
#include "proxy/continuation/thread_continuation.h"
#include "proxy/exchange/request.h"
#include "proxy/thread/io_thread.h"

namespace vllm_router {
namespace {

constexpr int64_t kLookMs = 1'000;  // at a worker that is silent

}  // namespace

bool IsLeaving(IoThread& thread, const Worker& worker) {
  const std::shared_ptr<const FleetView>& fleet = thread.fleet.Get();
  const std::optional<uint32_t> position = fleet->Find(worker.id);
  return !position || !fleet->members()[*position].in_rotation();
}

SecondRun::SecondRun(Request& request, ThreadContinuation& thread)
    : request_(request),
      thread_(thread),
      attempts_(std::make_unique<RerunAttempts>(request, thread, RerunAttempts::Place::kBeside)) {}

SecondRun::~SecondRun() { thread_.memory.Shrink(memory_bytes_); }

Task<bool> SecondRun::Begin(const FailedAttempt& failed, std::shared_ptr<Worker> worker, int64_t sent_ns) {
  begun_ = co_await attempts_->RunAgain(failed, std::move(worker), sent_ns, request_.edits.copy());
  if (!begun_) co_return false;
  // Its prompt is computed.
  attempts_->response().ticket()->FirstToken();
  attempts_->response().CountFirstByte();
  co_return true;
}

void SecondRun::Compare(const DeliveredText& delivered) {
  const ResponseHead& head = attempts_->response().head();
  reader_ = BodyReader(head.framing, head.content_length, MessageKind::kResponse);
  fed_ = head.size;
  gate_ = EventGate();
  verifier_.emplace(delivered);
  has_event_ = false;
  Feed();
}

// The bytes stay as they came, so what is taken out of their framing is a copy.
void SecondRun::Feed() {
  std::string piece(attempts_->response().in().view().substr(fed_));
  const Dechunked part = Dechunk(reader_, piece);
  fed_ += part.used;
  is_broken_ = part.bad;
  const std::string_view events = gate_.Take(part.data);
  has_event_ = has_event_ || !events.empty();
  const auto* const asked = request_.state.Find<TokenRequest>();
  std::string hidden;
  const bool hides = asked != nullptr && asked->hides && !gate_.passes_all();
  if (hides) hidden = WithoutIds(events, asked->api == ContinueApi::kChat);
  std::string for_client;  // which the relay will write, should one follow
  verifier_->Add(hides ? std::string_view(hidden) : events, &for_client);
}

SecondRun::State SecondRun::state() const {
  if (gate_.ending() != EventGate::Ending::kNone) return State::kFailed;
  switch (verifier_->state()) {
    case RerunState::kDiffers:
      return State::kDiffers;
    case RerunState::kCaughtUp:
      if (has_event_) return State::kCaughtUp;
      break;
    case RerunState::kVerifying:
      break;
  }
  return reader_.ended() ? State::kShort : State::kBehind;
}

Task<SecondRun::Got> SecondRun::Read(int64_t idle_ms) {
  for (int64_t silent_ms = 0; idle_ms == 0 || silent_ms < idle_ms; silent_ms += kLookMs) {
    if (is_broken_) co_return Got::kLost;
    const bool has_more = co_await attempts_->ReadMore(kLookMs);
    if (is_cancelled_ || request_.is_cancelled()) co_return Got::kCancelled;
    if (has_more) co_return Take();
    // Its end, or nothing within the time.
    Buffer& in = attempts_->response().in();
    if (!in.room().empty()) {
      const IoResult read = attempts_->response().socket().TryRead(in.room());
      if (read.ok()) {
        in.Commit(static_cast<size_t>(read.bytes));
        co_return Take();
      }
      if (read.eof && reader_.EndOfConnection()) co_return Got::kMore;
      if (!read.would_block()) co_return Got::kLost;
    }
    if (IsLeaving()) co_return Got::kLeaving;
  }
  co_return Got::kSilent;
}

SecondRun::Got SecondRun::Take() {
  if (!TakeMemory()) return Got::kTooMuch;
  Feed();
  return is_broken_ ? Got::kLost : Got::kMore;
}

void SecondRun::Interrupt() {
  is_cancelled_ = true;
  attempts_->response().socket().InterruptRead();
}

void SecondRun::Cancel() {
  is_cancelled_ = true;
  attempts_->Cancel();
}

bool SecondRun::TakeMemory() {
  const uint64_t needed = attempts_->response().in().capacity();
  if (needed > kMostBytes) return false;
  if (needed <= memory_bytes_) return true;
  if (!thread_.memory.Grow(needed - memory_bytes_)) return false;
  memory_bytes_ = needed;
  return true;
}

bool SecondRun::IsLeaving() const {
  return vllm_router::IsLeaving(request_.thread, attempts_->response().ticket()->worker());
}

Task<void> SecondRun::Drop(bool lost) {
  if (lost) {
    attempts_->ResponseEnded(ResponseEnd::kBrokeOff);
    attempts_->ReportLoss();
  }
  attempts_->SettleServerErrors();
  co_await attempts_->Finished();
  if (begun_) {
    ArrivingResponse& response = attempts_->response();
    response.ticket()->Finish(
        {.end = lost ? Outcome::End::kWorkerFailed : Outcome::End::kClientGone, .status = 200});
    response.ReleaseConnection(/*reusable=*/false);
  }
  attempts_->AddToRequest(RerunAttempts::After::kDropped);
}

}  // namespace vllm_router
