// What /admin/response-cache/stats says of the response cache, and what a call of /admin/response-cache/invalidate asks
// for. The replies are those of the router whose `response_cache:` the settings follow. Any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "base/status.h"
#include "proxy/api/admin_reply.h"
#include "proxy/api/response_cache_settings.h"
#include "proxy/response_cache/response_cache.h"
#include "response_cache/request_digest.h"

namespace vllm_router {

class RedisPool;

// Of the cache in Redis; none with memory.
struct SharedCacheFigures {
  const RedisPool* pool = nullptr;
  bool refused = false;  // Redis is up, and cannot be used
  uint64_t entries = 0;
  uint64_t late = 0;
  uint64_t dropped = 0;
};

// `detail`: with what the other router does not say.
AdminReply CacheStatsReply(
    const ResponseCache& cache, const ResponseCacheSettings& settings,
    const std::optional<SharedCacheFigures>& shared, bool detail);

struct InvalidateAllResponses {};
struct InvalidateModelResponses {
  std::string model;
};
struct InvalidateResponse {
  CacheKey key;
};
using InvalidateCall = std::variant<InvalidateAllResponses, InvalidateModelResponses, InvalidateResponse>;
// {"clear_all": true}, {"model": "m"} or {"key": "<64 hex digits>"}. InvalidArgument says what is wrong.
StatusOr<InvalidateCall> ReadInvalidateCall(std::string_view body);
struct SharedInvalidation {
  bool told = false;  // Redis has it
  uint64_t cleared = 0;
};
// `shared`: Redis has it; null: there is none.
AdminReply InvalidatedReply(const InvalidateCall& call, uint64_t cleared, std::optional<bool> shared);
AdminReply InvalidateRefused(int status, std::string_view message);

}  // namespace vllm_router
