#include "proxy/response_cache/response_cache_service.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/text.h"
#include "base/time_units.h"
#include "redis/redis_command.h"
#include "redis/redis_error.h"

namespace vllm_router {
namespace {

constexpr int64_t kWarnNanos = 60 * kNanosPerSecond;

std::string_view CommandOf(Generations::Repair::How how) {
  using How = Generations::Repair::How;
  if (how == How::kAdd) return "HINCRBY";
  return how == How::kSetIfMissing ? "HSETNX" : "HSET";
}

}  // namespace

ResponseCacheService::ResponseCacheService(
    RedisLink& link, Generations& generations, RedisResponses& responses, std::function<void()> on_recovered)
    : link_(link),
      generations_(generations),
      responses_(responses),
      on_recovered_(std::move(on_recovered)),
      delay_(link.loop()),
      counted_ns_(Now() - kRecountNanos),
      warned_ns_(Now() - kWarnNanos) {}

void ResponseCacheService::Start() {
  runs_ = true;
  Spawn(Run());
}

void ResponseCacheService::AddConditions(const AddCondition& add) const {
  if (responses_.usable()) return;
  const RedisPool& redis = link_.pool();
  add("response_cache_redis", {},
      Concat(
          redis.options().url.Shown(), redis.up() ? " is being brought up to date" : " does not reply",
          ": the response cache does not share responses meanwhile."));
}

void ResponseCacheService::Stop() {
  stopped_ = true;
  delay_.Cancel();
}

void ResponseCacheService::Tell() {
  link_.loop().Post([this] {
    told_ = true;
    delay_.Cancel();
  });
}

std::optional<int64_t> ResponseCacheService::entries() {
  count_wanted_.store(true, std::memory_order_relaxed);
  const int64_t entries = entries_.load(std::memory_order_relaxed);
  return entries < 0 ? std::nullopt : std::optional(entries);
}

Task<void> ResponseCacheService::Run() {
  while (!stopped_) {
    told_ = false;
    const std::vector<Waiter*> waiting = std::exchange(waiters_, {});
    const bool worked = co_await Exchange();
    for (Waiter* const waiter : waiting) {
      waiter->worked = worked;
      waiter->done.Notify();
    }
    if (stopped_) break;
    if (worked && Now() - counted_ns_ >= kRecountNanos && count_wanted_.exchange(false)) {
      counted_ns_ = Now();
      Spawn(CountKeys());
    }
    if (told_) continue;
    co_await delay_.For(link_.may_send() ? kTurnNanos : kLookNanos);
  }
  for (Waiter* const waiter : std::exchange(waiters_, {})) waiter->done.Notify();
  runs_ = false;
}

Task<bool> ResponseCacheService::Exchange() {
  if (!link_.may_send()) co_return false;
  const uint64_t outages = link_.pool().outages();
  const std::string key = responses_.GenerationsKey();
  const std::vector<Generations::Increment> increments = generations_.Pending();
  std::string commands;
  for (const Generations::Increment& increment : increments)
    AppendRedisCommand({"HINCRBY", key, increment.field, std::to_string(increment.by)}, &commands);
  AppendRedisCommand({"HGETALL", key}, &commands);
  const std::optional<RedisReplies> replies = co_await link_.Ask(commands, increments.size() + 1);
  if (!replies || !replies->ok() || stopped_) co_return false;
  std::vector<Generations::Repair> repairs;
  if (!TakeReplies(increments, *replies, &repairs)) co_return false;
  if (!repairs.empty()) co_await RepairLoss(std::move(repairs));
  if (!link_.pool().up() || link_.pool().outages() != outages) co_return false;
  if (!responses_.usable()) {
    const bool refused = responses_.refused();
    responses_.SetUsable(outages);
    on_recovered_();  // behind it: CachedRequest::Keep() counts on the order
    if (refused) {
      Log(LogLevel::kInfo,
          Concat(
              "response cache: ", link_.pool().options().url.Shown(), " has generations and is used again"));
    }
  }
  co_return true;
}

bool ResponseCacheService::TakeReplies(
    const std::vector<Generations::Increment>& sent, const RedisReplies& replies,
    std::vector<Generations::Repair>* repairs) {
  using Kind = RedisValue::Kind;
  // An increment that Redis rejects, being full or a replica, is sent again; this router counts it already.
  for (size_t i = 0; i < sent.size(); ++i) {
    const RedisValue count = (*replies)[i].value();
    if (count.kind() == Kind::kInteger && count.integer() >= 0)
      generations_.Written(sent[i].field, sent[i].by, static_cast<uint64_t>(count.integer()));
  }
  const RedisValue pairs = replies->back().value();
  if (pairs.kind() != Kind::kArray) {
    // Without the generations an old response cannot be told from others.
    responses_.SetUnusable();
    const std::string error =
        pairs.is_error() ? ReadRedisError(pairs.text()).message : "sent something that is no array";
    Warn(Concat(error, " (to HGETALL ", responses_.GenerationsKey(), "); this router's memory is used"));
    return false;
  }
  std::vector<Generations::Field> fields;
  for (size_t i = 0; i + 1 < pairs.size(); i += 2)
    fields.push_back({pairs[i].text(), ParseDecimal(pairs[i + 1].text())});
  *repairs = generations_.Merge(fields);
  return true;
}

Task<void> ResponseCacheService::RepairLoss(std::vector<Generations::Repair> repairs) {
  const std::string key = responses_.GenerationsKey();
  std::string commands;
  for (const Generations::Repair& repair : repairs)
    AppendRedisCommand({CommandOf(repair.how), key, repair.field, std::to_string(repair.number)}, &commands);
  // What came of it shows when the hash is read next.
  co_await link_.Ask(commands, repairs.size());
}

Task<bool> ResponseCacheService::NextTurn() {
  if (stopped_ || !runs_ || !link_.may_send()) co_return false;
  Waiter waiter;
  waiters_.push_back(&waiter);
  told_ = true;
  delay_.Cancel();
  co_await waiter.done;
  co_return waiter.worked;
}

// A Redis that is full, or a replica, may be read while it takes no increments.
Task<bool> ResponseCacheService::Told() {
  const UnderWay under_way(*this);
  const bool worked = co_await NextTurn();
  co_return worked&& generations_.Pending().empty();
}

Task<StatusOr<int64_t>> ResponseCacheService::Clear(CancelScope* scope) {
  const UnderWay under_way(*this);
  generations_.BumpAll();
  const Status down = absl::UnavailableError(
      "Redis is down; responses of before are not used any more, and it is told so when it is back");
  const bool told = co_await NextTurn();
  if (!told) co_return down;
  if (std::exchange(clearing_, true)) co_return 0;
  const Scan scan = co_await ScanKeys(Use::kDelete, kClearNanos, scope);
  clearing_ = false;
  if (scan.whole) entries_.store(0, std::memory_order_relaxed);
  // The new generation alone is enough; keys that stay expire.
  if (!scan.status.ok())
    Warn(Concat(std::string(scan.status.message()), "; cleared responses remain until they expire"));
  co_return scan.keys;
}

Task<void> ResponseCacheService::CountKeys() {
  const UnderWay under_way(*this);
  const Scan scan = co_await ScanKeys(Use::kCount, kCountNanos, nullptr);
  if (scan.whole) entries_.store(scan.keys, std::memory_order_relaxed);
  if (!scan.status.ok()) Warn(Concat(std::string(scan.status.message()), "; its responses are not counted"));
}

Task<ResponseCacheService::Scan> ResponseCacheService::ScanKeys(Use use, int64_t nanos, CancelScope* scope) {
  Scan scan;
  Delay pace(link_.loop());
  const int64_t begun = Now();
  const std::string pattern = Concat(responses_.key_prefix(), "*");
  std::string cursor = "0";
  for (int64_t pages = 1; !stopped_ && Now() - begun < nanos; ++pages) {
    if (scope != nullptr && scope->cancelled()) break;
    std::string command;
    AppendRedisCommand({"SCAN", cursor, "MATCH", pattern, "COUNT", kPageKeys}, &command);
    const std::optional<RedisReplies> replies = co_await link_.Ask(command, 1, RedisErrorsTo::kCaller);
    scan.status = Checked("SCAN", replies);
    if (!scan.status.ok()) break;
    const RedisValue page = (**replies)[0].value();
    if (page.size() != 2) {
      scan.status = absl::FailedPreconditionError("sent something that is no page of keys (to SCAN)");
      break;
    }
    std::vector<std::string> keys;
    for (size_t i = 0; i < page[1].size(); ++i) {
      if (responses_.IsResponse(page[1][i].text())) keys.emplace_back(page[1][i].text());
    }
    if (use == Use::kCount) scan.keys += static_cast<int64_t>(keys.size());
    if (use == Use::kDelete && !keys.empty()) {
      const bool deleted = co_await DeleteKeys(std::move(keys), &scan);
      if (!deleted) break;
    }
    cursor = std::string(page[0].text());
    scan.whole = cursor == "0";
    if (scan.whole) break;
    co_await pace.For(pages * kPageNanos - (Now() - begun));
  }
  co_return scan;
}

Task<bool> ResponseCacheService::DeleteKeys(std::vector<std::string> keys, Scan* scan) {
  std::vector<std::string_view> words = {"UNLINK"};
  words.insert(words.end(), keys.begin(), keys.end());
  std::string command;
  AppendRedisCommand(words, &command);
  const std::optional<RedisReplies> replies = co_await link_.Ask(command, 1, RedisErrorsTo::kCaller);
  scan->status = Checked("UNLINK", replies);
  if (!scan->status.ok()) co_return false;
  scan->keys += (**replies)[0].value().integer();
  co_return true;
}

Status ResponseCacheService::Checked(
    std::string_view command, const std::optional<RedisReplies>& replies) const {
  if (!replies) return absl::UnavailableError("is down");
  if (!replies->ok()) return replies->status();
  const RedisValue value = (**replies)[0].value();
  if (!value.is_error()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      Concat(ReadRedisError(value.text()).message, " (to ", command, " ", responses_.key_prefix(), "*)"));
}

void ResponseCacheService::Warn(std::string_view what) {
  if (Now() - warned_ns_ < kWarnNanos) return;
  warned_ns_ = Now();
  Log(LogLevel::kWarning, Concat("response cache: ", link_.pool().options().url.Shown(), " ", what));
}

}  // namespace vllm_router
