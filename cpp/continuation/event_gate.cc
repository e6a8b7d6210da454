#include "continuation/event_gate.h"

#include <algorithm>

#include "http/sse_reader.h"
#include "http/stream_tail.h"

namespace vllm_router {
namespace {

EventGate::Ending EndingOf(std::string_view event) {
  const bool may_end =
      event.find("\"error\"") != std::string_view::npos || event.find("abort\"") != std::string_view::npos;
  if (!may_end) return EventGate::Ending::kNone;
  StreamTail tail;
  tail.Add(event);
  const StreamSummary summary = tail.Summarize(ResponseForm::kChoices);
  if (summary.server_error) return EventGate::Ending::kServerError;
  return summary.aborted ? EventGate::Ending::kAborted : EventGate::Ending::kNone;
}

}  // namespace

size_t EventSize(std::string_view stream) {
  size_t line = 0;
  while (true) {
    const size_t length = FindLineEnd(stream.substr(line));
    if (length == std::string_view::npos) return std::string_view::npos;
    const size_t end = line + length;
    const size_t next = stream.substr(end).starts_with("\r\n") ? end + 2 : end + 1;
    if (end == line) return next;
    line = next;
  }
}

std::string_view EventGate::Take(std::string_view bytes) {
  passed_.clear();
  held_ += bytes;
  size_t passed = 0;
  while (ending_ == Ending::kNone && !passes_all_) {
    const std::string_view rest = std::string_view(held_).substr(passed);
    const size_t size = EventSize(rest);
    passes_all_ = std::min(size, rest.size()) > kMaxHeldBytes;
    if (size == std::string_view::npos || passes_all_) break;
    ending_ = EndingOf(rest.substr(0, size));
    if (ending_ == Ending::kNone) passed += size;
  }
  if (passes_all_) passed = held_.size();
  passed_.assign(held_, 0, passed);
  held_.erase(0, passed);
  return passed_;
}

}  // namespace vllm_router
