// RedisUrl: where a Redis or Valkey is, and as which user, as an operator names it.
//
//   redis://cache:6379/2      rediss://router:s3cret@cache      valkey://[fd00::1]      valkeys://…
//
//   scheme://[user[:password]@]host[:port][/database]      percent-encoded; with an s it is TLS
//
// Messages show neither user nor password. Pure; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace vllm_router {

struct RedisUrl {
  static constexpr uint16_t kDefaultPort = 6379;
  static constexpr uint32_t kMaxDatabase = 16'383;

  bool tls = false;
  std::string user;  // empty: Redis's default user
  std::string password;
  std::string host;  // without brackets
  uint16_t port = kDefaultPort;
  uint32_t database = 0;

  // Without user and password, for messages.
  std::string Shown() const;
};

// InvalidArgument names `option`, the part that is wrong, the limit and the remedy.
StatusOr<RedisUrl> ParseRedisUrl(std::string_view option, std::string_view text);

}  // namespace vllm_router
