#include "redis/redis_link.h"

#include <string>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "base/text.h"

namespace vllm_router {

RedisLink::RedisLink(
    RedisPool& pool, EventLoop& loop, BufferPool& buffers, Resolver& resolver, size_t connections, Role role)
    : pool_(pool), loop_(loop), buffers_(buffers), resolver_(resolver), role_(role), slots_(connections) {
  ROUTER_CHECK(connections > 0, "a link has connections");
}

RedisLink::~RedisLink() = default;

void RedisLink::Start() { OnTimer(this); }

void RedisLink::Stop() {
  stopped_ = true;
  timer_.Disarm();
  for (const Slot& slot : slots_) {
    if (slot.connection != nullptr) slot.connection->Close(absl::CancelledError("the router stops"));
  }
}

RedisConnection* RedisLink::Best() const {
  if (stopped_ || !pool_.up()) return nullptr;
  const auto rank = [](const RedisConnection& connection) {
    return std::pair(connection.is_amid_large_reply(), connection.outstanding());
  };
  RedisConnection* best = nullptr;
  for (const Slot& slot : slots_) {
    RedisConnection* const other = slot.connection.get();
    if (other == nullptr || !other->may_send()) continue;
    if (best == nullptr || rank(*other) < rank(*best)) best = other;
  }
  return best;
}

bool RedisLink::Send(std::string_view commands, size_t replies, RedisDone done, RedisErrorsTo errors_to) {
  RedisConnection* const best = Best();
  if (best == nullptr) return false;
  best->Send(commands, replies, std::move(done), errors_to);
  return true;
}

Task<std::optional<RedisReplies>> RedisLink::Ask(
    std::string_view commands, size_t replies, RedisErrorsTo errors_to) {
  // The coroutine and the callback share it: either may be the last.
  struct Waiting {
    Signal done;
    RedisReplies replies = absl::CancelledError("the router stops");
  };
  const auto waiting = std::make_shared<Waiting>();
  RedisDone done = [waiting](RedisReplies got) {
    waiting->replies = std::move(got);
    waiting->done.Notify();
  };
  if (!Send(commands, replies, std::move(done), errors_to)) co_return std::nullopt;
  co_await waiting->done;
  co_return std::move(waiting->replies);
}

void RedisLink::OnTimer(void* link) {
  auto* const self = static_cast<RedisLink*>(link);
  if (self->stopped_) return;
  self->Look();
  self->timer_.Arm(self->loop_.timers(), kLookMs, &RedisLink::OnTimer, self);
}

void RedisLink::Look() {
  GiveUp();
  if (role_ == Role::kProbes && pool_.BeginProbe()) {
    // An older one is no use to a probe; what waits on it has failed, or does so with it.
    Slot& first = slots_.front();
    if (first.connection != nullptr) first.connection->Close(absl::UnavailableError("is probed"));
    return Begin(&first, /*probe=*/true);
  }
  if (!pool_.up()) return;
  Reopen();
  const int64_t now = pool_.clock().NowNanos();
  for (Slot& slot : slots_) {
    if (slot.connection == nullptr && now >= slot.next_attempt_ns) Begin(&slot, /*probe=*/false);
  }
}

void RedisLink::GiveUp() {
  for (const Slot& slot : slots_) {
    if (slot.connection != nullptr && slot.outages != pool_.outages())
      slot.connection->Close(absl::CancelledError("is of before an outage"));
  }
}

void RedisLink::Reopen() {
  const uint64_t reopenings = pool_.reopenings();
  if (refreshed_ != reopenings) {
    refreshed_ = reopenings;
    // The old addresses are used until the new ones are there, hence the wait for the next look.
    resolver_.ReportFailure(pool_.options().url.host);
    return Spawn(Refresh());
  }
  for (const Slot& slot : slots_) {
    if (slot.connection != nullptr && slot.reopenings != reopenings) slot.connection->Retire();
  }
}

Task<void> RedisLink::Refresh() {
  ++running_;
  const auto name = std::make_shared<Resolver::Waiter>(loop_);
  // Opened connections ask for them again.
  [[maybe_unused]] const StatusOr<std::vector<Address>> addresses =
      co_await resolver_.Resolve(pool_.options().url.host, name);
  --running_;
}

void RedisLink::Begin(Slot* slot, bool probe) {
  slot->connection = std::make_shared<RedisConnection>(pool_, loop_, buffers_, resolver_);
  slot->next_attempt_ns = pool_.clock().NowNanos() + kRetryNanos;
  slot->reopenings = pool_.reopenings();
  slot->outages = pool_.outages();
  Spawn(Run(slot, probe));
}

Task<void> RedisLink::Run(Slot* slot, bool probe) {
  ++running_;
  const std::shared_ptr<RedisConnection> connection = slot->connection;
  const Status opened = co_await RedisConnection::Open(connection, probe);
  if (probe) {
    pool_.EndProbe(opened);
  } else if (opened.ok()) {
    pool_.Opened();
  } else {
    pool_.OpenFailed(opened);
  }
  Status ended = opened;
  if (opened.ok()) ended = co_await RedisConnection::Serve(connection);
  Log(LogLevel::kDebug,
      Concat(pool_.options().url.Shown(), ": a connection is over: it ", std::string(ended.message())));
  const bool own = slot->connection == connection;
  if (own) slot->connection = nullptr;
  if (own && connection->is_retired() && !stopped_ && pool_.up()) Begin(slot, /*probe=*/false);
  --running_;
}

}  // namespace vllm_router
