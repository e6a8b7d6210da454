#include "proxy/peer_sync/rate_lease.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/log.h"
#include "base/text.h"
#include "base/time_units.h"
#include "proxy/thread/io_thread.h"
#include "proxy/thread/server_limits.h"
#include "routing/rate_limit.h"

namespace vllm_router {
namespace {

constexpr int64_t kQuietNanos = 60 * kNanosPerSecond;  // between lines about leases that fail
constexpr std::string_view kRequests = "requests";

}  // namespace

RateLease::RateLease(IoThread& thread, RedisLink& link, PeerStreams& streams, bool shared)
    : thread_(thread),
      link_(link),
      streams_(streams),
      shared_(shared),
      delay_(thread.loop),
      logged_ns_(thread.clock.NowNanos() - kQuietNanos) {
  ShareOut(shared_ ? kRoutersAtStart : 1);
}

void RateLease::Start() {
  leased_ns_ = thread_.clock.NowNanos();
  if (!shared_) return;
  runs_ = true;
  Spawn(Run());
}

void RateLease::Stop() {
  stopped_ = true;
  delay_.Cancel();
}

Task<void> RateLease::Run() {
  while (!stopped_) {
    if (thread_.limits.rate.limits()) {
      co_await Lease();
      if (stopped_) break;
      CheckLease();
    } else {  // a reload may set one, which has its first lease at the next turn
      leased_ns_ = thread_.clock.NowNanos();
      counts_.fallback = false;
      counts_.trouble.clear();
      ShareOut(std::max(kRoutersAtStart, routers_));
    }
    constexpr int64_t kLeast = kTurnNanos - kTurnNanos / 4;
    co_await delay_.For(kLeast + static_cast<int64_t>(thread_.ids.Below(kTurnNanos / 2 + 1)));
  }
  runs_ = false;
}

Task<void> RateLease::Lease() {
  if (!link_.pool().up()) co_return;
  RateLimit& rate = thread_.limits.rate;
  const uint32_t per_second = std::max(1u, rate.per_second());
  const int64_t asked = rate.Settle(routers_);
  const int64_t sent = thread_.clock.NowNanos();
  PeerStreams::Round round;
  streams_.AddLease(kRequests, per_second, asked, &round);
  const std::optional<RedisReplies> replies =
      co_await link_.Ask(round.commands(), round.replies(), RedisErrorsTo::kCaller);
  if (replies) counts_.bytes_sent += round.commands().size();
  if (!replies || stopped_) co_return;
  if (!replies->ok()) {
    ++counts_.failed;
    co_return;
  }
  PeerStreams::Heard heard;
  Status status = streams_.Take(round, sent, **replies, &heard);
  if (status.ok() && !heard.leased)
    status = absl::FailedPreconditionError("replied something that is no number (to EVAL)");
  if (!status.ok()) {
    ++counts_.failed;
    counts_.trouble = std::string(status.message());
    co_return;
  }
  counts_.trouble.clear();
  ++counts_.leases;
  if (asked > 0 && *heard.leased <= 0) ++counts_.empty;
  rate.Lease(*heard.leased, kTurnNanos);
  leased_ns_ = thread_.clock.NowNanos();
}

void RateLease::CheckLease() {
  const int64_t now = thread_.clock.NowNanos();
  counts_.fallback = now - leased_ns_ >= kLostNanos;
  if (!counts_.fallback) {
    if (std::exchange(logged_, false))
      Log(LogLevel::kInfo, "peer sync: the rate limit of all routers is leased again");
    return;
  }
  ShareOut(routers_);
  // That Redis is down is said elsewhere.
  if (counts_.trouble.empty() || logged_ || now - logged_ns_ < kQuietNanos) return;
  logged_ = true;
  logged_ns_ = now;
  Log(LogLevel::kError,
      Concat(
          "peer sync: the rate limit of all routers cannot be leased: ", link_.pool().options().url.Shown(),
          " ", counts_.trouble, "; this router admits 1/", routers_,
          " of --rate-limit-tokens-per-second, by the routers that it hears"));
}

void RateLease::ShareOut(uint32_t routers) {
  constexpr double kBits = 1 << 20;
  const auto phase = static_cast<double>(thread_.ids.Below(1 << 20)) / kBits;
  thread_.limits.rate.ShareOut(routers, thread_.clock.NowNanos(), phase);
}

}  // namespace vllm_router
