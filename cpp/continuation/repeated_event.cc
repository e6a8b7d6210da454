#include "continuation/repeated_event.h"

namespace vllm_router {
namespace {

constexpr std::string_view kField = "data: ";
constexpr std::string_view kEnd = "\n\n";

}  // namespace

void RepeatedEvent::Learn(std::string_view event, std::string_view data, const ChoiceEvent& read) {
  Forget();
  if (read.choices.size() != 1 || read.texts.size() != 1 || !read.call_ids.empty()) return;
  if (!read.choices.front().finish_reason.empty()) return;
  const bool is_one_line = event.size() == kField.size() + data.size() + kEnd.size() &&
                           event.starts_with(kField) && event.ends_with(kEnd);
  if (!is_one_line) return;
  const DeltaText& text = read.texts.front();
  const size_t opening = kField.size() + static_cast<size_t>(text.value.data() - data.data());
  const size_t closing = opening + text.value.size() - 1;
  if (opening + 1 + event.size() - closing > kMaxBytes) return;
  front_ = opening + 1;
  around_.assign(event.substr(0, front_));
  around_ += event.substr(closing);
  index_ = read.choices.front().index;
  kind_ = text.kind;
  call_ = text.call;
}

RepeatedEvent::Match RepeatedEvent::Find(std::string_view stream) const {
  const std::string_view around = around_;
  const std::string_view front = around.substr(0, front_);
  if (around.empty() || !stream.starts_with(front)) return {};
  bool is_escaped = false;
  size_t at = front_;
  while (at < stream.size() && stream[at] != '"') {
    if (stream[at] == '\n' || stream[at] == '\r') return {};
    if (stream[at] == '\\') {
      is_escaped = true;
      ++at;
      if (at == stream.size() || stream[at] == '\n' || stream[at] == '\r') return {};
    }
    ++at;
  }
  const std::string_view back = around.substr(front_);
  if (at >= stream.size() || !stream.substr(at).starts_with(back)) return {};
  return {.bytes = at + back.size(), .spelled = stream.substr(front_, at - front_), .is_escaped = is_escaped};
}

}  // namespace vllm_router
