// Transcript: what one choice of a stream has said so far, as one text: content, reasoning and tool calls in the order
// in which they came, with a mark where one goes over into another.
//
//   reasoning "Let" " me", content "Hi"      ─▶  FF r FE L e t _ m e FF c FE H i
//   tool call 1, name "f", arguments "{}"    ─▶  FF n 1 FE f FF a 1 FE { }
//
// So two runs that say the same in other pieces have one transcript, and a run that moves a word from reasoning to
// content has another one. No byte of a mark is part of UTF-8. Empty texts leave no mark.
//
// Kept are a digest and what the last piece was of: 40 bytes, however long the text. One thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "continuation/text_digest.h"

namespace vllm_router {

enum class TextKind : uint8_t { kContent, kReasoning, kRefusal, kToolName, kToolArguments };
inline constexpr size_t kTextKinds = 5;

class Transcript {
 public:
  // `call`: of the tool call, by its `index`; 0 for other kinds.
  void Add(TextKind kind, uint64_t call, std::string_view text);
  // Bytes that the mark in front of such a text has now; 0: it goes on where the last one ended.
  size_t MarkBytes(TextKind kind, uint64_t call) const;

  const TextDigest& digest() const { return digest_; }
  uint64_t bytes() const { return digest_.bytes(); }
  // Of the last text. REQUIRES: bytes() is not 0.
  TextKind kind() const { return kind_; }
  // Tool calls that have begun, by the greatest index.
  uint64_t calls() const { return calls_; }

 private:
  bool GoesOn(TextKind kind, uint64_t call) const {
    return digest_.bytes() != 0 && kind == kind_ && call == call_;
  }

  TextDigest digest_;
  uint64_t call_ = 0;
  uint64_t calls_ = 0;
  TextKind kind_ = TextKind::kContent;
};

// TextTail: the end of such a text without marks, and how long all of it is.
//
//   tail.Add(TextKind::kReasoning, "Let me");  tail.Add(TextKind::kContent, "Hi");
//   tail.text()  "Let meHi"     tail.of_last_kind()  "Hi"     tail.bytes()  8
//
// Memory: at most 2 * kMostBytes. Cost: a copy of each piece. One thread.
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
