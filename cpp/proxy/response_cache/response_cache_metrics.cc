#include "proxy/response_cache/response_cache_metrics.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <string_view>
#include <tuple>

#include "proxy/response_cache/redis_response_store.h"
#include "proxy/response_cache/response_cache.h"
#include "proxy/response_cache/response_cache_service.h"
#include "proxy/telemetry/metrics_page.h"
#include "redis/redis_pool.h"

namespace vllm_router {

void WriteRedis(const RedisPool& redis, const RedisResponses* responses, MetricsPage* page) {
  const RedisPool::Stats stats = redis.stats();
  page->Gauge(
      "continuum_cache_fallback_active",
      "1 while Redis is down and this router's own index decides or, with cached responses there, requests "
      "use this router's memory instead; else 0.");
  const bool refused = responses != nullptr && responses->refused();
  page->Add(stats.fallback || refused ? 1 : 0);
  page->Gauge("continuum_cache_redis_connections_active", "Connections to Redis that wait for a reply.");
  page->Add(stats.active);
  page->Gauge("continuum_cache_redis_connections_idle", "Open connections to Redis that wait for no reply.");
  page->Add(stats.idle);
  page->Histogram(
      "continuum_cache_redis_latency_seconds",
      "Time from a command to Redis, or several sent together, until the last reply: get, set and delete of "
      "the response cache; without it those of the prefix index, and no label.");
  if (responses == nullptr) {
    page->AddHistogram(RedisPool::kLatencyBounds, stats.latency, stats.latency_nanos);
  } else {
    const RedisResponses::Stats operations = responses->stats();
    for (size_t i = 0; i < RedisResponses::kOperations; ++i) {
      const RedisResponses::Latency& latency = operations.latency[i];
      page->AddHistogram(
          RedisPool::kLatencyBounds, latency.counts, latency.nanos,
          {{"operation", RedisResponses::kNames[i]}});
    }
  }
  page->Counter(
      "continuum_cache_redis_errors_total",
      "Failed commands and connections to Redis: connection, timeout (--redis-command-timeout-ms, "
      "--redis-connect-timeout-ms) or other (an error reply, or none of its form).");
  for (size_t i = 0; i < stats.errors.size(); ++i) {
    page->Add(stats.errors[i], {{"type", NameOf(static_cast<RedisErrorType>(i))}});
  }
  page->Counter(
      "redis_dropped_writes_total",
      "Writes of the prefix index that Redis did not get, since it was down or slow.");
  page->Add(stats.dropped);
}

void WriteResponseCache(
    const ResponseCache& cache, int64_t now_ns, const RedisResponses* responses,
    ResponseCacheService* service, MetricsPage* page) {
  const ResponseCache::Counts& counts = cache.counts;
  const MemoryStore::Stats memory = cache.memory.stats();
  const FlightTable::Stats flights = cache.flights.stats();
  const auto of = [](const std::atomic<uint64_t>& count) { return count.load(std::memory_order_relaxed); };
  constexpr std::array<std::string_view, ResponseCache::kResults> kResults = {"hit", "miss", "skip"};

  page->Gauge("continuum_cache_backend_type", "1 for where responses are kept: memory or redis.");
  page->Add(1, {{"backend", cache.fixed().redis ? "redis" : "memory"}});
  page->Counter(
      "continuum_response_cache_requests_total",
      "Requests for inference by what the response cache did: hit, miss, or skip for those that it may not "
      "serve.");
  for (size_t i = 0; i < kResults.size(); ++i) page->Add(of(counts.results[i]), {{"result", kResults[i]}});
  page->Gauge(
      "continuum_response_cache_entries",
      "Responses that are kept: in memory, expired ones until they are swept, or in Redis, counted once a "
      "minute.");
  page->Add(
      responses != nullptr ? static_cast<double>(service->entries().value_or(0))
                           : static_cast<double>(memory.entries));
  page->Gauge("continuum_response_cache_size_bytes", "Memory that stored responses take.");
  page->Add(memory.bytes);
  page->Counter("continuum_response_cache_evictions_total", "Responses that left memory for want of room.");
  page->Add(memory.evicted);
  page->Gauge(
      "continuum_response_cache_hit_rate", "Hits among the lookups of the last 300 seconds, from 0 to 1.");
  page->Add(cache.hit_rate.Of(now_ns));

  page->Counter("response_cache_bypass_total", "Requests that the response cache may not serve, by reason.");
  for (size_t i = 1; i < kCacheBypasses; ++i) {
    page->Add(of(counts.bypasses[i]), {{"reason", CacheBypassName(static_cast<CacheBypass>(i))}});
  }
  page->Counter(
      "response_cache_not_stored_total",
      "Responses to requests that may be cached that were not, by reason.");
  for (size_t i = 1; i < kNotStoredReasons; ++i) {
    page->Add(of(counts.not_stored[i]), {{"reason", NotStoredName(static_cast<NotStored>(i))}});
  }
  page->Counter(
      "response_cache_coalesced_total",
      "Requests that got the response to an equal one under way; counted as hits too.");
  page->Add(flights.shared);
  page->Counter(
      "response_cache_promotions_total", "Requests that took the place of an equal one that had failed.");
  page->Add(flights.promoted);
  page->Gauge("response_cache_followers", "Requests that wait for the response to an equal one.");
  page->Add(flights.followers);
  page->Counter(
      "response_cache_evicted_bytes_total", "Bytes of responses that left memory for want of room.");
  page->Add(memory.evicted_bytes);
  page->Counter("response_cache_expired_total", "Responses in memory whose time was over.");
  page->Add(memory.expired);
  page->Counter(
      "response_cache_corrupt_total", "Stored responses that were damaged or not a router's, and not used.");
  page->Add(of(counts.corrupt));
  if (responses != nullptr) {
    const RedisResponses::Stats shared = responses->stats();
    page->Counter(
        "response_cache_late_total",
        "Look-ups in Redis beyond --response-cache-lookup-budget-ms, whose requests went to a worker.");
    page->Add(shared.late);
    page->Counter(
        "response_cache_store_dropped_total", "Responses that Redis did not get, since it was slow or down.");
    page->Add(shared.dropped);
  }
  page->Gauge("response_cache_capture_bytes", "Memory for responses that are on their way to the cache.");
  page->Add(cache.captured_bytes());
  page->Gauge(
      "response_cache_generation", "A number that changes whenever all stored responses are invalidated.");
  page->Add(cache.generations.Of(""));
  page->Counter(
      "response_cache_saved_tokens_total",
      "Tokens of stored responses that were sent, where they report them: prompt or completion.");
  page->Add(of(counts.saved_prompt_tokens), {{"kind", "prompt"}});
  page->Add(of(counts.saved_completion_tokens), {{"kind", "completion"}});
  page->Histogram("response_cache_lookup_seconds", "Time to find a stored response (hit), or none (miss).");
  for (const ResponseCache::Result result : {ResponseCache::Result::kHit, ResponseCache::Result::kMiss}) {
    const auto at = static_cast<size_t>(result);
    std::array<uint64_t, std::tuple_size_v<ResponseCache::Lookups>> buckets;
    std::ranges::transform(counts.lookups[at], buckets.begin(), of);
    page->AddHistogram(
        ResponseCache::kLookupBounds, buckets, of(counts.lookup_nanos[at]), {{"result", kResults[at]}});
  }
}

}  // namespace vllm_router
