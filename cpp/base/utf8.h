// UTF-8: where a character ends, and text that is none made into some. Pure functions; any thread.
#pragma once

#include <cstddef>
#include <string_view>

namespace vllm_router {

// Bytes of the character at the start of `text`, 0 if it is not well-formed UTF-8 (overlong, a
// surrogate, past U+10FFFF, cut off). REQUIRES: the first byte is 0x80 or more.
size_t Utf8Size(std::string_view text);

// Writes `text` with U+FFFD for each byte that is no part of a character, and returns where it ends. REQUIRES: room for
// kMaxUtf8Growth times its bytes.
inline constexpr size_t kMaxUtf8Growth = 3;
char* CopyValidUtf8(std::string_view text, char* to);

}  // namespace vllm_router
