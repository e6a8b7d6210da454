#include "proxy/continuation/continuation_sink.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace vllm_router {
namespace {

constexpr std::string_view kComment = ": keep-alive\n\n";
constexpr size_t kMostBytesOfIds = size_t{4} << 20;  // an event with the ids of a long prompt

}  // namespace

BodySink::Took ContinuationSink::Write(std::string_view data, bool last) {
  if (passes_all_) return Pass(data, last);
  if (verifier_) return WriteRerun(data, last);
  return tokens_ != nullptr ? WriteWithIds(data, last) : WriteFirstRun(data, last);
}

EventGate ContinuationSink::NewGate() const {
  return EventGate(tokens_ != nullptr ? kMostBytesOfIds : EventGate::kMaxHeldBytes);
}

BodySink::Took ContinuationSink::WriteFirstRun(std::string_view data, bool last) {
  // Most events repeat the one before but for their text. They can be no ending, and go on as they lie.
  size_t repeated = gate_.held().empty() ? delivered_.AddRepeated(data) : 0;
  if (repeated == data.size() && !last) return Pass(data, /*last=*/false);
  out_ = data.substr(0, repeated);
  data.remove_prefix(repeated);
  while (!data.empty()) {
    const size_t end = data.find("\n\n");
    const std::string_view piece = data.substr(0, end == std::string_view::npos ? end : end + 2);
    const std::string_view events = Read(piece);
    delivered_.Add(events);
    out_ += events;
    data.remove_prefix(piece.size());
    if (gate_.passes_all() || !delivered_.ok()) break;
    repeated = gate_.held().empty() ? delivered_.AddRepeated(data) : 0;
    out_ += data.substr(0, repeated);
    data.remove_prefix(repeated);
  }
  if (gate_.passes_all() || !delivered_.ok()) {
    passes_all_ = true;
    out_ += gate_.held();
    out_ += data;
    gate_ = NewGate();
    return Pass(out_, last);
  }
  if (!last || gate_.ending() != EventGate::Ending::kNone) return Pass(out_, /*last=*/false);
  out_ += gate_.held();  // an event that is not complete, which the client would not get otherwise
  gate_ = NewGate();
  return Pass(out_, /*last=*/true);
}

// A stream that does not go on has its ids all the same, which its client does not see.
BodySink::Took ContinuationSink::WriteWithIds(std::string_view data, bool last) {
  out_.clear();
  TakeWithIds(Read(data));
  passes_all_ = gate_.passes_all();
  const bool is_end = last && gate_.ending() == EventGate::Ending::kNone;
  if (is_end) TakeWithIds(gate_.held());
  if (is_end || passes_all_) gate_ = NewGate();
  return Pass(out_, is_end);
}

// Whole events, of any run.
void ContinuationSink::TakeWithIds(std::string_view events) {
  while (!events.empty()) {
    const size_t size = std::min(EventEnd().Find(events), events.size());
    const std::string_view event = tokens_->Take(events.substr(0, size));
    events.remove_prefix(size);
    if (tokens_->unfit()) return;
    const size_t before = out_.size();
    if (!verifier_) {
      out_ += event;
    } else {
      const RerunState state = verifier_->Add(event, &out_);
      if (state == RerunState::kDiffers) return;
      if (state == RerunState::kCaughtUp) tokens_->PromoteRun();
    }
    delivered_.Add(std::string_view(out_).substr(before));
    tokens_->Mark();
  }
}

std::string_view ContinuationSink::Read(std::string_view data) {
  const bool had_ending = gate_.ending() != EventGate::Ending::kNone;
  const std::string_view events = gate_.Take(data);
  const bool has_ending = gate_.ending() != EventGate::Ending::kNone;
  if (has_ending && !had_ending && hooks_.ending != nullptr) hooks_.ending(hooks_.context);
  return events;
}

