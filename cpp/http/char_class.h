// Which bytes may stand where in HTTP/1.1, as one table of bits: every rule about bytes is a look-up.
// Private to the http room. Pure; any thread.
#pragma once

#include <array>
#include <cstdint>
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

}  // namespace vllm_router
