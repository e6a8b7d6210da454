// The response cache: responses that are kept, in memory or in a Redis, and served instead of a worker's
// (docs/explanation/response_cache.md).
#pragma once

namespace vllm_router {

struct Feature;
struct ServerOptions;
struct Step;

extern const Feature kResponseCacheFeature;
extern const Step kCacheableStep;
extern const Step kInvalidateStep;
extern const Step kResponseCacheStep;

// Responses are kept in Redis, or would be if the cache were enabled.
bool CachesInRedis(const ServerOptions& options);

}  // namespace vllm_router
