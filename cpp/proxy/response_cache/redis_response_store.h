// RedisResponseStore: a thread's way to the cached responses in a Redis that routers share. A response is a text, which
// the caller encodes and checks (response_cache/stored_response.h), under its key in hex:
//
//   cr:resp:695d29ff…      "VRC1…"      expires by itself
//
//   switch (const Found found = co_await store.Find(&scope, key); found.kind) …
//   store.Set(key, blob, ttl_ms);                // not waited for
//
// A request waits for lookup_budget_ms at most; a reply that comes later is not used. Without a Redis that may be used
// everything ends at once. What SET sends waits in this thread until Redis has it, max_waiting_bytes at most; beyond
// that the newest is dropped. A key that has something other than a text is a miss and is not deleted, since it is
// not ours, but a response that is kept afterwards replaces it; one whose text is too large for any response is deleted.
//
// RedisResponses: what the stores of all threads share, and the control thread's ResponseCacheService, which lets them
// use Redis once the generations have been read from it: before that, a key could be one of before an invalidation.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>

#include "net/task.h"
#include "net/timer_wheel.h"
#include "proxy/client/http_client.h"
#include "redis/redis_link.h"
#include "redis/redis_pool.h"
#include "response_cache/request_digest.h"

namespace vllm_router {

class RedisResponses {
 public:
  enum class Operation : uint8_t { kGet, kSet, kDelete };
  static constexpr size_t kOperations = 3;
  static constexpr std::array<std::string_view, kOperations> kNames = {"get", "set", "delete"};

  // Upper bounds: RedisPool::kLatencyBounds.
  struct Latency {
    std::array<uint64_t, RedisPool::kLatencyBounds.size() + 1> counts{};
    uint64_t nanos = 0;
  };
  struct Stats {
    std::array<Latency, kOperations> latency;  // of commands that had a reply
    uint64_t late = 0;                         // look-ups that had none within their budget
    uint64_t too_large = 0;                    // texts that cannot be a response
    uint64_t dropped = 0;  // responses that Redis did not get: too many waited, or it went down
  };

  // The pool outlives it. REQUIRES: `key_prefix` has none of the characters of patterns.
  RedisResponses(const RedisPool& pool, std::string key_prefix)
      : pool_(pool), key_prefix_(std::move(key_prefix)) {}
  RedisResponses(const RedisResponses&) = delete;
  RedisResponses& operator=(const RedisResponses&) = delete;

  const std::string& key_prefix() const { return key_prefix_; }
  std::string KeyOf(const CacheKey& key) const;
  std::string GenerationsKey() const { return key_prefix_ + "~gen"; }
  std::string ProbeKey() const { return ProbeKey(key_prefix_); }
  static std::string ProbeKey(std::string_view key_prefix) { return std::string(key_prefix) + "~probe"; }
  // The key is one of a response, and nothing else that begins alike.
  bool IsResponse(std::string_view key) const;

  // Redis is up, and the generations were read since it came up. Two loads; any thread.
  bool usable() const {
    return pool_.up() && usable_since_.load(std::memory_order_acquire) == pool_.outages() + 1;
  }
  // The generations of now are known, unless Redis went down after so many `outages` of before.
  void SetUsable(uint64_t outages) {
    usable_since_.store(outages + 1, std::memory_order_release);
    refused_.store(false, std::memory_order_relaxed);
  }
  void SetUnusable() {
    usable_since_.store(0, std::memory_order_release);
    refused_.store(true, std::memory_order_relaxed);
  }
  // Redis is up, and cannot be used, since the generations cannot be read.
  bool refused() const { return refused_.load(std::memory_order_relaxed); }

  Stats stats() const;
  void Count(Operation operation, int64_t nanos);
  void CountLate() { late_.fetch_add(1, std::memory_order_relaxed); }
  void CountTooLarge() { too_large_.fetch_add(1, std::memory_order_relaxed); }
  void CountDropped(uint64_t responses) { dropped_.fetch_add(responses, std::memory_order_relaxed); }

 private:
  struct Timed {
    std::array<std::atomic<uint64_t>, RedisPool::kLatencyBounds.size() + 1> counts{};
    std::atomic<uint64_t> nanos{0};
  };

  const RedisPool& pool_;
  const std::string key_prefix_;
  std::atomic<uint64_t> usable_since_{0};  // the pool's outages + 1; 0: it is not
  std::atomic<bool> refused_{false};
  std::array<Timed, kOperations> latency_{};
  std::atomic<uint64_t> late_{0};
  std::atomic<uint64_t> too_large_{0};
  std::atomic<uint64_t> dropped_{0};
};

// One thread.
class RedisResponseStore {
 public:
  using Blob = std::shared_ptr<const std::string>;

  static constexpr size_t kMaxWrites = 4'096;  // keys that wait to be deleted, and responses
  static constexpr int64_t kRetryMs = 100;     // while no connection takes a command

  enum class Outcome : uint8_t {
    kHit,
    kMiss,
    kLate,  // no reply within the budget, or no connection that takes commands; or the scope was cancelled
    kDown,  // Redis may not be used
  };
  struct Found {
    Outcome outcome;
    Blob blob;  // kHit
  };

  struct Limits {
    int64_t lookup_budget_ms = 100;
    size_t max_waiting_bytes = 16 << 20;
  };

  // Both outlive it.
  RedisResponseStore(RedisLink& link, RedisResponses& shared, const Limits& limits);
  ~RedisResponseStore();
  RedisResponseStore(const RedisResponseStore&) = delete;
  RedisResponseStore& operator=(const RedisResponseStore&) = delete;

  bool usable() const { return shared_.usable(); }

  // Ends soon after scope->Cancel().
  Task<Found> Find(CancelScope* scope, CacheKey key);
  // Neither is waited for; on one connection they arrive in order.
  void Set(const CacheKey& key, Blob blob, int64_t ttl_ms);
  void Delete(const CacheKey& key);

  size_t waiting_bytes() const { return waiting_bytes_; }

 private:
  struct Call {
    CancelScope* waiting;  // null: not any more
    bool replied = false;
    Found found{Outcome::kMiss, nullptr};
  };
  struct Write {
    CacheKey key;
    Blob blob;  // null: the key is deleted
    int64_t seconds;
    size_t bytes() const { return blob != nullptr ? blob->size() : 0; }
  };

  Found Read(const CacheKey& key, const RedisReplies& replies, bool is_wanted);
  void SendWrites();
  void Send(const Write& write);  // REQUIRES: the link may send
  void DropWrites();
  static void OnTimer(void* store);
  int64_t Now() const { return link_.pool().clock().NowNanos(); }

  RedisLink& link_;
  RedisResponses& shared_;
  const Limits limits_;
  std::deque<Write> writes_;  // that the link has not taken
  size_t waiting_bytes_ = 0;  // of these, and of those without a reply
  Timer timer_;
};

}  // namespace vllm_router
