// WebSocket frames (RFC 6455) as a server reads and writes them: masked ones in, fragments joined; whole unmasked
// ones out. No extensions.
//
//   WebSocketReader reader(kMostBytes);
//   for (size_t used; reader.Feed(bytes, &used) == WebSocketReader::State::kMessage; bytes.remove_prefix(used)) …
//   WriteWebSocketFrame(WebSocketOpcode::kText, "{}", &out);
//
// One thread; a copy of each payload.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace vllm_router {

enum class WebSocketOpcode : uint8_t {
  kContinuation = 0,
  kText = 1,
  kBinary = 2,
  kClose = 8,
  kPing = 9,
  kPong = 10,
};

class WebSocketReader {
 public:
  // Longer messages are errors.
  explicit WebSocketReader(size_t limit) : limit_(limit) {}

  enum class State : uint8_t { kMore, kMessage, kBad };
  // Reads up to the end of the next message; `used` bytes are done with in any case. kMore: the rest has to come
  // again, with more behind it.
  State Feed(std::string_view bytes, size_t* used);

  // Of kMessage, until the next Feed().
  WebSocketOpcode opcode() const { return opcode_; }
  std::string_view payload() const { return payload_; }
  // Of kBad, for the close frame.
  uint16_t close_code() const { return close_code_; }

 private:
  State ReadFrame(std::string_view bytes, size_t* used);
  State Bad(uint16_t code) {
    close_code_ = code;
    return State::kBad;
  }

  const size_t limit_;
  WebSocketOpcode opcode_ = WebSocketOpcode::kContinuation;
  std::string payload_;
  // Of a message that is not complete: control frames may come between its fragments.
  WebSocketOpcode begun_ = WebSocketOpcode::kContinuation;
  std::string fragments_;
  uint16_t close_code_ = 0;
};

void WriteWebSocketFrame(WebSocketOpcode opcode, std::string_view payload, std::string* out);

// Sec-WebSocket-Accept for a client's Sec-WebSocket-Key.
std::string WebSocketAccept(std::string_view key);

}  // namespace vllm_router
