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

size_t EventEnd::Find(std::string_view stream) {
  while (true) {
    const size_t length = FindLineEnd(stream.substr(searched_));
    if (length == std::string_view::npos) {
      searched_ = stream.size();
      return std::string_view::npos;
    }
    const size_t end = searched_ + length;
    searched_ = end;
    if (end != line_ && stream.substr(end) == "\r") return std::string_view::npos;  // LF may follow
    const size_t next = stream.substr(end).starts_with("\r\n") ? end + 2 : end + 1;
    if (end == line_) return next;
    line_ = searched_ = next;
  }
}

std::string_view EventGate::Take(std::string_view bytes) {
  passed_.clear();
  held_ += bytes;
  size_t passed = 0;
  while (ending_ == Ending::kNone && !passes_all_) {
    const std::string_view rest = std::string_view(held_).substr(passed);
    const size_t size = end_.Find(rest);
    passes_all_ = std::min(size, rest.size()) > most_held_bytes_;
    if (size == std::string_view::npos || passes_all_) break;
    end_ = EventEnd();
    ending_ = EndingOf(rest.substr(0, size));
    if (ending_ == Ending::kNone) passed += size;
  }
  if (passes_all_) passed = held_.size();
  passed_.assign(held_, 0, passed);
  held_.erase(0, passed);
  return passed_;
}

}  // namespace vllm_router
