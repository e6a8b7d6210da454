#include "proxy/response_cache/redis_response_store.h"

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "base/time_units.h"
#include "redis/redis_command.h"

namespace vllm_router {

std::string RedisResponses::KeyOf(const CacheKey& key) const { return key_prefix_ + DigestHex(key); }

bool RedisResponses::IsResponse(std::string_view key) const {
  if (!key.starts_with(key_prefix_)) return false;
  key.remove_prefix(key_prefix_.size());
  return key.size() == 2 * sizeof(CacheKey) &&
         std::ranges::all_of(key, [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

RedisResponses::Stats RedisResponses::stats() const {
  Stats stats;
  for (size_t i = 0; i < kOperations; ++i) {
    for (size_t bucket = 0; bucket < latency_[i].counts.size(); ++bucket)
      stats.latency[i].counts[bucket] = latency_[i].counts[bucket].load(std::memory_order_relaxed);
    stats.latency[i].nanos = latency_[i].nanos.load(std::memory_order_relaxed);
  }
  stats.late = late_.load(std::memory_order_relaxed);
  stats.too_large = too_large_.load(std::memory_order_relaxed);
  stats.dropped = dropped_.load(std::memory_order_relaxed);
  return stats;
}

void RedisResponses::Count(Operation operation, int64_t nanos) {
  Timed& timed = latency_[static_cast<size_t>(operation)];
  const auto* const bucket = std::ranges::lower_bound(RedisPool::kLatencyBounds, nanos);
  timed.counts[static_cast<size_t>(bucket - RedisPool::kLatencyBounds.begin())].fetch_add(
      1, std::memory_order_relaxed);
  timed.nanos.fetch_add(static_cast<uint64_t>(std::max<int64_t>(0, nanos)), std::memory_order_relaxed);
}

RedisResponseStore::RedisResponseStore(RedisLink& link, RedisResponses& shared, const Limits& limits)
    : link_(link), shared_(shared), limits_(limits) {}

RedisResponseStore::~RedisResponseStore() = default;

Task<RedisResponseStore::Found> RedisResponseStore::Find(CancelScope* scope, CacheKey key) {
  Found found{Outcome::kDown, nullptr};
  if (!usable()) co_return found;
  const auto call = std::make_shared<Call>();
  call->waiting = scope;
  RedisDone done = [this, call, key, begun = Now()](const RedisReplies& replies) {
    if (replies.ok()) shared_.Count(RedisResponses::Operation::kGet, Now() - begun);
    call->replied = true;
    call->found = Read(key, replies, call->waiting != nullptr);
    if (call->waiting != nullptr) call->waiting->EndPause();
  };
  std::string command;
  AppendRedisCommand({"GET", shared_.KeyOf(key)}, &command);
  const bool sent = link_.Send(command, 1, std::move(done));
  if (sent) co_await scope->Pause(link_.loop(), limits_.lookup_budget_ms * kNanosPerMs);
  call->waiting = nullptr;
  if (call->replied) {
    found = std::move(call->found);
    co_return found;
  }
  if (!scope->cancelled()) shared_.CountLate();
  found.outcome = Outcome::kLate;
  co_return found;
}

RedisResponseStore::Found RedisResponseStore::Read(
    const CacheKey& key, const RedisReplies& replies, bool is_wanted) {
  if (!replies.ok() && absl::IsResourceExhausted(replies.status())) {
    shared_.CountTooLarge();
    Delete(key);
    return {Outcome::kMiss, nullptr};
  }
  if (!usable()) return {Outcome::kDown, nullptr};
  if (!replies.ok()) return {Outcome::kMiss, nullptr};
  const RedisValue value = replies->front().value();
  if (!is_wanted || value.kind() != RedisValue::Kind::kText) return {Outcome::kMiss, nullptr};
  return {Outcome::kHit, std::make_shared<const std::string>(value.text())};
}

void RedisResponseStore::Set(const CacheKey& key, Blob blob, int64_t ttl_ms) {
  if (ttl_ms <= 0) return;
  if (!usable() || blob->size() > limits_.max_waiting_bytes - waiting_bytes_) return shared_.CountDropped(1);
  waiting_bytes_ += blob->size();
  writes_.push_back({key, std::move(blob), (ttl_ms + 999) / 1'000});
  SendWrites();
}

void RedisResponseStore::Delete(const CacheKey& key) {
  if (!usable() || writes_.size() >= kMaxWrites) return;
  writes_.push_back({key, nullptr, 0});
  SendWrites();
}

void RedisResponseStore::SendWrites() {
  if (!usable()) DropWrites();
  while (!writes_.empty()) {
    if (!link_.may_send()) {
      if (!timer_.armed()) timer_.Arm(link_.loop().timers(), kRetryMs, &RedisResponseStore::OnTimer, this);
      return;
    }
    const Write write = std::move(writes_.front());
    writes_.pop_front();
    Send(write);
  }
}

void RedisResponseStore::Send(const Write& write) {
  const bool is_set = write.blob != nullptr;
  RedisDone done = [this, is_set, bytes = write.bytes(), begun = Now()](const RedisReplies& replies) {
    const auto operation = is_set ? RedisResponses::Operation::kSet : RedisResponses::Operation::kDelete;
    if (replies.ok()) shared_.Count(operation, Now() - begun);
    if (!replies.ok() && is_set) shared_.CountDropped(1);
    waiting_bytes_ -= bytes;
    SendWrites();
  };
  std::string command;
  const std::string key = shared_.KeyOf(write.key);
  if (is_set) {
    AppendRedisCommand({"SET", key, *write.blob, "EX", std::to_string(write.seconds)}, &command);
  } else {
    AppendRedisCommand({"DEL", key}, &command);
  }
  link_.Send(command, 1, std::move(done));
}

void RedisResponseStore::DropWrites() {
  for (const Write& write : writes_) {
    if (write.blob != nullptr) shared_.CountDropped(1);
    waiting_bytes_ -= write.bytes();
  }
  writes_.clear();
}

void RedisResponseStore::OnTimer(void* store) { static_cast<RedisResponseStore*>(store)->SendWrites(); }

}  // namespace vllm_router
