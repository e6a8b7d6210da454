// RespReader: the replies in a stream of bytes from Redis (RESP2), in whatever pieces they come.
//
//   +OK CRLF   :42 CRLF   $5 CRLF hello CRLF   *2 CRLF $1 CRLF a CRLF $-1 CRLF
//   status     integer    text                 array of a text and a nil
//
// hiredis reads the replies. What it reads has passed a scan of lengths first, since hiredis itself allocates
// whatever an array claims to have, waits for a line end for ever and does not look at what follows a text.
// So the memory of a reply is at most max_reply_bytes and 64 bytes per element; it is freed with the reply.
//
// Cost: a copy of each text. One thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "redis/redis_reply.h"

struct redisReader;

namespace vllm_router {

class RespReader {
 public:
  static constexpr size_t kMaxLineBytes = 64 * 1024;
  static constexpr size_t kMaxElements = 16 * 1024;  // of a reply, over all of its arrays
  static constexpr size_t kMaxDepth = 3;             // arrays in one another

  explicit RespReader(size_t max_reply_bytes);

  // Appends the replies that these bytes complete. FailedPrecondition, with what is wrong, for bytes that are
  // not RESP2, ResourceExhausted for a reply beyond a limit; the replies before them are appended, and nothing is
  // read any more.
  Status Feed(std::string_view bytes, std::vector<RedisReply>* replies);

  // Of the reply that is not complete; 0 between replies.
  size_t reply_bytes() const { return reply_bytes_; }

 private:
  struct Free {
    void operator()(redisReader* reader) const;
  };

  // The number of bytes up to the first that is wrong, all of them if status_ is ok; counts complete replies.
  size_t Scan(std::string_view bytes, size_t* complete);
  void TakeByte(char c, size_t* complete);
  void EndLine(size_t* complete);
  void EndValue(size_t* complete);
  void Fail(std::string reason) { status_ = absl::FailedPreconditionError(reason); }
  void FailTooLarge(size_t most, std::string_view unit);

  const size_t max_reply_bytes_;
  const std::unique_ptr<redisReader, Free> reader_;
  Status status_;

  size_t reply_bytes_ = 0;
  size_t elements_ = 0;
  size_t depth_ = 0;
  std::array<size_t, kMaxDepth> missing_{};  // elements of each open array
  // Of the line: its first bytes, without which no length can be read, and its length so far.
  std::array<char, 24> line_{};
  size_t line_bytes_ = 0;
  bool carriage_return_ = false;  // was the last byte
  bool in_text_ = false;
  size_t text_left_ = 0;  // bytes of the text, with its line end
};

}  // namespace vllm_router
