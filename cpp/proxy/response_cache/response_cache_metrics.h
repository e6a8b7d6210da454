// Families of the response cache, and of the Redis that it or the prefix index shares with other routers. Any thread.
#pragma once

#include <cstdint>

namespace vllm_router {

class MetricsPage;
class RedisPool;
class RedisResponses;
class ResponseCache;
class ResponseCacheService;

// `responses`, null: Redis holds no responses.
void WriteRedis(const RedisPool& redis, const RedisResponses* responses, MetricsPage* page);

// REQUIRES: the cache is enabled. `responses` and `service`, null: as above.
void WriteResponseCache(
    const ResponseCache& cache, int64_t now_ns, const RedisResponses* responses,
    ResponseCacheService* service, MetricsPage* page);

}  // namespace vllm_router
