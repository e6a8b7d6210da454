// RedisLink: a thread's connections to Redis. Commands go to the connection that waits for the fewest
// replies; no caller waits for a connection.
//
//   std::string commands;
//   AppendRedisCommand({"GET", key}, &commands);
//   if (!link.Send(commands, 1, [](RedisReplies replies) { … })) …;     // not now: go on without Redis
//
// Twice a second connections that are missing are opened, one attempt at a time each, while Redis may be
// used. The link that probes, one of the pool's, opens one for each probe that is due; a probe that works is
// kept. Connections of before an outage are closed. When the pool says so, connections are opened anew, as soon as they have the replies that they wait for.
// A connection never changes its thread. One thread, but for running().
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "net/buffer.h"
#include "net/event_loop.h"
#include "net/resolver.h"
#include "net/task.h"
#include "net/timer_wheel.h"
#include "redis/redis_connection.h"
#include "redis/redis_pool.h"

namespace vllm_router {

class RedisLink {
 public:
  static constexpr int64_t kLookMs = 500;
  static constexpr int64_t kRetryNanos = 1'000'000'000;  // between attempts to open the same connection

  enum class Role : uint8_t { kUses, kProbes };

  // All outlive it. REQUIRES: `connections` > 0.
  RedisLink(
      RedisPool& pool, EventLoop& loop, BufferPool& buffers, Resolver& resolver, size_t connections,
      Role role);
  ~RedisLink();  // REQUIRES: running() is 0, or its loop has stopped
  RedisLink(const RedisLink&) = delete;
  RedisLink& operator=(const RedisLink&) = delete;

  RedisPool& pool() { return pool_; }
  EventLoop& loop() { return loop_; }

  void Start();
  // Closes the connections; what waits for replies fails with Cancelled.
  void Stop();
  // Any thread: connections whose end must be waited for after Stop().
  uint32_t running() const { return running_.load(); }

  // Some connection takes commands.
  bool may_send() const { return Best() != nullptr; }
  // False: `done` is not called, since Redis is down, no connection is open, or too much waits already.
  bool Send(
      std::string_view commands, size_t replies, RedisDone done,
      RedisErrorsTo errors_to = RedisErrorsTo::kPool);
  // The same, to be waited for. Null where Send() is false.
  Task<std::optional<RedisReplies>> Ask(
      std::string_view commands, size_t replies, RedisErrorsTo errors_to = RedisErrorsTo::kPool);

 private:
  struct Slot {
    std::shared_ptr<RedisConnection> connection;  // null: none, nor an attempt
    int64_t next_attempt_ns = INT64_MIN;
    uint64_t reopenings = 0;  // of the pool, when the connection was begun
    uint64_t outages = 0;     // as well
  };

  RedisConnection* Best() const;  // null: none takes commands
  void Look();
  // Closes the connections of before an outage: their peer may have vanished without a word.
  void GiveUp();
  // Has the name resolved, and then retires the connections of before.
  void Reopen();
  Task<void> Refresh();
  void Begin(Slot* slot, bool probe);
  Task<void> Run(Slot* slot, bool probe);
  static void OnTimer(void* link);

  RedisPool& pool_;
  EventLoop& loop_;
  BufferPool& buffers_;
  Resolver& resolver_;
  const Role role_;
  std::vector<Slot> slots_;  // never resized
  uint64_t refreshed_ = 0;   // of the pool's reopenings, the last for which the name is resolved
  bool stopped_ = false;
  std::atomic<uint32_t> running_{0};
  Timer timer_;
};

}  // namespace vllm_router
