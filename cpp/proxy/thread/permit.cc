#include "proxy/thread/permit.h"

#include <algorithm>
#include <utility>

#include "base/time_units.h"
#include "proxy/thread/io_thread.h"

namespace vllm_router {
Permit::Permit(ConcurrencyLimiter& limiter, IoThread& thread, WorthTrying worth_a_try, const void* context)
    : limiter_(limiter),
      thread_(thread),
      worth_a_try_(worth_a_try),
      context_(context),
      waiter_(&Permit::OnGranted, this) {}

bool Permit::TryAcquire(uint64_t amount) {
  if (!limiter_.TryAcquire(amount)) return false;
  held_ = amount;
  return true;
}

Task<Permit::End> Permit::Acquire(uint64_t amount, int64_t timeout_ms) {
  amount_ = amount;
  until_ns_ = 0;
  return Enter(limiter_.Enter(waiter_, amount), timeout_ms);
}

Task<Permit::End> Permit::Requeue(int64_t timeout_ms) {
  amount_ = std::exchange(held_, 0);
  const ConcurrencyLimiter::Entry entry = limiter_.Requeue(waiter_, amount_);
  // Room that appeared before we entered the queue was announced to no waiter.
  if (entry == ConcurrencyLimiter::Entry::kWaiting) TryAgain();
  return Enter(entry, timeout_ms);
}

Task<Permit::End> Permit::Enter(ConcurrencyLimiter::Entry entry, int64_t timeout_ms) {
  switch (entry) {
    case ConcurrencyLimiter::Entry::kHeld:
      held_ = amount_;
      co_return End::kHeld;
    case ConcurrencyLimiter::Entry::kFull:
      co_return End::kFull;
    case ConcurrencyLimiter::Entry::kNever:
      co_return End::kNever;
    case ConcurrencyLimiter::Entry::kWaiting:
      break;
  }
  const int64_t began_ns = thread_.clock.NowNanos();
  if (until_ns_ == 0) until_ns_ = began_ns + timeout_ms * kNanosPerMs;
  waiting_ = true;
  ArmTimer();
  co_await ended_;
  waiting_ = false;
  timer_.Disarm();
  waited_ns_ += thread_.clock.NowNanos() - began_ns;
  if (end_ == End::kHeld) held_ = amount_;
  co_return end_;
}

void Permit::ArmTimer() {
  const int64_t left_ms = std::max<int64_t>(1, (until_ns_ - thread_.clock.NowNanos()) / kNanosPerMs);
  timer_.Arm(
      thread_.loop.timers(), worth_a_try_ != nullptr ? std::min(left_ms, kTryAgainMs) : left_ms,
      &Permit::OnTimer, this);
}

void Permit::OnTimer(void* context) {
  auto* permit = static_cast<Permit*>(context);
  if (permit->thread_.clock.NowNanos() >= permit->until_ns_) {
    if (permit->limiter_.Leave(permit->waiter_)) permit->EndWait(End::kTimeout);
    return;
  }
  permit->ArmTimer();
  permit->TryAgain();
}

void Permit::TryAgain() {
  if (worth_a_try_ == nullptr) return;
  const Worth worth = worth_a_try_(thread_, context_);
  if (worth == Worth::kFirst) limiter_.WakeNext();
  if (worth == Worth::kThis) limiter_.Wake(waiter_);
}

void Permit::Leave() {
  if (waiting_ && limiter_.Leave(waiter_)) EndWait(End::kLeft);
}

// Posted, not called: the resumed coroutine may end the exchange, and the caller is in the middle of its
// work.
void Permit::EndWait(End end) {
  end_ = end;
  thread_.loop.Post([this] { ended_.Notify(); });
}

// On any thread. The wait is not over before the loop has run this.
void Permit::OnGranted(void* context) {
  auto* permit = static_cast<Permit*>(context);
  permit->thread_.loop.Post([permit] {
    permit->end_ = End::kHeld;
    permit->ended_.Notify();
  });
}

void Permit::Release() {
  if (held_ == 0) return;
  limiter_.Release(held_);
  held_ = 0;
}

}  // namespace vllm_router
