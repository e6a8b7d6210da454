// Small string functions that several libraries use.
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

namespace vllm_router {

// ASCII only; other bytes are left alone.
std::string AsciiLower(std::string_view text);
bool EqualLettersIgnoreCase(std::string_view a, std::string_view b);  // of the same length
inline bool EqualsIgnoreCase(std::string_view a, std::string_view b) {
  return a.size() == b.size() && EqualLettersIgnoreCase(a, b);
}

// Without spaces and tabs at both ends.
std::string_view TrimBlanks(std::string_view text);

// The longest prefix of `text` that has at most `limit` bytes and ends with a whole character of UTF-8.
std::string_view CutAtCharacter(std::string_view text, size_t limit);

// Decimal digits only, no sign, no blanks; nullopt if empty or too large.
std::optional<uint64_t> ParseDecimal(std::string_view digits);

// -1 if it is not a hex digit.
int HexDigit(char c);

// 16 lower-case hex digits.
std::string Hex16(uint64_t value);

// Nullopt for a '%' that is not followed by two hex digits.
std::optional<std::string> PercentDecoded(std::string_view text, bool plus_is_space);

// A JSON string with its quotes. UTF-8 stays readable; bytes that are not UTF-8 become U+FFFD, so that
// the result is valid whatever a client sent.
std::string JsonQuoted(std::string_view text);
void AppendJsonQuoted(std::string_view text, std::string* out);

// For messages: in double quotes, bytes that are not printable ASCII as \xNN, cut after 200 bytes.
std::string Quoted(std::string_view text);

// For messages: texts and numbers in a row. (absl::StrCat of the reference platform does not take
// std::string_view.)
template <typename... Parts>
std::string Concat(const Parts&... parts) {
  std::string text;
  const auto append = [&text](const auto& part) {
    if constexpr (std::is_convertible_v<decltype(part), std::string_view>) {
      text.append(std::string_view(part));
    } else {
      char digits[32];
      text.append(digits, std::to_chars(digits, digits + sizeof(digits), part).ptr);
    }
  };
  (append(parts), ...);
  return text;
}

// The candidate with the smallest edit distance to `name`, with '-' and '_' as equal; for error
// messages. Empty if there are no candidates or the nearest is no more like `name` than chance (distance
// > half its length).
std::string_view NearestName(std::string_view name, std::span<const std::string_view> candidates);

}  // namespace vllm_router
