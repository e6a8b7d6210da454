#include "routing/concurrency_limiter.h"

#include "base/check.h"

namespace vllm_router {

namespace {

void CheckLimits(uint64_t permits, uint32_t line) {
  ROUTER_CHECK(
      permits >= 1 && permits <= ConcurrencyLimiter::kMostPermits, "an admission has 1 to 2^40 - 1 permits");
  ROUTER_CHECK(line <= ConcurrencyLimiter::kMostWaiters, "a queue has at most 2^24 - 1 waiters");
}

}  // namespace

ConcurrencyLimiter::ConcurrencyLimiter(uint64_t permits, uint32_t line) : permits_(permits), line_(line) {
  CheckLimits(permits, line);
}

// Requests that enter meanwhile may go by either number.
void ConcurrencyLimiter::SetLimits(uint64_t permits, uint32_t line) {
  CheckLimits(permits, line);
  Waiter* granted;
  {
    MutexLock lock(mutex_);
    permits_.store(permits, std::memory_order_relaxed);
    line_.store(line, std::memory_order_relaxed);
    granted = Pass(kMostPermits);
  }
  Tell(granted);
}

bool ConcurrencyLimiter::full() const {
  const uint64_t word = word_.load(std::memory_order_relaxed);
  return !Free(word, 1) && Waiting(word) >= line();
}

bool ConcurrencyLimiter::TryAcquire(uint64_t amount) {
  uint64_t word = word_.load(std::memory_order_relaxed);
  while (Free(word, amount)) {
    if (word_.compare_exchange_weak(word, word + (amount << kShift), std::memory_order_acq_rel)) return true;
  }
  return false;
}

ConcurrencyLimiter::Entry ConcurrencyLimiter::Enter(Waiter& waiter, uint64_t amount) {
  if (amount > permits()) return Entry::kNever;
  waiter.amount_ = amount;
  waiter.place_ = 0;
  if (TryAcquire(amount)) return Entry::kHeld;
  MutexLock lock(mutex_);
  return EnterLocked(waiter, amount);
}

// Requests that pass without queueing still change the word meanwhile, until the first waiter is visible
// in it.
ConcurrencyLimiter::Entry ConcurrencyLimiter::EnterLocked(Waiter& waiter, uint64_t amount) {
  uint64_t word = word_.load(std::memory_order_relaxed);
  for (;;) {
    const bool free = Free(word, amount);
    if (!free && Waiting(word) >= line()) return Entry::kFull;
    const uint64_t next = free ? word + (amount << kShift) : word + 1;
    if (!word_.compare_exchange_weak(word, next, std::memory_order_acq_rel)) continue;
    if (free) return Entry::kHeld;
    waiter.place_ = ++places_;
    Link(waiter);
    return Entry::kWaiting;
  }
}

void ConcurrencyLimiter::Release(uint64_t amount) {
  uint64_t word = word_.load(std::memory_order_relaxed);
  while (Waiting(word) == 0) {
    if (word_.compare_exchange_weak(word, word - (amount << kShift), std::memory_order_acq_rel)) return;
  }
  Waiter* granted;
  {
    MutexLock lock(mutex_);
    word_.fetch_sub(amount << kShift, std::memory_order_acq_rel);
    granted = Pass(amount);
  }
  Tell(granted);
}

bool ConcurrencyLimiter::Leave(Waiter& waiter) {
  Waiter* granted;
  {
    MutexLock lock(mutex_);
    if (!waiter.waiting_) return false;
    Unlink(waiter);
    word_.fetch_sub(1, std::memory_order_acq_rel);
    granted = Pass(waiter.amount_);  // those behind it may fit although it did not
  }
  Tell(granted);
  return true;
}

ConcurrencyLimiter::Entry ConcurrencyLimiter::Requeue(Waiter& waiter, uint64_t amount) {
  Waiter* granted = nullptr;
  {
    MutexLock lock(mutex_);
    // No queue, or one that is not full: no other thread makes it longer now.
    if (waiter.place_ != 0 || Waiting(word_.load(std::memory_order_relaxed)) < line()) {
      if (waiter.place_ == 0) waiter.place_ = ++early_places_;
      waiter.amount_ = amount;
      word_.fetch_sub((amount << kShift) - 1, std::memory_order_acq_rel);
      Link(waiter);
      return Entry::kWaiting;
    }
    word_.fetch_sub(amount << kShift, std::memory_order_acq_rel);
    granted = Pass(amount);
  }
  Tell(granted);
  return Entry::kFull;
}

void ConcurrencyLimiter::WakeNext() {
  if (waiting() == 0) return;
  Waiter* granted;
  {
    MutexLock lock(mutex_);
    granted = Pass(1);
  }
  Tell(granted);
}

void ConcurrencyLimiter::Wake(Waiter& waiter) {
  {
    MutexLock lock(mutex_);
    if (!waiter.waiting_ || in_use() + waiter.amount_ > permits()) return;
    Unlink(waiter);
    word_.fetch_add((waiter.amount_ << kShift) - 1, std::memory_order_acq_rel);
  }
  Tell(&waiter);
}

// In the order of arrival; a requeued waiter is nearly always in front.
void ConcurrencyLimiter::Link(Waiter& waiter) {
  Waiter* before = back_;
  if (before != nullptr && before->place_ > waiter.place_) {
    Waiter* after = front_;
    while (after->place_ < waiter.place_) after = after->next_;
    before = after->previous_;
  }
  Waiter* after = before != nullptr ? before->next_ : front_;
  waiter.previous_ = before;
  waiter.next_ = after;
  (before != nullptr ? before->next_ : front_) = &waiter;
  (after != nullptr ? after->previous_ : back_) = &waiter;
  waiter.waiting_ = true;
}

void ConcurrencyLimiter::Unlink(Waiter& waiter) {
  (waiter.previous_ != nullptr ? waiter.previous_->next_ : front_) = waiter.next_;
  (waiter.next_ != nullptr ? waiter.next_->previous_ : back_) = waiter.previous_;
  waiter.next_ = waiter.previous_ = nullptr;
  waiter.waiting_ = false;
}

ConcurrencyLimiter::Waiter* ConcurrencyLimiter::Pass(uint64_t most) {
  Waiter* first = nullptr;
  Waiter** last = &first;
  while (front_ != nullptr && most > 0 && in_use() + front_->amount_ <= permits()) {
    Waiter& waiter = *front_;
    Unlink(waiter);
    word_.fetch_add((waiter.amount_ << kShift) - 1, std::memory_order_acq_rel);
    *last = &waiter;
    last = &waiter.next_;
    --most;
  }
  return first;
}

// A waiter may be destroyed as soon as it was notified.
void ConcurrencyLimiter::Tell(Waiter* granted) {
  while (granted != nullptr) {
    Waiter* const waiter = granted;
    granted = waiter->next_;
    waiter->next_ = nullptr;
    waiter->granted_(waiter->context_);
  }
}

}  // namespace vllm_router
