// EventLoop runs one thread's ready sockets, due timers and functions posted from other threads. It
// wraps a Boost.Asio io_context behind a light header; sockets reach it through a ReadySet.
//
//   EventLoop loop;
//   std::thread thread([&] { loop.Run(); });
//   loop.Post([] { … });      // any thread
//   loop.Stop(); thread.join();
//
// Everything else in net/ belongs to one loop and is used on that loop's thread only.
#pragma once

#include <coroutine>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "net/timer_wheel.h"

namespace boost::asio {
class io_context;
}

namespace vllm_router {

class ReadySet;

class EventLoop {
 public:
  EventLoop();
  ~EventLoop();
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  void Run();                                 // until Stop()
  void Stop();                                // any thread
  void Post(std::function<void()> function);  // any thread; runs in the loop's next turn

  // Lets other work on the loop run: co_await loop.Yield().
  struct YieldAwaiter {
    EventLoop* loop;
    bool await_ready() const noexcept { return false; }
    void await_suspend(std::coroutine_handle<> waiter) { loop->Resume(waiter); }
    void await_resume() const noexcept {}
  };
  YieldAwaiter Yield() { return {this}; }
  void Resume(std::coroutine_handle<> waiter);  // in the loop's next turn

  // Waits until every socket that is ready now has been handled: co_await loop.TurnEnd(). The waiters
  // resume one after the other, so what they send leaves together: the sending code is still in the
  // cache, and a peer on this machine is woken once, not once per waiter.
  struct TurnEndAwaiter {
    EventLoop* loop;
    bool await_ready() const noexcept { return false; }
    void await_suspend(std::coroutine_handle<> waiter) { loop->ResumeAtTurnEnd(waiter); }
    void await_resume() const noexcept {}
  };
  TurnEndAwaiter TurnEnd() { return {this}; }

  TimerWheel& timers() { return *wheel_; }
  ReadySet& ready_set();
  boost::asio::io_context& context();

 private:
  struct Impl;
  void Tick();
  void AwaitReady();
  void ResumeAtTurnEnd(std::coroutine_handle<> waiter);
  void EndTurn();

  std::unique_ptr<Impl> impl_;
  std::unique_ptr<TimerWheel> wheel_;
  bool in_turn_ = false;                           // the ready sockets are being handled
  std::vector<std::coroutine_handle<>> turn_end_;  // waiters for the end of this turn
  std::vector<std::coroutine_handle<>> going_on_;  // waiters of the last turn, being resumed
};

// Delay: a wait of exact length, unlike the timer wheel's, that can be cancelled. One waiter at a time.
//
//   Delay delay(loop);
//   const bool elapsed = co_await delay.For(5'000'000);   // nanoseconds; false if Cancel() came first
class Delay {
 public:
  explicit Delay(EventLoop& loop);
  ~Delay();  // REQUIRES: no waiter

  struct Awaiter {
    Delay* delay;
    int64_t nanos;
    bool await_ready() const noexcept { return nanos <= 0; }
    void await_suspend(std::coroutine_handle<> waiter) { delay->Start(nanos, waiter); }
    bool await_resume() const noexcept { return nanos <= 0 || delay->elapsed_; }
  };
  Awaiter For(int64_t nanos) { return {this, nanos}; }
  void Cancel();

 private:
  struct Impl;
  void Start(int64_t nanos, std::coroutine_handle<> waiter);

  std::unique_ptr<Impl> impl_;
  bool elapsed_ = false;
};

}  // namespace vllm_router
