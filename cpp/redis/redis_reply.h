// RedisReply: a reply of Redis, which owns its memory; RedisValue: a view of it or of one of its elements.
//
//   *2 :1 $3 abc      reply.value().size() == 2      reply.value()[1].text() == "abc"
//
// Replies of RESP2; made by RespReader. Thread-compatible.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

struct redisReply;

namespace vllm_router {

class RedisValue {
 public:
  enum class Kind : uint8_t { kText, kStatus, kError, kInteger, kNil, kArray };

  // `reply` is hiredis's and outlives this.
  explicit RedisValue(const redisReply* reply) : reply_(reply) {}

  Kind kind() const;
  bool is_error() const { return kind() == Kind::kError; }
  // Empty, 0 and 0 for values of other kinds.
  std::string_view text() const;  // of a text, a status or an error
  int64_t integer() const;
  size_t size() const;  // elements of an array
  RedisValue operator[](size_t at) const;

  // The first error in it, itself among them, at most an array deep; empty: there is none.
  std::string_view FirstError() const;

 private:
  const redisReply* reply_;
};

class RedisReply {
 public:
  explicit RedisReply(redisReply* reply) : reply_(reply) {}

  RedisValue value() const { return RedisValue(reply_.get()); }

 private:
  struct Free {
    void operator()(redisReply* reply) const;
  };
  std::unique_ptr<redisReply, Free> reply_;
};

}  // namespace vllm_router
