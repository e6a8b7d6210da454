#include "proxy/thread/body_claim.h"

#include <algorithm>

#include "net/event_loop.h"

namespace vllm_router {

BodyClaim::BodyClaim(BodyBudget& budget, EventLoop& loop)
    : budget_(budget), loop_(loop), member_(&BodyClaim::OnGranted, this) {}

BodyBudget::Entry BodyClaim::Grow(uint64_t to, uint64_t need) {
  wanted_ = to;
  const BodyBudget::Entry entry = budget_.Grow(member_, to, need);
  if (entry == BodyBudget::Entry::kHeld) held_ = to;
  return entry;
}

Task<BodyClaim::End> BodyClaim::Wait(int64_t timeout_ms) {
  waiting_ = true;
  timer_.Arm(loop_.timers(), timeout_ms, &BodyClaim::OnTimeout, this);
  co_await ended_;
  waiting_ = false;
  timer_.Disarm();
  if (end_ == End::kHeld) held_ = wanted_;
  co_return end_;
}

void BodyClaim::OnTimeout(void* context) {
  auto* claim = static_cast<BodyClaim*>(context);
  if (claim->budget_.Leave(claim->member_)) claim->EndWait(End::kTimeout);
}

void BodyClaim::Leave() {
  if (waiting_ && budget_.Leave(member_)) EndWait(End::kLeft);
}

// Posted, not called: the resumed coroutine may end the exchange, and the caller is in the middle of its
// work.
void BodyClaim::EndWait(End end) {
  end_ = end;
  loop_.Post([this] { ended_.Notify(); });
}

// On any thread. The wait is not over before the loop has run this.
void BodyClaim::OnGranted(void* context) {
  auto* claim = static_cast<BodyClaim*>(context);
  claim->loop_.Post([claim] {
    claim->end_ = End::kHeld;
    claim->ended_.Notify();
  });
}

bool BodyClaim::TryKeep(uint64_t bytes) {
  if (!budget_.TryKeep(member_, bytes)) return false;
  held_ = bytes;
  return true;
}

bool BodyClaim::GrowNow(uint64_t to) {
  if (!budget_.GrowNow(member_, to)) return false;
  held_ = to;
  return true;
}

void BodyClaim::Complete(uint64_t bytes) {
  if (held_ == 0) return;
  held_ = std::min(held_, bytes);
  budget_.Complete(member_, held_);
}

void BodyClaim::Return() {
  if (held_ == 0) return;
  budget_.Release(member_);
  held_ = 0;
}

}  // namespace vllm_router
