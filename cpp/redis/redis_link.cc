#include "redis/redis_link.h"

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

bool RedisLink::Send(std::string_view commands, size_t replies, RedisDone done, RedisErrorsTo errors_to) {
  if (stopped_ || !pool_.up()) return false;
  RedisConnection* best = nullptr;
  for (const Slot& slot : slots_) {
    RedisConnection* const other = slot.connection.get();
    if (other == nullptr || !other->may_send()) continue;
    if (best == nullptr || other->outstanding() < best->outstanding()) best = other;
  }
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
  if (role_ == Role::kProbes && pool_.BeginProbe()) {
    // An older one is no use to a probe; what waits on it has failed, or does so with it.
    Slot& first = slots_.front();
    if (first.connection != nullptr) first.connection->Close(absl::UnavailableError("is probed"));
    return Begin(&first, /*probe=*/true);
  }
  if (!pool_.up()) return;
  const int64_t now = pool_.clock().NowNanos();
  for (Slot& slot : slots_) {
    if (slot.connection == nullptr && now >= slot.next_attempt_ns) Begin(&slot, /*probe=*/false);
  }
}

void RedisLink::Begin(Slot* slot, bool probe) {
  slot->connection = std::make_shared<RedisConnection>(pool_, loop_, buffers_, resolver_);
  slot->next_attempt_ns = pool_.clock().NowNanos() + kRetryNanos;
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
  if (slot->connection == connection) slot->connection = nullptr;
  --running_;
}

}  // namespace vllm_router
