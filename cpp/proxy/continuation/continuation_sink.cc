#include "proxy/continuation/continuation_sink.h"

#include <utility>

#include "base/check.h"

namespace vllm_router {

BodySink::Took ContinuationSink::Write(std::string_view data, bool last) {
  if (passes_all_) return Pass(data, last);
  return verifier_ ? WriteRerun(data, last) : WriteFirstRun(data, last);
}

BodySink::Took ContinuationSink::WriteFirstRun(std::string_view data, bool last) {
  out_ = gate_.Take(data);
  delivered_.Add(out_);
  if (gate_.passes_all() || !delivered_.ok()) {
    passes_all_ = true;
    out_ += gate_.held();
    gate_ = EventGate();
    return Pass(out_, last);
  }
  if (!last || gate_.ending() != EventGate::Ending::kNone) return Pass(out_, /*last=*/false);
  out_ += gate_.held();  // an event that is not complete, which the client would not get otherwise
  gate_ = EventGate();
  return Pass(out_, /*last=*/true);
}

BodySink::Took ContinuationSink::WriteRerun(std::string_view data, bool last) {
  out_.clear();
  const std::string_view events = gate_.Take(data);
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
  return next_.Write(data, last);
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
  if (out_.empty() && !last) return Took::kAll;
  return Pass(out_, last);
}

}  // namespace vllm_router
