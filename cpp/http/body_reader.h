// BodyReader: one interface to the three ways a body can be delimited. It takes raw bytes and tells
// which of them belong to the message, which are body data, and when the message has ended.
//
// One thread; no allocation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "http/chunked.h"
#include "http/head.h"

namespace vllm_router {

class BodyReader {
 public:
  BodyReader() = default;
  BodyReader(BodyFraming framing, uint64_t content_length, MessageKind kind);

  enum class Event : uint8_t { kNeedMore, kData, kEnd, kBad };
  struct Step {
    Event event;
    size_t used;
    std::string_view data;
  };

  // Loop until kNeedMore (input used up) or kEnd (bytes after `used` belong to the next message) or
  // kBad. A body without bytes is ended from the start.
  Step Feed(std::string_view input);
  // The connection was closed by its sender: true if that is a proper end (kUntilClose, or ended already).
  bool EndOfConnection();

  bool ended() const { return ended_; }
  BodyFraming framing() const { return framing_; }
  uint64_t left() const { return left_; }  // bytes still to come with kLength
  std::string_view error() const { return chunked_.error(); }

 private:
  BodyFraming framing_ = BodyFraming::kNone;
  bool ended_ = true;
  uint64_t left_ = 0;
  ChunkedScanner chunked_;
};

}  // namespace vllm_router
