// RedisError: what an error that Redis replied means for its user.
//
//   -LOADING Redis is loading the dataset in memory      kDown: no command works; others may serve later
//   -OOM command not allowed when used memory > …        kUnwritable: reads work
//   -READONLY You can't write against a read only …      kReadOnly: the same; its name may mean another server by now
//   -WRONGTYPE Operation against a key …                 kOneKey: of that command alone
//
// Messages show the error's first word and not its text, which may repeat a command and its password. Pure;
// any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace vllm_router {

// As the label `type` of continuum_cache_redis_errors_total.
enum class RedisErrorType : uint8_t { kConnection, kTimeout, kOther };
inline constexpr size_t kRedisErrorTypes = 3;
std::string_view NameOf(RedisErrorType type);
// Of a command that failed: Unavailable, DeadlineExceeded, and others.
RedisErrorType TypeOf(const Status& failure);

struct RedisError {
  enum class Effect : uint8_t { kDown, kUnwritable, kReadOnly, kOneKey };

  Effect effect;
  RedisErrorType type;
  std::string message;  // for the log: "NOAUTH: set a password by …"
};
RedisError ReadRedisError(std::string_view text);

}  // namespace vllm_router
