#include "net/timer_wheel.h"

#include <utility>

namespace vllm_router {

void Timer::Arm(TimerWheel& wheel, int64_t delay_ms, Callback callback, void* context) {
  Disarm();
  if (delay_ms <= 0) return;
  wheel_ = &wheel;
  callback_ = callback;
  context_ = context;
  // The first tick at or after the deadline: late by less than a tick, never early.
  due_tick_ = (wheel.now_ms_() + delay_ms + TimerWheel::kTickMs - 1) / TimerWheel::kTickMs;
  wheel.Link(this);
}

void Timer::Disarm() {
  if (!armed()) return;
  TimerWheel::Unlink(this);
  --wheel_->armed_;
}

TimerWheel::TimerWheel(std::function<int64_t()> now_ms, std::function<void()> wake)
    : now_ms_(std::move(now_ms)), wake_(std::move(wake)), tick_(now_ms_() / kTickMs) {
  for (Timer& head : slots_) head.next_ = head.previous_ = &head;
}

TimerWheel::~TimerWheel() {
  for (Timer& head : slots_) {
    while (head.next_ != &head) head.next_->Disarm();
    head.next_ = nullptr;  // a head was never armed
  }
}

void TimerWheel::Link(Timer* timer) {
  if (!awake_) {  // no tick happened while nothing was armed
    tick_ = now_ms_() / kTickMs;
    awake_ = true;
    wake_();
  }
  if (timer->due_tick_ <= tick_) timer->due_tick_ = tick_ + 1;
  Timer& head = slots_[static_cast<size_t>(timer->due_tick_) % kSlots];
  timer->previous_ = head.previous_;
  timer->next_ = &head;
  head.previous_->next_ = timer;
  head.previous_ = timer;
  ++armed_;
}

void TimerWheel::Unlink(Timer* timer) {
  timer->previous_->next_ = timer->next_;
  timer->next_->previous_ = timer->previous_;
  timer->next_ = timer->previous_ = nullptr;
}

bool TimerWheel::Tick() {
  const int64_t now = now_ms_() / kTickMs;
  while (tick_ < now) {
    ++tick_;
    // A callback may arm and disarm anything, this slot's timers included. So each due timer moves to a
    // list of its own before the first callback runs; Disarm() unlinks from there just as well.
    Timer due;
    due.next_ = due.previous_ = &due;
    Timer& head = slots_[static_cast<size_t>(tick_) % kSlots];
    for (Timer* timer = head.next_; timer != &head;) {
      Timer* next = timer->next_;
      if (timer->due_tick_ <= tick_) {
        Unlink(timer);
        timer->previous_ = due.previous_;
        timer->next_ = &due;
        due.previous_->next_ = timer;
        due.previous_ = timer;
      }
      timer = next;
    }
    while (due.next_ != &due) {
      Timer* timer = due.next_;
      timer->Disarm();
      timer->callback_(timer->context_);
    }
    due.next_ = nullptr;  // the list head itself was never armed
  }
  awake_ = armed_ > 0;
  return awake_;
}

}  // namespace vllm_router
