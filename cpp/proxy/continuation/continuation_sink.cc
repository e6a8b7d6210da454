#include "proxy/continuation/continuation_sink.h"

#include <utility>

#include "base/check.h"

namespace vllm_router {
namespace {

constexpr std::string_view kComment = ": keep-alive\n\n";

}  // namespace

BodySink::Took ContinuationSink::Write(std::string_view data, bool last) {
  if (passes_all_) return Pass(data, last);
  return verifier_ ? WriteRerun(data, last) : WriteFirstRun(data, last);
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
    gate_ = EventGate();
    return Pass(out_, last);
  }
  if (!last || gate_.ending() != EventGate::Ending::kNone) return Pass(out_, /*last=*/false);
  out_ += gate_.held();  // an event that is not complete, which the client would not get otherwise
  gate_ = EventGate();
  return Pass(out_, /*last=*/true);
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
    gate_ = EventGate();
    events = with_rest;
  }
  if (!events.empty() && !std::exchange(has_event_, true) && hooks_.first_event != nullptr) {
    hooks_.first_event(hooks_.context);
  }
  const RerunState state = verifier_->Add(events, &out_);
  if (state == RerunState::kDiffers) return Took::kClosed;
  const bool is_there = state == RerunState::kCaughtUp && has_event_;
  if (is_there && !std::exchange(caught_up_, true) && hooks_.caught_up != nullptr) {
    hooks_.caught_up(hooks_.context);
  }
  delivered_.Add(out_);
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
  ROUTER_CHECK(may_continue(), "a stream goes on where its client has whole events of it");
  gate_ = EventGate();
  verifier_.emplace(delivered_);
  has_event_ = false;
  caught_up_ = false;
}

BodySink::Took ContinuationSink::Release(bool last) {
  out_ = gate_.held();
  gate_ = EventGate();
  if (out_.empty() && !last) return waits_ == Waits::kComment ? Forward({}, false) : Took::kAll;
  return Pass(out_, last);
}

}  // namespace vllm_router
