// JsonScanner: steps over the values of a JSON text without parsing them: strings are skipped, brackets are counted.
//
//   {"a": [1, {"b": "]"}], "c": 2}
//         ^scanner         ^after SkipValue()
//
// Of valid JSON every step ends where a parser's does. Of other text the steps end somewhere inside it; which
// brackets belong together, and how numbers and escapes are written, is not checked. Nothing recurses and nothing is
// allocated, so deep nesting costs what flat text costs: 0.1 ns per byte of long strings and numbers, and 1 to 2 ns
// per byte of short ones. Pure; any thread.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace vllm_router {

// Python's json, by which engines read bodies, skips one in front of a text; other parsers take it for an error.
inline constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

inline std::string_view WithoutByteOrderMark(std::string_view text) {
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  return text;
}

class JsonScanner {
 public:
  explicit JsonScanner(std::string_view text) : text_(text) {}

  // REQUIRES: at the beginning of a body.
  void SkipByteOrderMark() { at_ = text_.size() - WithoutByteOrderMark(text_).size(); }
  void SkipBlanks() {
    while (at_ < text_.size() && IsBlank(text_[at_])) ++at_;
  }
  // True, and one on, if `c` is next after blanks.
  bool Take(char c) {
    if (Peek() != c || at_ == text_.size()) return false;
    ++at_;
    return true;
  }
  // '\0' at the end.
  char Peek() {
    SkipBlanks();
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  size_t at() const { return at_; }
  bool AtEnd() {
    SkipBlanks();
    return at_ == text_.size();
  }

  // To the byte after the closing quote. REQUIRES: at an opening one. False: the string does not end.
  bool SkipString();
  // To the byte after a value of any type. False: there is none, or it does not end inside the text.
  bool SkipValue();

  static bool IsBlank(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

 private:
  bool SkipContainer();
  bool SkipScalar();

  const std::string_view text_;
  size_t at_ = 0;
};

// What the text between a string's quotes means, in UTF-8. nullopt for a bad escape or a lone surrogate.
std::optional<std::string> UnescapedJson(std::string_view text);

// A number as JSON spells it: -?(0|[1-9][0-9]*)(.[0-9]+)?([eE][+-]?[0-9]+)?
bool IsJsonNumber(std::string_view token);

// The elements of an array, at most `limit` of them; the text behind those is not looked at. nullopt if the text up
// to there is no array.
std::optional<std::vector<std::string_view>> JsonElements(std::string_view array, size_t limit);

}  // namespace vllm_router
