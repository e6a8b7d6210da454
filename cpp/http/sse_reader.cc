#include "http/sse_reader.h"

#include <algorithm>

#include "base/text.h"

namespace vllm_router {

size_t FindLineEnd(std::string_view text) {
  constexpr size_t kBlock = 64;
  for (size_t at = 0; at < text.size(); at += kBlock) {
    const std::string_view block = text.substr(at, kBlock);
    const size_t feed = block.find('\n');
    const size_t end = std::min(feed, block.substr(0, feed).find('\r'));
    if (end != std::string_view::npos) return at + end;
  }
  return std::string_view::npos;
}

SseReader::Step SseReader::Next(std::string_view* bytes) {
  if (too_long_) return Step::kTooLong;
  if (ended_) {
    ended_ = false;
    type_.clear();
    data_.clear();
  }
  while (!bytes->empty()) {
    if (after_cr_) {
      after_cr_ = false;
      if (bytes->front() == '\n') {
        bytes->remove_prefix(1);
        continue;
      }
    }
    const size_t end = std::min(FindLineEnd(*bytes), bytes->size());
    if (IsTooLong(line_.size() + end)) {
      too_long_ = true;
      return Step::kTooLong;
    }
    if (end == bytes->size()) {
      line_.append(*bytes);
      bytes->remove_prefix(end);
      break;
    }
    std::string_view line = bytes->substr(0, end);
    if (!line_.empty()) line = line_.append(line);
    after_cr_ = (*bytes)[end] == '\r';
    bytes->remove_prefix(end + 1);
    constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
    if (first_line_ && line.starts_with(kByteOrderMark)) line.remove_prefix(kByteOrderMark.size());
    first_line_ = false;
    if (!line.empty()) {
      Field(line);
      line_.clear();
      continue;
    }
    line_.clear();
    last_id_ = id_;
    if (data_.empty()) {
      type_.clear();
      continue;
    }
    data_.pop_back();
    ended_ = true;
    return Step::kEvent;
  }
  return Step::kNeedMore;
}

void SseReader::Field(std::string_view line) {
  const size_t colon = line.find(':');
  const std::string_view name = line.substr(0, colon);
  std::string_view value = colon == std::string_view::npos ? std::string_view() : line.substr(colon + 1);
  if (value.starts_with(' ')) value.remove_prefix(1);
  if (name == "data") {
    data_.append(value).push_back('\n');
  } else if (name == "event") {
    type_ = value;
  } else if (name == "id") {
    const bool visible = std::ranges::all_of(value, [](char c) { return c > ' ' && c < '\x7f'; });
    if (visible && value.size() <= kMaxIdBytes) id_ = value;
  } else if (name == "retry") {
    if (const std::optional<uint64_t> number = ParseDecimal(value)) retry_ms_ = number;
  }
}

}  // namespace vllm_router
