#include "redis/redis_pool.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "base/text.h"
#include "base/time_units.h"
#include "base/whole_file.h"

namespace vllm_router {

using State = RedisHealth::State;

RedisPool::RedisPool(RedisOptions options, std::shared_ptr<const TlsContext> tls, const Clock& clock)
    : options_(std::move(options)),
      tls_(std::move(tls)),
      clock_(clock),
      health_(options_.failures, options_.longest_probe_delay_ms * kNanosPerMs) {
  ROUTER_CHECK((tls_ != nullptr) == options_.url.tls, "a URL with TLS is never used without it");
}

StatusOr<std::string> ReadRedisPassword(const std::string& path) {
  StatusOr<std::string> password = ReadSecretFile(path);
  if (!password.ok()) {
    return absl::FailedPreconditionError(Concat(": ", std::string(password.status().message())));
  }
  if (!password->empty()) return password;
  return absl::FailedPreconditionError(
      Concat(" is ", Quoted(path), ", which is empty; write the password on its first line"));
}

size_t RedisPool::ConnectionsOf(size_t threads) const {
  return std::max<size_t>(1, options_.connections / std::max<size_t>(1, threads));
}

RedisPool::Stats RedisPool::stats() const {
  Stats stats;
  const int64_t active = std::max<int64_t>(0, active_.load(std::memory_order_relaxed));
  stats.active = static_cast<uint64_t>(active);
  stats.idle = static_cast<uint64_t>(std::max<int64_t>(0, open_.load(std::memory_order_relaxed) - active));
  for (size_t i = 0; i < errors_.size(); ++i) stats.errors[i] = errors_[i].load(std::memory_order_relaxed);
  for (size_t i = 0; i < latency_.size(); ++i) stats.latency[i] = latency_[i].load(std::memory_order_relaxed);
  stats.latency_nanos = latency_nanos_.load(std::memory_order_relaxed);
  stats.dropped = dropped_.load(std::memory_order_relaxed);
  stats.fallback = fallback_.load(std::memory_order_relaxed);
  return stats;
}

std::string RedisPool::trouble() const {
  const MutexLock lock(mutex_);
  return trouble_;
}

void RedisPool::Opened() {
  const MutexLock lock(mutex_);
  const State before = health_.state();
  health_.Opened(clock_.NowNanos());
  Publish(before, {});
}

void RedisPool::OpenFailed(const Status& why) {
  if (absl::IsCancelled(why)) return;
  failing_.store(true, std::memory_order_relaxed);
  CountError(TypeOf(why));
  const MutexLock lock(mutex_);
  const State before = health_.state();
  health_.Failed(clock_.NowNanos());
  Publish(before, std::string(why.message()));
}

void RedisPool::Replied(int64_t nanos, std::string_view error) {
  const auto* const bucket = std::ranges::lower_bound(kLatencyBounds, nanos);
  latency_[static_cast<size_t>(bucket - kLatencyBounds.begin())].fetch_add(1, std::memory_order_relaxed);
  latency_nanos_.fetch_add(static_cast<uint64_t>(std::max<int64_t>(0, nanos)), std::memory_order_relaxed);
  if (error.empty()) return Worked();
  Rejected(error);
}

void RedisPool::Worked() {
  if (!failing_.load(std::memory_order_relaxed)) return;
  const MutexLock lock(mutex_);
  health_.Worked();
  failing_.store(false, std::memory_order_relaxed);
}

void RedisPool::Failed(const Status& why) {
  if (absl::IsAborted(why)) return;
  if (absl::IsResourceExhausted(why)) return CountError(RedisErrorType::kOther);
  OpenFailed(why);
}

void RedisPool::Rejected(std::string_view error) {
  const RedisError read = ReadRedisError(error);
  if (read.effect == RedisError::Effect::kDown) {
    return Failed(
        read.type == RedisErrorType::kConnection ? absl::UnavailableError(read.message)
                                                 : absl::FailedPreconditionError(read.message));
  }
  Worked();
  CountError(read.type);
  const MutexLock lock(mutex_);
  const int64_t now = clock_.NowNanos();
  // After a failover the name may mean the new primary: worth a try now and then, at the price of a connection.
  if (read.effect == RedisError::Effect::kReadOnly && now - reopened_ns_ >= kReopenNanos) {
    reopened_ns_ = now;
    reopenings_.fetch_add(1, std::memory_order_relaxed);
  }
  if (!options_.logs || now - rejected_logged_ns_ < kRejectedQuietNanos) return;
  rejected_logged_ns_ = now;
  Log(LogLevel::kWarning, Concat(options_.url.Shown(), " ", read.message));
}

bool RedisPool::BeginProbe() {
  const MutexLock lock(mutex_);
  return health_.BeginProbe(clock_.NowNanos());
}

void RedisPool::EndProbe(const Status& result) {
  if (!result.ok() && !absl::IsCancelled(result)) CountError(TypeOf(result));
  const MutexLock lock(mutex_);
  const State before = health_.state();
  const int64_t now = clock_.NowNanos();
  health_.EndProbe(result.ok(), now);
  Publish(before, std::string(result.message()));
  if (result.ok() || absl::IsCancelled(result) || !options_.logs || now - logged_ns_ < kQuietNanos) return;
  logged_ns_ = now;
  Log(LogLevel::kWarning, Concat(options_.url.Shown(), " is still down: it ", std::string(result.message())));
}

void RedisPool::Publish(State before, const std::string& why) {
  const State after = health_.state();
  trouble_ = after == State::kUp ? std::string() : why.empty() ? trouble_ : why;
  if (after == State::kDown && before != State::kProbing && before != after)
    outages_.fetch_add(1, std::memory_order_release);
  up_.store(health_.may_be_used(), std::memory_order_release);
  fallback_.store(after == State::kDown || after == State::kProbing, std::memory_order_relaxed);
  if (after == before || !options_.logs) return;
  if (after == State::kUp) {
    if (!repeated_) Log(LogLevel::kInfo, Concat(options_.url.Shown(), " is used"));
  } else if (before != State::kProbing) {
    const int64_t now = clock_.NowNanos();
    repeated_ = now - down_ns_ < kRepeatedNanos && why == down_why_;
    down_ns_ = now;
    down_why_ = why;
    if (repeated_) return;
    logged_ns_ = now;
    Log(LogLevel::kWarning,
        Concat(
            options_.url.Shown(), " is down: it ", why, "; ", options_.without, ", and it is probed in ",
            (health_.next_probe_ns() - now + kNanosPerSecond - 1) / kNanosPerSecond, " s"));
  }
}

}  // namespace vllm_router
