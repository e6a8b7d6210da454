// TextTail: the end of a text that comes in pieces, and how long all of it is.
//
//   tail.Add(TextKind::kReasoning, "Let me");  tail.Add(TextKind::kContent, "Hi");
//   tail.text()  "Let meHi"     tail.of_last_kind()  "Hi"     tail.bytes()  8
//
// Memory: at most 2 * kMostBytes. Cost: a copy of each piece. One thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "continuation/transcript.h"

namespace vllm_router {

class TextTail {
 public:
  static constexpr size_t kMostBytes = 256;

  void Add(TextKind kind, std::string_view text) {
    if (text.empty()) return;
    if (kind != kind_) of_last_kind_ = 0;
    kind_ = kind;
    bytes_ += text.size();
    of_last_kind_ += text.size();
    letters_ += LettersOf(text);
    kept_ += text.substr(text.size() - std::min(text.size(), kMostBytes));
    if (kept_.size() > 2 * kMostBytes) kept_.erase(0, kept_.size() - kMostBytes);
  }

  // Characters of UTF-8.
  static uint64_t LettersOf(std::string_view text) {
    return static_cast<uint64_t>(
        std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
  }

  // Its last bytes, at most kMostBytes.
  std::string_view text() const {
    return std::string_view(kept_).substr(kept_.size() - std::min(kept_.size(), kMostBytes));
  }
  // Of these, what has come since the kind changed.
  std::string_view of_last_kind() const {
    const std::string_view all = text();
    return all.substr(all.size() - static_cast<size_t>(std::min<uint64_t>(all.size(), of_last_kind_)));
  }
  TextKind kind() const { return kind_; }
  uint64_t bytes() const { return bytes_; }
  uint64_t letters() const { return letters_; }

 private:
  std::string kept_;
  uint64_t bytes_ = 0;
  uint64_t letters_ = 0;
  uint64_t of_last_kind_ = 0;  // bytes
  TextKind kind_ = TextKind::kContent;
};

}  // namespace vllm_router
