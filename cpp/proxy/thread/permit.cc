#include "proxy/thread/permit.h"

#include <algorithm>
#include <utility>

#include "proxy/thread/io_thread.h"

namespace vllm_router {
namespace {

constexpr int64_t kMs = 1'000'000;

}  // namespace

Permit::Permit(Admission& admission, Lane& lane, WorthATry worth_a_try)
    : admission_(admission), lane_(lane), worth_a_try_(worth_a_try), waiter_(&Permit::OnGranted, this) {}

bool Permit::TryTake(uint64_t amount) {
  if (!admission_.TryTake(amount)) return false;
  held_ = amount;
  return true;
}

Task<Permit::End> Permit::Take(uint64_t amount, int64_t timeout_ms) {
  amount_ = amount;
  until_ns_ = 0;
  return Enter(admission_.Enter(waiter_, amount), timeout_ms);
}

Task<Permit::End> Permit::StepBack(int64_t timeout_ms) {
  amount_ = std::exchange(held_, 0);
  const Admission::Entry entry = admission_.StepBack(waiter_, amount_);
  // What came before we stood in the line was announced to nobody.
  if (entry == Admission::Entry::kWaiting && worth_a_try_(lane_)) admission_.Nudge();
  return Enter(entry, timeout_ms);
}

Task<Permit::End> Permit::Enter(Admission::Entry entry, int64_t timeout_ms) {
  switch (entry) {
    case Admission::Entry::kHeld:
      held_ = amount_;
      co_return End::kHeld;
    case Admission::Entry::kFull:
      co_return End::kFull;
    case Admission::Entry::kNever:
      co_return End::kNever;
    case Admission::Entry::kWaiting:
      break;
  }
  const int64_t began_ns = lane_.clock.NowNanos();
  if (until_ns_ == 0) until_ns_ = began_ns + timeout_ms * kMs;
  waiting_ = true;
  ArmTimer();
  co_await ended_;
  waiting_ = false;
  timer_.Disarm();
  waited_ns_ += lane_.clock.NowNanos() - began_ns;
  if (end_ == End::kHeld) held_ = amount_;
  co_return end_;
}

void Permit::ArmTimer() {
  const int64_t left_ms = std::max<int64_t>(1, (until_ns_ - lane_.clock.NowNanos()) / kMs);
  timer_.Arm(
      lane_.loop.timers(), worth_a_try_ != nullptr ? std::min(left_ms, kTryAgainMs) : left_ms,
      &Permit::OnTimer, this);
}

void Permit::OnTimer(void* context) {
  auto* permit = static_cast<Permit*>(context);
  if (permit->lane_.clock.NowNanos() >= permit->until_ns_) {
    if (permit->admission_.Leave(permit->waiter_)) permit->EndWait(End::kTimeout);
    return;
  }
  permit->ArmTimer();
  if (permit->worth_a_try_ != nullptr && permit->worth_a_try_(permit->lane_)) permit->admission_.Nudge();
}

void Permit::Leave() {
  if (waiting_ && admission_.Leave(waiter_)) EndWait(End::kLeft);
}

// Not from here: whoever wakes up may end the exchange, and we are called from the middle of something.
void Permit::EndWait(End end) {
  end_ = end;
  lane_.loop.Post([this] { ended_.Notify(); });
}

// On any lane's thread. The wait is not over before the loop has run this.
void Permit::OnGranted(void* context) {
  auto* permit = static_cast<Permit*>(context);
  permit->lane_.loop.Post([permit] {
    permit->end_ = End::kHeld;
    permit->ended_.Notify();
  });
}

void Permit::Return() {
  if (held_ == 0) return;
  admission_.Release(held_);
  held_ = 0;
}

}  // namespace vllm_router
