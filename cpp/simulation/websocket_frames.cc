#include "simulation/websocket_frames.h"

#include <openssl/evp.h>

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace vllm_router {

namespace {

constexpr uint16_t kProtocolError = 1002;
constexpr uint16_t kTooLong = 1009;
constexpr uint8_t kFinal = 0x80;
constexpr uint8_t kReserved = 0x70;  // of extensions
constexpr uint8_t kMasked = 0x80;
constexpr size_t kMaskBytes = 4;
constexpr size_t kMaxControlBytes = 125;

uint64_t BigEndian(std::string_view bytes) {
  uint64_t number = 0;
  for (const char byte : bytes) number = number << 8 | static_cast<uint8_t>(byte);
  return number;
}

bool IsControl(WebSocketOpcode opcode) { return opcode >= WebSocketOpcode::kClose; }

bool IsKnown(uint8_t opcode) { return opcode <= 2 || (opcode >= 8 && opcode <= 10); }

}  // namespace

WebSocketReader::State WebSocketReader::Feed(std::string_view bytes, size_t* used) {
  *used = 0;
  for (;;) {
    size_t frame = 0;
    const State state = ReadFrame(bytes.substr(*used), &frame);
    *used += frame;
    // A fragment is no message yet.
    if (state != State::kMore || frame == 0) return state;
  }
}

WebSocketReader::State WebSocketReader::ReadFrame(std::string_view bytes, size_t* used) {
  if (bytes.size() < 2) return State::kMore;
  const auto first = static_cast<uint8_t>(bytes[0]);
  const auto second = static_cast<uint8_t>(bytes[1]);
  const auto opcode = static_cast<WebSocketOpcode>(first & 0x0f);
  const bool final = (first & kFinal) != 0;
  if ((first & kReserved) != 0 || (second & kMasked) == 0 || !IsKnown(first & 0x0f))
    return Bad(kProtocolError);

  uint64_t length = second & ~kMasked;
  const size_t extended = length == 127 ? 8 : length == 126 ? 2 : 0;
  const size_t head = 2 + extended + kMaskBytes;
  if (bytes.size() < head) return State::kMore;
  if (extended > 0) length = BigEndian(bytes.substr(2, extended));
  if (IsControl(opcode) && (!final || length > kMaxControlBytes)) return Bad(kProtocolError);
  if (length > limit_ - std::min(limit_, fragments_.size())) return Bad(kTooLong);
  if (bytes.size() < head + length) return State::kMore;

  const std::string_view mask = bytes.substr(head - kMaskBytes, kMaskBytes);
  std::string& to = IsControl(opcode) ? payload_ : fragments_;
  if (IsControl(opcode)) {
    payload_.clear();
  } else {
    const bool continues = opcode == WebSocketOpcode::kContinuation;
    const bool has_begun = begun_ != WebSocketOpcode::kContinuation;
    if (continues != has_begun) return Bad(kProtocolError);
    if (!continues) begun_ = opcode;
  }
  const size_t before = to.size();
  to.append(bytes.substr(head, length));
  for (size_t i = 0; i < length; ++i) to[before + i] ^= mask[i % kMaskBytes];
  *used = head + length;
  if (!final) return State::kMore;
  if (IsControl(opcode)) {
    opcode_ = opcode;
  } else {
    opcode_ = std::exchange(begun_, WebSocketOpcode::kContinuation);
    payload_ = std::exchange(fragments_, "");
  }
  return State::kMessage;
}

void WriteWebSocketFrame(WebSocketOpcode opcode, std::string_view payload, std::string* out) {
  out->push_back(static_cast<char>(kFinal | static_cast<uint8_t>(opcode)));
  const size_t length = payload.size();
  const size_t extended = length > 0xffff ? 8 : length > 125 ? 2 : 0;
  out->push_back(static_cast<char>(extended == 8 ? 127 : extended == 2 ? 126 : length));
  for (size_t i = extended; i > 0; --i) out->push_back(static_cast<char>(length >> (8 * (i - 1))));
  out->append(payload);
}

std::string WebSocketAccept(std::string_view key) {
  const std::string text = std::string(key) + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  const int done = EVP_Digest(text.data(), text.size(), digest, &size, EVP_sha1(), nullptr);
  ROUTER_CHECK(done == 1, "OpenSSL has no SHA-1");
  unsigned char base64[4 * EVP_MAX_MD_SIZE / 3 + 4];
  const int length = EVP_EncodeBlock(base64, digest, static_cast<int>(size));
  return {reinterpret_cast<const char*>(base64), static_cast<size_t>(length)};
}

}  // namespace vllm_router
