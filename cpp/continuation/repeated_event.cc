#include "continuation/repeated_event.h"

#include "http/sse_reader.h"

namespace vllm_router {
namespace {

constexpr std::string_view kField = "data: ";
constexpr std::string_view kEnd = "\n\n";

// Where the quote is that ends a string, which begins at `at`; npos: it is not there.
size_t EndOfString(std::string_view text, size_t at) {
  while (at < text.size() && text[at] != '"') at += text[at] == '\\' ? 2 : 1;
  return at < text.size() ? at : std::string_view::npos;
}

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
  size_t end = stream.find('"', front_);
  const bool is_escaped = stream.substr(front_, end - front_).find('\\') != std::string_view::npos;
  if (is_escaped) end = EndOfString(stream, front_);
  if (end == std::string_view::npos) return {};
  const std::string_view spelled = stream.substr(front_, end - front_);
  const std::string_view back = around.substr(front_);
  if (!stream.substr(end).starts_with(back) || FindLineEnd(spelled) != std::string_view::npos) return {};
  return {.bytes = end + back.size(), .spelled = spelled, .is_escaped = is_escaped};
}

}  // namespace vllm_router
