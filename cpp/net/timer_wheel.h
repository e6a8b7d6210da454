// TimerWheel: many deadlines, most of which are cancelled before they fire. A hashed wheel of 100 ms slots:
//
//   slot     0    1    2   …  now%N  …                one turn = kSlots * 100 ms
//   timers  [a]       [b c]     ^                     a timer further away waits in its slot for its turn
//
// Arm and disarm are O(1) and touch two neighbours in a list; a tick visits one slot. A deadline fires up
// to one tick late, never early. The owner ticks the wheel only while something is armed. One thread.
// See Varghese and Lauck, "Hashed and Hierarchical Timing Wheels" (SOSP 1987).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace vllm_router {

class TimerWheel;

// A deadline that calls a function when it passes. Disarms itself when destroyed. Not movable: the wheel
// links it.
class Timer {
 public:
  Timer() = default;
  ~Timer() { Disarm(); }
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

  using Callback = void (*)(void* context);
  // Fires once, `delay_ms` from now (0: never). Arming again replaces the earlier deadline.
  void Arm(TimerWheel& wheel, int64_t delay_ms, Callback callback, void* context);
  void Disarm();
  bool armed() const { return next_ != nullptr; }

 private:
  friend class TimerWheel;
  Timer* next_ = nullptr;
  Timer* previous_ = nullptr;
  TimerWheel* wheel_ = nullptr;
  int64_t due_tick_ = 0;
  Callback callback_ = nullptr;
  void* context_ = nullptr;
};

class TimerWheel {
 public:
  static constexpr int64_t kTickMs = 100;
  static constexpr size_t kSlots = 1024;  // one turn is 102 s; most deadlines are shorter

  // `now_ms` reads a monotonic clock. `wake` is called when the wheel goes from empty to armed; from then
  // on Tick() must be called every kTickMs until it returns false.
  TimerWheel(std::function<int64_t()> now_ms, std::function<void()> wake);

  ~TimerWheel();  // whatever is still armed is disarmed
  TimerWheel(const TimerWheel&) = delete;
  TimerWheel& operator=(const TimerWheel&) = delete;

  // Fires what is due. Returns whether anything is still armed.
  bool Tick();
  size_t armed() const { return armed_; }

 private:
  friend class Timer;
  void Link(Timer* timer);
  static void Unlink(Timer* timer);

  std::function<int64_t()> now_ms_;
  std::function<void()> wake_;
  std::array<Timer, kSlots> slots_;  // heads of circular lists; armed() of a head is meaningless
  int64_t tick_ = 0;                 // slots up to this tick have been visited
  size_t armed_ = 0;
  bool awake_ = false;
};

}  // namespace vllm_router
