// The Redis that a server's features share: a prefix index of several routers, cached responses.
#pragma once

#include <memory>

#include "base/status.h"
#include "redis/redis_pool.h"

namespace vllm_router {

class Router;
struct ServerOptions;

// Null unless the options name one that something here uses. InvalidArgument names the option that is missing or wrong.
StatusOr<std::unique_ptr<RedisPool>> OpenRedis(const ServerOptions& options, const Router& router);

}  // namespace vllm_router
