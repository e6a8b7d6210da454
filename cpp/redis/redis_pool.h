// RedisPool: what all connections to one Redis share: how to reach it, whether it may be used, and counts.
//
//   RedisPool   (a process)       options, health, counts
//     RedisLink   (a thread)        some of the pool's connections
//       RedisConnection               pipelined commands on a socket
//
// One line is logged when Redis goes up or down, one for what is wrong while it is down every 5 minutes, and one for
// commands that it rejects while it is up every minute; one in all
// for a Redis that replies to probes and to nothing else, and none by a pool beside another of the same Redis.
// Thread-safe; up() is a load.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/status.h"
#include "base/time_units.h"
#include "net/tls.h"
#include "redis/redis_error.h"
#include "redis/redis_health.h"
#include "redis/redis_url.h"

namespace vllm_router {

struct RedisOptions {
  RedisUrl url;
  int64_t connect_timeout_ms = 3'000;  // to resolve, connect and log in
  int64_t command_timeout_ms = 1'000;  // without a byte of an awaited reply; then its connection is closed
  uint32_t connections = 8;            // over all threads that serve clients; each has one at least
  uint32_t failures = 2;               // failed commands in a row that mean that Redis is down
  size_t max_reply_bytes = 1 << 20;
  std::string probe_key = {};  // written and read before Redis counts as up again; empty: none
  // Read as each connection is opened, so that a password may change; empty: the URL's password.
  std::string password_file = {};
  int64_t longest_probe_delay_ms = RedisHealth::kLongestDelayNanos / kNanosPerMs;
  std::string_view without = "this router's memory is used";  // while Redis is down, for the log
  bool logs = true;
};

// The first line of the file. FailedPrecondition with a message that is to follow the option's name.
StatusOr<std::string> ReadRedisPassword(const std::string& path);

class RedisPool {
 public:
  // Upper bounds of the times of commands, in nanoseconds; the last bucket has none.
  static constexpr std::array<int64_t, 12> kLatencyBounds = {
      50'000,    100'000,    250'000,    500'000,     1'000'000,   2'500'000,
      5'000'000, 10'000'000, 25'000'000, 100'000'000, 250'000'000, 1'000'000'000};

  struct Stats {
    uint64_t active = 0;  // connections that wait for a reply
    uint64_t idle = 0;    // other open ones
    std::array<uint64_t, kRedisErrorTypes> errors{};
    std::array<uint64_t, kLatencyBounds.size() + 1> latency{};
    uint64_t latency_nanos = 0;
    uint64_t dropped = 0;  // writes that were not sent
    bool fallback = false;
  };

  // REQUIRES: `tls` is null unless the URL has TLS. `clock` outlives this.
  RedisPool(RedisOptions options, std::shared_ptr<const TlsContext> tls, const Clock& clock);
  RedisPool(const RedisPool&) = delete;
  RedisPool& operator=(const RedisPool&) = delete;

  const RedisOptions& options() const { return options_; }
  const std::shared_ptr<const TlsContext>& tls() const { return tls_; }
  const Clock& clock() const { return clock_; }
  // Of a thread, if so many serve clients.
  size_t ConnectionsOf(size_t threads) const;

  // It may be used; or that is not known yet.
  bool up() const { return up_.load(std::memory_order_acquire); }
  // How often it went down. To be read after up(): the same as before means that it was up all the while.
  uint64_t outages() const { return outages_.load(std::memory_order_acquire); }
  // Grows when connections are to be opened anew, by the addresses that the name has now.
  uint64_t reopenings() const { return reopenings_.load(std::memory_order_relaxed); }
  Stats stats() const;
  std::string trouble() const;  // the last failure; empty once Redis is used

  // What links and connections report.
  void Opened();  // a connection
  void OpenFailed(const Status& why);
  // A command had replies; `error`: the first among them, or empty.
  void Replied(int64_t nanos, std::string_view error);
  void Failed(const Status& why);  // a command
  bool BeginProbe();               // true: one is due, and begins
  void EndProbe(const Status& result);
  void CountOpen(int64_t change) { open_.fetch_add(change, std::memory_order_relaxed); }
  void CountActive(int64_t change) { active_.fetch_add(change, std::memory_order_relaxed); }
  void CountDropped(uint64_t writes) { dropped_.fetch_add(writes, std::memory_order_relaxed); }

 private:
  static constexpr int64_t kQuietNanos = 300'000'000'000;  // between lines about a Redis that stays down
  static constexpr int64_t kRejectedQuietNanos =
      60'000'000'000;                                      // between lines about commands that it rejects
  static constexpr int64_t kReopenNanos = 60'000'000'000;  // between two reopenings
  static constexpr int64_t kRepeatedNanos =
      10'000'000'000;  // within which it goes down again for the same reason

  void Worked();
  void Rejected(std::string_view error);
  void CountError(RedisErrorType type) {
    errors_[static_cast<size_t>(type)].fetch_add(1, std::memory_order_relaxed);
  }
  // After a change of health_: logs it, if it is one.
  void Publish(RedisHealth::State before, const std::string& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const RedisOptions options_;
  const std::shared_ptr<const TlsContext> tls_;
  const Clock& clock_;
  mutable Mutex mutex_;  // before the log's
  RedisHealth health_ ABSL_GUARDED_BY(mutex_);
  int64_t logged_ns_ ABSL_GUARDED_BY(mutex_) = INT64_MIN / 2;
  int64_t rejected_logged_ns_ ABSL_GUARDED_BY(mutex_) = INT64_MIN / 2;
  int64_t reopened_ns_ ABSL_GUARDED_BY(mutex_) = INT64_MIN / 2;
  std::string trouble_ ABSL_GUARDED_BY(mutex_);
  int64_t down_ns_ ABSL_GUARDED_BY(mutex_) = INT64_MIN / 2;  // when it went down last,
  std::string down_why_ ABSL_GUARDED_BY(mutex_);             // and why,
  bool repeated_ ABSL_GUARDED_BY(mutex_) = false;            // as it had shortly before

  std::atomic<bool> up_{true};
  std::atomic<bool> fallback_{false};
  std::atomic<uint64_t> outages_{0};
  std::atomic<uint64_t> reopenings_{0};
  std::atomic<bool> failing_{false};  // a command failed since the last that worked
  std::atomic<int64_t> open_{0};
  std::atomic<int64_t> active_{0};
  std::atomic<uint64_t> dropped_{0};
  std::array<std::atomic<uint64_t>, kRedisErrorTypes> errors_{};
  std::array<std::atomic<uint64_t>, kLatencyBounds.size() + 1> latency_{};
  std::atomic<uint64_t> latency_nanos_{0};
};

}  // namespace vllm_router
