// The frame that gRPC puts around each message, and the codes that end a call.
//
//   00            00 00 00 05     68 65 6c 6c 6f
//   compressed?   length          message
//
//   GrpcFrameReader reader(kMaxMessage);
//   while (reader.Read(&bytes) == GrpcFrameReader::Result::kMessage) Take(reader.TakeMessage());
//
// Cost: a copy of each message. A claimed length costs at most 64 KiB before so many of its bytes have come. One thread.
// The format: grpc.io, "gRPC over HTTP2" (Length-Prefixed-Message, Status-Message), and "Status codes".
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace vllm_router {

enum class GrpcCode : uint8_t {
  kOk = 0,
  kCancelled = 1,
  kUnknown = 2,
  kInvalidArgument = 3,
  kDeadlineExceeded = 4,
  kNotFound = 5,
  kResourceExhausted = 8,
  kUnimplemented = 12,
  kInternal = 13,
  kUnavailable = 14,
};

inline constexpr size_t kGrpcPrefixBytes = 5;

// A message with what stands in front of it. REQUIRES: it has fewer than 4 GiB.
class GrpcFrame {
 public:
  explicit GrpcFrame(std::string message);

  size_t size() const { return kGrpcPrefixBytes + message_.size(); }
  // Copies at most `most` bytes of it, from `begin` on. Returns how many. REQUIRES: begin <= size().
  size_t Copy(size_t begin, char* to, size_t most) const;

 private:
  std::array<char, kGrpcPrefixBytes> prefix_;
  std::string message_;
};

// A text as the trailer grpc-message carries it: what is not printable ASCII, and '%', as %XX.
std::string GrpcMessageText(std::string_view text);

class GrpcFrameReader {
 public:
  enum class Result : uint8_t {
    kNeedMore,    // all bytes are taken, and no message is complete
    kMessage,     // one is complete; the bytes behind it are left
    kCompressed,  // no encoding was agreed on, so a message may not be compressed
    kTooLarge,    // message_bytes() is above the maximum
  };

  explicit GrpcFrameReader(size_t max_message_bytes) : max_message_bytes_(max_message_bytes) {}

  // Takes bytes from the front of `bytes`, at most up to the end of a message. After kCompressed and kTooLarge the
  // stream cannot be read any further.
  Result Read(std::string_view* bytes);
  // REQUIRES: the last Read() returned kMessage; once.
  std::string TakeMessage() { return std::exchange(message_, {}); }

  // As its prefix says. REQUIRES: the prefix has come.
  size_t message_bytes() const { return length_; }
  // Of the message that is not complete.
  size_t partial_bytes() const { return prefix_bytes_ + message_.size(); }

 private:
  static constexpr size_t kFirstBytes = 64 * 1024;

  const size_t max_message_bytes_;
  std::array<unsigned char, kGrpcPrefixBytes> prefix_{};
  size_t prefix_bytes_ = 0;
  size_t length_ = 0;
  std::string message_;
};

}  // namespace vllm_router
