#include "proxy/server/server_redis.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/log.h"
#include "base/text.h"
#include "proxy/api/server_options.h"
#include "proxy/client/redis_settings.h"
#include "proxy/events/events_feature.h"
#include "proxy/events/redis_prefix_index.h"
#include "proxy/response_cache/redis_response_store.h"
#include "proxy/response_cache/response_cache_feature.h"
#include "routing/router.h"

namespace vllm_router {
namespace {

constexpr size_t kMaxHeadOfReply = 64 * 1024;  // what a response in Redis has beside its body

}  // namespace

StatusOr<std::unique_ptr<RedisPool>> OpenRedis(const ServerOptions& options, const Router& router) {
  // A cache that is off may be enabled by a reload, if there is a Redis then.
  const bool responses = CachesInRedis(options);
  const bool index = SharesPrefixIndex(options, router);
  if (options.kv_index_backend == KvIndexBackend::kRedis && !index) {
    Log(LogLevel::kWarning,
        "kv index: --kv-index-backend redis has no effect without a prefix index; set "
        "--kv-index-max-entries, "
        "and a policy that matches blocks");
  }
  if (!index && !responses) return nullptr;
  if (options.redis_url.empty()) {
    return absl::InvalidArgumentError(Concat(
        responses ? "response_cache_backend" : "kv_index_backend",
        " is redis and redis_url is missing; set it, for example to redis://localhost:6379"));
  }
  RedisOptions rest{
      .connect_timeout_ms = options.redis_connect_timeout_ms,
      .command_timeout_ms = options.redis_command_timeout_ms,
      .connections = options.redis_pool_size,
      .probe_key = std::string(RedisPrefixIndex::kProbeKey)};
  if (responses) {
    // A look-up that fails costs its request a response, so the first failure counts.
    rest.failures = 1;
    rest.probe_key = RedisResponses::ProbeKey(options.response_cache_redis_key_prefix);
    rest.longest_probe_delay_ms = options.response_cache_health_interval_ms;
    const ResponseCacheSettings& cache = options.response_cache;
    rest.max_reply_bytes =
        std::max({rest.max_reply_bytes, cache.max_response_bytes, cache.max_stream_bytes}) + kMaxHeadOfReply;
  }
  return OpenRedisPool(
      {.url_option = "redis_url",
       .others_option = "redis",
       .url = options.redis_url,
       .password_file = options.redis_password_file,
       .ca_file = options.redis_ca_file,
       .cert_path = options.redis_cert_path,
       .key_path = options.redis_key_path},
      std::move(rest));
}

}  // namespace vllm_router
