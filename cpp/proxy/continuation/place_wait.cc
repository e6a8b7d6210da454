#include "proxy/continuation/place_wait.h"

#include "base/time_units.h"
#include "proxy/api/settings.h"
#include "proxy/exchange/request.h"
#include "proxy/thread/io_thread.h"
#include "proxy/thread/permit.h"
#include "proxy/thread/server_limits.h"
#include "routing/router.h"
#include "worker/fleet_view.h"

namespace vllm_router {
namespace {

// Between two looks for a place that nobody tells of.
constexpr int64_t kPlaceLookNs = 20 * kNanosPerMs;

}  // namespace

PlaceWait::~PlaceWait() {
  if (until_ns_ != 0) waiting_.fetch_sub(1, std::memory_order_relaxed);
}

Task<bool> PlaceWait::Next() {
  int64_t now = request_.thread.clock.NowNanos();
  if (until_ns_ == 0) {
    waiting_.fetch_add(1, std::memory_order_relaxed);
    until_ns_ = now + request_.settings.continuation.wait_ms * kNanosPerMs;
  } else if (now - asked_ns_ < kPlaceLookNs) {
    // It was told of a place that it may not have, or that is gone, and may be told again at once.
    const bool go_on = co_await Look();
    if (!go_on) co_return false;
    now = request_.thread.clock.NowNanos();
  }
  asked_ns_ = now;
  if (now >= until_ns_) co_return false;
  Permit& permit = request_.permit;
  const bool has_room =
      was_queued_ || request_.thread.limits.concurrency.waiting() < request_.settings.queue_size;
  if (!has_room || !permit.held()) {
    const bool go_on = co_await Look();
    co_return go_on;
  }
  was_queued_ = true;
  const OnCancel leave(request_.scope, [&permit] { permit.Leave(); });
  const Permit::End end = co_await permit.RequeueServed((until_ns_ - now) / kNanosPerMs + 1);
  co_return end == Permit::End::kHeld && !request_.is_cancelled();
}

Task<bool> PlaceWait::Look() {
  const bool go_on = co_await request_.scope.Pause(request_.thread.loop, kPlaceLookNs);
  co_return go_on;
}

void PlaceWait::Found(const FleetView& fleet) {
  if (was_queued_ && request_.thread.router->FreePlaces(fleet) > 0) request_.permit.WakeNext();
}

}  // namespace vllm_router
