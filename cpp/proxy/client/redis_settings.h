// A pool of connections to the Redis that an operator names by a group of options, checked: redis_url and those beside
// it, or peer_sync and those beside it.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"
#include "redis/redis_pool.h"

namespace vllm_router {

struct RedisSettings {
  std::string_view url_option;     // names in messages
  std::string_view others_option;  // what the names of the others begin with
  std::string url;
  std::string password_file;   // empty: the URL's password, if it has one
  std::string ca_file;         // empty: the system CAs
  std::string cert_path = {};  // presented to Redis; empty: none
  std::string key_path = {};
};

// `rest`: of the options what the settings do not say. InvalidArgument and FailedPrecondition name the option that is
// wrong.
StatusOr<std::unique_ptr<RedisPool>> OpenRedisPool(const RedisSettings& settings, RedisOptions rest);

}  // namespace vllm_router
