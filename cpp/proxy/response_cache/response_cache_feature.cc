#include "proxy/response_cache/response_cache_feature.h"

#include <memory>
#include <string>
#include <utility>

#include "base/whole_file.h"
#include "net/event_loop.h"
#include "net/task.h"
#include "proxy/admin/feature.h"
#include "proxy/api/server_options.h"
#include "proxy/control/services.h"
#include "proxy/response_cache/cache_endpoints.h"
#include "proxy/response_cache/redis_response_store.h"
#include "proxy/response_cache/response_cache.h"
#include "proxy/response_cache/response_cache_metrics.h"
#include "proxy/response_cache/response_cache_service.h"
#include "proxy/thread/io_thread.h"
#include "proxy/thread/server_limits.h"
#include "redis/redis_link.h"
#include "redis/redis_pool.h"

namespace vllm_router {
namespace {

constexpr size_t kMinIntegrityBytes = 32;

// Responses are kept in Redis: each thread has its connections, and the control thread what they share.
void AddRedis(const ServerParts& server, RedisPool& redis, ResponseCache* cache) {
  const ServerOptions& options = server.options;
  auto* const responses = server.limits.features.Own(
      std::make_unique<RedisResponses>(redis, options.response_cache_redis_key_prefix));
  for (const std::unique_ptr<IoThread>& thread : server.threads) {
    thread->features.Own(std::make_unique<RedisResponseStore>(
        *thread->redis, *responses,
        RedisResponseStore::Limits{
            .lookup_budget_ms = options.response_cache_lookup_budget_ms,
            .max_waiting_bytes = options.response_cache_store_queue_bytes}));
  }
  IoThread& control = *server.threads.back();
  auto* const service = server.services.AddMade(std::make_unique<ResponseCacheService>(
      *control.redis, cache->generations, *responses, [cache] { cache->memory.Clear(); }));
  cache->OnInvalidated([service, &control](bool deletes) {
    service->Tell();
    if (!deletes) return;
    control.loop.Post([service] {
      Spawn([](ResponseCacheService& service) -> Task<void> {
        [[maybe_unused]] const StatusOr<int64_t> cleared = co_await service.Clear(nullptr);
      }(*service));
    });
  });
}

// Empty: what is stored is not signed.
StatusOr<std::string> ReadIntegrityKey(const ServerOptions& options) {
  if (options.response_cache_integrity_key_file.empty()) return std::string();
  return ReadSecretFile(
      "response_cache_integrity_key_file", options.response_cache_integrity_key_file, kMinIntegrityBytes);
}

// The cache is there also if it is off, since a reload may enable it.
Status Add(const ServerParts& server) {
  const ServerOptions& options = server.options;
  ResponseCache* const cache = server.limits.features.Own(std::make_unique<ResponseCache>(
      options.response_cache, ResponseCache::Fixed{
                                  .redis = options.response_cache_backend == ResponseCacheBackend::kRedis,
                                  .fallback_capacity = options.response_cache_fallback_capacity,
                                  .fallback_ttl_ms = options.response_cache_fallback_ttl_ms,
                                  .fallback = options.response_cache_fallback_to_memory}));
  StatusOr<std::string> key = ReadIntegrityKey(options);
  if (!key.ok()) return key.status();
  cache->SealWith(*std::move(key));
  auto* const redis = server.services.Find<RedisPool>();
  if (redis != nullptr && CachesInRedis(options)) AddRedis(server, *redis, cache);
  server.services.AddMetrics([&services = server.services, &features = server.limits.features, cache,
                              &clock = server.threads.back()->clock](MetricsPage* page) {
    if (!cache->enabled()) return;
    WriteResponseCache(
        *cache, clock.NowNanos(), features.Find<RedisResponses>(), services.Find<ResponseCacheService>(),
        page);
  });
  return absl::OkStatus();
}

void Follow(const ServerLimits& limits, const Settings& settings) {
  limits.features.Find<ResponseCache>()->Follow(settings.response_cache);
}

constexpr EndpointTable kSubjects[] = {&CacheEndpoints};

}  // namespace

bool CachesInRedis(const ServerOptions& options) {
  return options.response_cache_backend == ResponseCacheBackend::kRedis &&
         (options.response_cache.enabled || !options.redis_url.empty());
}

extern constexpr Feature kResponseCacheFeature = {
    .name = "response_cache", .add = &Add, .follow = &Follow, .endpoints = kSubjects};

}  // namespace vllm_router
