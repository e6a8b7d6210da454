// EventLoop: one thread's turn-taking: sockets that became ready, timers that came due, functions posted from
// elsewhere. A Boost.Asio io_context behind a light header; sockets come to it by way of a ReadySet.
//
//   EventLoop loop;
//   std::thread thread([&] { loop.Run(); });
//   loop.Post([] { … });      // any thread
//   loop.Stop(); thread.join();
//
// Everything else in this room belongs to one loop and is used on its thread only.
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

  // Lets the others have their turn: co_await loop.Yield().
  struct YieldAwaiter {
    EventLoop* loop;
    bool await_ready() const noexcept { return false; }
    void await_suspend(std::coroutine_handle<> waiter) { loop->Resume(waiter); }
    void await_resume() const noexcept {}
  };
  YieldAwaiter Yield() { return {this}; }
  void Resume(std::coroutine_handle<> waiter);  // in the loop's next turn

  // Waits until every socket that is ready by now has been heard: co_await loop.TurnEnd(). Those who wait go on one after
  // the other, so what they send leaves together: the code that sends is still in the cache, and a peer on this machine
  // is woken once and not for each.
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
  bool in_turn_ = false;                           // the sockets are being heard
  std::vector<std::coroutine_handle<>> turn_end_;  // who waits for the end of this turn
  std::vector<std::coroutine_handle<>> going_on_;  // and who did for that of the last one
};

// Delay: a wait of exact length, unlike the wheel's, that can be cut short. One waiter at a time.
//
//   Delay delay(loop);
//   const bool elapsed = co_await delay.For(5'000'000);   // nanoseconds; false if Cancel() came first
class Delay {
 public:
  explicit Delay(EventLoop& loop);
  ~Delay();  // REQUIRES: nobody waits

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