BodySink::Took ContinuationSink::WriteRerun(std::string_view data, bool last) {
  out_.clear();
  std::string_view events = Read(data);
  std::string with_rest;
  if (last && gate_.ending() == EventGate::Ending::kNone && !gate_.held().empty()) {
    // The last event is whole without the empty line, as in a first run.
    with_rest = events;
    with_rest += gate_.held();
    with_rest += with_rest.ends_with('\n') ? "\n" : "\n\n";
    gate_ = NewGate();
    events = with_rest;
  }
  if (tokens_ != nullptr) {
    TakeWithIds(events);
    if (last && gate_.ending() == EventGate::Ending::kNone) tokens_->EndRun();
    if (unfit()) return Took::kClosed;
  } else {
    verifier_->Add(events, &out_);
    delivered_.Add(out_);
  }
  if (!events.empty() && !std::exchange(has_event_, true) && hooks_.first_event != nullptr) {
    hooks_.first_event(hooks_.context);
  }
  const RerunState state = verifier_->state();
  if (state == RerunState::kDiffers) {
    passes_all_ = !out_.empty();  // the client has not all that was said of this run
    return Took::kClosed;
  }
  const bool is_checked = tokens_ == nullptr || !tokens_->lacks_receipt();
  const bool is_there = state == RerunState::kCaughtUp && has_event_ && is_checked;
  if (is_there && !std::exchange(caught_up_, true) && hooks_.caught_up != nullptr) {
    hooks_.caught_up(hooks_.context);
  }
  return Pass(out_, last && caught_up_ && gate_.ending() == EventGate::Ending::kNone);
}

// The first piece goes on though it is empty.
BodySink::Took ContinuationSink::Pass(std::string_view data, bool last) {
  if (data.empty() && !last && std::exchange(started_, true)) return Took::kAll;
  started_ = true;
  bytes_ += data.size();
  return Forward(data, last);
}

// What `next` has yet to take of a comment is in front.
BodySink::Took ContinuationSink::Forward(std::string_view data, bool last) {
  if (waits_ == Waits::kComment) {
    waits_ = Waits::kPieceBehindComment;
    piece_ = data;
    last_ = last;
    return Took::kNotYet;
  }
  const Took took = next_.Write(data, last);
  if (took == Took::kNotYet) waits_ = Waits::kPiece;
  return took;
}

Task<BodySink::Took> ContinuationSink::Flush() {
  Took took = co_await next_.Flush();
  if (took == Took::kAll && waits_ == Waits::kPieceBehindComment) {
    took = next_.Write(piece_, last_);
    if (took == Took::kNotYet) took = co_await next_.Flush();
  }
  waits_ = Waits::kNothing;
  co_return took;
}

std::optional<BodySink::Took> ContinuationSink::WriteComment() {
  if (waits_ != Waits::kNothing || !started_ || !may_continue()) return std::nullopt;
  const Took took = next_.Write(kComment, /*last=*/false);
  if (took == Took::kNotYet) waits_ = Waits::kComment;
  return took;
}

void ContinuationSink::Rerun() {
  BeginRun();
  verifier_.emplace(delivered_);
  if (tokens_ != nullptr) tokens_->BeginRerun();
}

void ContinuationSink::Rest(size_t ids, std::string_view repeated) {
  BeginRun();
  verifier_.emplace(delivered_, tokens_->tail().kind(), repeated);
  tokens_->BeginRest(ids, repeated);
}

void ContinuationSink::BeginRun() {
  ROUTER_CHECK(may_continue(), "a stream goes on where its client has whole events of it");
  gate_ = NewGate();
  has_event_ = false;
  caught_up_ = false;
}

BodySink::Took ContinuationSink::WriteEnd(std::string_view events) {
  out_ = events;
  gate_ = NewGate();
  return Pass(out_, /*last=*/true);
}

BodySink::Took ContinuationSink::Release(bool last) {
  out_ = tokens_ != nullptr ? tokens_->Hidden(gate_.held()) : std::string(gate_.held());
  gate_ = NewGate();
  if (out_.empty() && !last) return waits_ == Waits::kComment ? Forward({}, false) : Took::kAll;
  return Pass(out_, last);
}

}  // namespace vllm_router
