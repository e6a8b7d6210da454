#include "proxy/events/redis_prefix_index.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <utility>

#include "base/text.h"
#include "base/time_units.h"
#include "redis/redis_command.h"

namespace vllm_router {
namespace {

constexpr std::string_view kStorage = "w:";
constexpr double kMaxTokens = UINT32_MAX;

std::string KeyOf(const Digest256& prefix, bool on_gpu) {
  return Concat(RedisPrefixIndex::kKeyPrefix, on_gpu ? "" : kStorage, DigestHex(prefix));
}

std::string LookUp(const Digest256& prefix) {
  static const std::string kLimit = std::to_string(RedisPrefixIndex::kMaxRead);
  std::string commands;
  for (const bool on_gpu : {true, false}) {
    AppendRedisCommand(
        {"ZREVRANGEBYSCORE", KeyOf(prefix, on_gpu), "+inf", "-inf", "WITHSCORES", "LIMIT", "0", kLimit},
        &commands);
  }
  return commands;
}

void AppendRemoval(const Digest256& prefix, std::string_view backend, std::string* commands) {
  for (const bool on_gpu : {true, false})
    AppendRedisCommand({"ZREM", KeyOf(prefix, on_gpu), backend}, commands);
}

// Another router's figure; a number that is none counts as nothing.
uint32_t TokensOf(std::string_view score) {
  double tokens = 0;
  const auto [end, error] = std::from_chars(score.data(), score.data() + score.size(), tokens);
  if (error != std::errc() || end != score.data() + score.size() || !(tokens > 0)) return 0;
  return static_cast<uint32_t>(std::min(tokens, kMaxTokens));
}

}  // namespace

Task<void> RedisPrefixIndex::Find(
    CancelScope* scope, Digest256 prefix, std::shared_ptr<const FleetView> fleet,
    std::vector<PrefixTable::Held>* holders) {
  holders->clear();
  if (Known(prefix) == nullptr) {
    const auto call = std::make_shared<Call>(Call{scope});
    RedisDone done = [this, call, prefix](RedisReplies replies) {
      if (replies.ok()) Keep(prefix, *replies);
      if (call->waiting != nullptr) call->waiting->EndPause();
    };
    if (!link_.Send(LookUp(prefix), 2, std::move(done))) co_return;
    co_await scope->Pause(link_.loop(), lookup_timeout_ms_ * kNanosPerMs);
    call->waiting = nullptr;
  }
  const Cached* const known = Known(prefix);
  if (known == nullptr) co_return;
  for (const Told& told : known->told) {
    const std::optional<WorkerId> worker = names_.Find(told.backend, *fleet);
    if (worker && holders->size() < PrefixTable::kMaxHolders)
      holders->push_back({*worker, told.tokens, told.on_gpu});
  }
}

const RedisPrefixIndex::Cached* RedisPrefixIndex::Known(const Digest256& prefix) const {
  const auto found = cached_.find(prefix);
  if (found == cached_.end() || found->second.until_ns <= link_.pool().clock().NowNanos()) return nullptr;
  return &found->second;
}

void RedisPrefixIndex::Keep(const Digest256& prefix, const std::vector<RedisReply>& replies) {
  const int64_t now = link_.pool().clock().NowNanos();
  while (!order_.empty() && (order_.front().first <= now || order_.size() >= kMaxCached)) {
    const auto oldest = cached_.find(order_.front().second);
    if (oldest != cached_.end() && oldest->second.until_ns == order_.front().first) cached_.erase(oldest);
    order_.pop_front();
  }
  Cached cached{.until_ns = now + kCacheNanos, .told = {}};
  for (size_t tier = 0; tier < replies.size(); ++tier) {
    const RedisValue pairs = replies[tier].value();
    for (size_t i = 0; i + 1 < pairs.size() && i < 2 * kMaxRead; i += 2) {
      const uint32_t tokens = TokensOf(pairs[i + 1].text());
      if (tokens != 0 && pairs[i].text().size() <= kMaxName)
        cached.told.push_back({std::string(pairs[i].text()), tokens, tier == 0});
    }
  }
  order_.emplace_back(cached.until_ns, prefix);
  cached_.insert_or_assign(prefix, std::move(cached));
}

std::optional<PrefixTable::Held> RedisPrefixIndex::HeldBy(WorkerId worker, const Digest256& prefix) const {
  thread_local std::vector<PrefixTable::Held> held;
  table_.Peek(prefix, link_.pool().clock().NowNanos(), &held);
  const auto found = std::ranges::find(held, worker, &PrefixTable::Held::worker);
  return found != held.end() ? std::optional(*found) : std::nullopt;
}

bool RedisPrefixIndex::Write(std::string_view backend, WorkerId worker, const Digest256& prefix) {
  const std::optional<PrefixTable::Held> held = HeldBy(worker, prefix);
  std::string commands;
  size_t replies = 2;
  if (held) {
    const std::string into = KeyOf(prefix, held->on_gpu);
    const std::string ttl = std::to_string((table_.options().ttl_ns + kNanosPerSecond - 1) / kNanosPerSecond);
    AppendRedisCommand({"MULTI"}, &commands);
    AppendRedisCommand({"ZADD", into, std::to_string(held->tokens), backend}, &commands);
    AppendRedisCommand({"EXPIRE", into, ttl}, &commands);
    AppendRedisCommand({"ZREM", KeyOf(prefix, !held->on_gpu), backend}, &commands);
    AppendRedisCommand({"EXEC"}, &commands);
    replies = 5;
  } else {
    AppendRemoval(prefix, backend, &commands);
  }
  RedisDone done = [this, name = std::string(backend),
                    subject = Subject(worker, prefix)](const RedisReplies& sent) {
    if (!sent.ok()) Postpone(name, subject);
  };
  if (link_.Send(commands, replies, std::move(done))) return true;
  Postpone(backend, {worker, prefix});
  return false;
}

void RedisPrefixIndex::Postpone(std::string_view backend, const Subject& subject) {
  if (postponed_.size() < kMaxPostponed) {
    postponed_.try_emplace(subject, backend);
  } else if (!postponed_.contains(subject)) {
    link_.pool().CountDropped(1);
  }
}

void RedisPrefixIndex::Flush() {
  for (size_t i = 0; i < kPurgedAtOnce && !postponed_.empty() && link_.pool().up(); ++i) {
    const auto next = postponed_.begin();
    const auto [subject, backend] = *next;
    postponed_.erase(next);
    if (!Write(backend, subject.first, subject.second)) return;
  }
}

Task<void> RedisPrefixIndex::Purge(std::string backend, WorkerId worker, std::vector<Digest256> prefixes) {
  for (size_t begin = 0; begin < prefixes.size(); begin += kPurgedAtOnce) {
    const size_t end = std::min(prefixes.size(), begin + kPurgedAtOnce);
    std::string commands;
    size_t replies = 0;
    for (size_t i = begin; i < end; ++i) {
      if (HeldBy(worker, prefixes[i])) continue;  // it came back, and was written
      AppendRemoval(prefixes[i], backend, &commands);
      replies += 2;
    }
    if (replies == 0) continue;
    const auto removal = std::make_shared<Removal>();
    RedisDone done = [removal](const RedisReplies& got) {
      removal->ok = got.ok();
      removal->sent.Notify();
    };
    if (link_.Send(commands, replies, std::move(done))) co_await removal->sent;
    for (size_t i = begin; i < end && !removal->ok; ++i) Postpone(backend, {worker, prefixes[i]});
  }
}

}  // namespace vllm_router
