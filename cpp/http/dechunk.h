// Dechunk: takes the framing out of a stretch of body bytes, in place, so that what is left is body data
// in one piece.
//
//   before   5\r\nhello\r\n6\r\n world\r\n          after   hello world
//
// Moves each byte at most once; a body without chunks is not touched. Pure apart from the reader's state.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "http/body_reader.h"

namespace vllm_router {

struct Dechunked {
  std::string_view data;  // at the front of the given bytes
  size_t used = 0;        // of the given bytes; those behind belong to the next message
  bool bad = false;       // the framing is broken; reader.error() says how
};

Dechunked Dechunk(BodyReader& reader, std::span<char> bytes);

}  // namespace vllm_router
