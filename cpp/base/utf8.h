// UTF-8: where a character ends, and text that is none made into some. Pure functions; any thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace vllm_router {

// Bytes of the character at the start of `text`, 0 if it is not well-formed UTF-8 (overlong, a
// surrogate, past U+10FFFF, cut off). REQUIRES: the first byte is 0x80 or more.
size_t Utf8Size(std::string_view text);

// `text` with U+FFFD for each byte that is no part of a character.
void AppendValidUtf8(std::string_view text, std::string* out);

}  // namespace vllm_router
