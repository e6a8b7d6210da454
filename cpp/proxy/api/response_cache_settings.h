// ResponseCacheSettings: what an operator sets of the response cache that may change while the server runs. Part of
// Settings, so a request keeps those that it began with; the memory's limits follow a change at once. Names, defaults
// and checks are those of python/vllm_router/settings/table.py, where each name begins with response_cache_. Where
// responses are kept, memory or Redis, is in FixedOptions. Immutable once published, so any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "response_cache/cacheability.h"

namespace vllm_router {

// Which equal requests wait for the response to the first of them.
enum class CacheCoalesce : uint8_t { kOff, kAnswers };  // answers: those that do not ask for a stream

struct ResponseCacheSettings {
  bool enabled = false;  // response_cache
  CacheRules rules;  // routes, temperature_absent, key_scheme, key_ignore, tenant_source, tenant_header, …

  int64_t ttl_ms = 300'000;
  uint64_t capacity = 1'000;                     // entries in memory
  uint64_t max_memory_bytes = 256ull << 20;      // of entries in memory
  uint64_t max_response_bytes = 1ull << 20;      // of a response that is no stream
  uint64_t max_stream_bytes = 10ull << 20;       // 0: requests for streams bypass the cache
  uint64_t capture_memory_bytes = 256ull << 20;  // of responses that are on their way to the cache
  std::vector<std::string> store_headers;        // of a response, kept besides its Content-Type

  CacheCoalesce coalesce = CacheCoalesce::kAnswers;
  int64_t coalesce_wait_ms = 30'000;
  uint32_t coalesce_max_followers = 256;  // of one request
  uint32_t coalesce_max_promotions =
      2;  // followers that take the place of a failed request, one after the other

  uint32_t replay_events_per_second = 0;  // of a stream; 0: as fast as its client reads
  // Paths, or with * at the end beginnings of paths, of requests after which responses are not used any more.
  std::vector<std::string> invalidate_on = {
      "/v1/load_lora_adapter",
      "/v1/unload_lora_adapter",
      "/load_lora_adapter",
      "/unload_lora_adapter",
      "/update_weights*",
      "/start_weight_update",
      "/finish_weight_update",
      "/start_draft_weight_update",
      "/resume_memory_occupation",
      "/wake_up",
      "/collective_rpc"};
};

}  // namespace vllm_router
