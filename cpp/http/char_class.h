// Which bytes are allowed where in HTTP/1.1, as one table of bits: every rule about bytes is a look-up.
// For the http library, and for who takes the names of fields as settings. Pure; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace vllm_router {

inline constexpr uint8_t kTokenChar = 1;      // methods, field names, codings (RFC 9110 5.6.2)
inline constexpr uint8_t kTargetChar = 2;     // visible ASCII without '#'
inline constexpr uint8_t kAuthorityChar = 4;  // host and port; no user information, no comma
inline constexpr uint8_t kValueChar = 8;      // field values: everything but control bytes, HTAB included
inline constexpr uint8_t kVisibleChar = 16;   // visible ASCII, SP and HTAB

constexpr std::array<uint8_t, 256> MakeCharClasses() {
  constexpr std::string_view kTokenMarks = "!#$%&'*+-.^_`|~";
  // A registered name may hold a comma, but X-Forwarded-Host is a list.
  constexpr std::string_view kAuthorityMarks = "-._~%!$&'()*+;=:[]";
  std::array<uint8_t, 256> classes{};
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    uint8_t& bits = classes[static_cast<size_t>(byte)];
    const bool alnum = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
    if (alnum || kTokenMarks.find(c) != std::string_view::npos) bits |= kTokenChar;
    if (byte > 0x20 && byte < 0x7f && c != '#') bits |= kTargetChar;
    if (alnum || kAuthorityMarks.find(c) != std::string_view::npos) bits |= kAuthorityChar;
    if (c == '\t' || (byte >= 0x20 && byte != 0x7f)) bits |= kValueChar;
    if (c == '\t' || (byte >= 0x20 && byte < 0x7f)) bits |= kVisibleChar;
  }
  return classes;
}
inline constexpr std::array<uint8_t, 256> kCharClasses = MakeCharClasses();

inline bool Is(char c, uint8_t char_class) {
  return (kCharClasses[static_cast<unsigned char>(c)] & char_class) != 0;
}

inline bool All(std::string_view text, uint8_t char_class) {
  for (const char c : text) {
    if (!Is(c, char_class)) return false;
  }
  return true;
}

// True if every byte is a kValueChar; eight bytes at a time, since values are most of a head.
inline bool AllValueChars(std::string_view text) {
  // The high bit of each byte that is below 0x20 or equal to 0x7f. A borrow may mark a byte wrongly, but
  // only if it also marks the lower byte that it came from rightly, so the result for the whole word is
  // exact.
  const auto suspicious = [](const char* at) {
    constexpr uint64_t kOnes = 0x0101010101010101u;
    uint64_t word;
    std::memcpy(&word, at, sizeof(word));
    const uint64_t del = word ^ (0x7f * kOnes);
    return ((((word - 0x20 * kOnes) & ~word) | ((del - kOnes) & ~del)) & (0x80 * kOnes)) != 0;
  };
  if (text.size() < sizeof(uint64_t)) return All(text, kValueChar);
  bool clean = true;
  for (size_t i = 0; i + sizeof(uint64_t) < text.size(); i += sizeof(uint64_t))
    clean &= !suspicious(text.data() + i);
  clean &= !suspicious(
      text.data() + text.size() - sizeof(uint64_t));  // overlaps the word before, saving a second loop
  return clean || All(text, kValueChar);              // HTAB is below 0x20 and allowed
}

// True if `name` is `lower` in any case. REQUIRES: same sizes; `lower` is in lower case; `name` consists
// of token characters, so that setting bit 5 turns only a capital letter into another character of
// `lower`.
inline bool IsName(std::string_view name, std::string_view lower) {
  for (size_t i = 0; i < lower.size(); ++i) {
    if ((name[i] | 0x20) != lower[i]) return false;
  }
  return true;
}

inline std::string_view Trim(std::string_view text) {
  const auto blank = [](char c) { return c == ' ' || c == '\t'; };
  while (!text.empty() && blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && blank(text.back())) text.remove_suffix(1);
  return text;
}

}  // namespace vllm_router
