// Task<T>: a coroutine that starts when it is awaited and resumes its awaiter when it ends. One thread:
// the loop's.
//
//   Task<int> Twice(Task<int> inner) { int value = co_await std::move(inner); co_return 2 * value; }
//   Spawn(Serve(connection));            // runs by itself and frees itself at the end
//
// It has no executor and no cancellation of its own. A task waits only for things of net/ (a socket, a
// delay) and is cancelled by closing them. Cost: one piece of the FramePool per task. Exceptions do not
// cross tasks: one that escapes ends the process, since our code reports errors by value.
//
// co_await begins a statement, or follows its `=` or co_return. It is never in a condition, an argument, a
// braced list or an operand, since GCC 12 makes wrong code of some of these. Seen with 12.2 at -O0 and
// -O2, while clang 14 is right:
//
//   while (n < 2 && co_await Next())    awaits when n is 2: && does not protect its right side in a loop
//   b ? co_await A() : Value(), Row{co_await A()}    destroy a temporary twice
//   co_await *pointer                   awaits a copy; a reference's name does not
//
//   const bool more = co_await Next();  // so: a name for the result, then the condition
//   if (!more) break;
//
// For the same reason an awaited call is given no aggregate in braces, no lambda that holds objects, and
// no ?: between objects, as in A({name, text}), A([text] { … }), A(b ? text : name): their destructors
// run twice. Name them first. tests/repo/test_co_await.py finds a co_await in the wrong place.
#pragma once

#include <coroutine>
#include <cstddef>
#include <exception>
#include <optional>
#include <utility>

#include "net/frame_pool.h"

namespace vllm_router {

template <typename T>
class Task;

namespace task_internal {

// Resumes the task's awaiter by symmetric transfer, so chains of tasks do not grow the stack.
struct ResumeAwaiter {
  bool await_ready() const noexcept { return false; }
  template <typename Promise>
  std::coroutine_handle<> await_suspend(std::coroutine_handle<Promise> ended) noexcept {
    return ended.promise().awaiter;
  }
  void await_resume() const noexcept {}
};

struct PromiseBase {
  std::coroutine_handle<> awaiter;
  std::suspend_always initial_suspend() noexcept { return {}; }
  ResumeAwaiter final_suspend() noexcept { return {}; }
  void unhandled_exception() noexcept { std::terminate(); }
  static void* operator new(size_t size) { return FramePool::Acquire(size); }
  static void operator delete(void* frame, size_t size) noexcept { FramePool::Release(frame, size); }
};

template <typename T>
struct Promise : PromiseBase {
  std::optional<T> value;
  Task<T> get_return_object() noexcept;
  void return_value(T result) { value.emplace(std::move(result)); }
  T Take() { return std::move(*value); }
};

template <>
struct Promise<void> : PromiseBase {
  Task<void> get_return_object() noexcept;
  void return_void() noexcept {}
  void Take() noexcept {}
};

}  // namespace task_internal

template <typename T = void>
class [[nodiscard]] Task {
 public:
  using promise_type = task_internal::Promise<T>;

  explicit Task(std::coroutine_handle<promise_type> handle) noexcept : handle_(handle) {}
  Task(Task&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Task& operator=(Task&&) = delete;
  ~Task() {
    if (handle_) handle_.destroy();
  }

  bool await_ready() const noexcept { return false; }
  std::coroutine_handle<> await_suspend(std::coroutine_handle<> awaiter) noexcept {
    handle_.promise().awaiter = awaiter;
    return handle_;
  }
  T await_resume() { return handle_.promise().Take(); }

 private:
  std::coroutine_handle<promise_type> handle_;
};

namespace task_internal {

template <typename T>
Task<T> Promise<T>::get_return_object() noexcept {
  return Task<T>(std::coroutine_handle<Promise>::from_promise(*this));
}
inline Task<void> Promise<void>::get_return_object() noexcept {
  return Task<void>(std::coroutine_handle<Promise>::from_promise(*this));
}

struct Detached {
  struct promise_type {
    Detached get_return_object() noexcept { return {}; }
    std::suspend_never initial_suspend() noexcept { return {}; }
    std::suspend_never final_suspend() noexcept { return {}; }
    void return_void() noexcept {}
    void unhandled_exception() noexcept { std::terminate(); }
  };
};

}  // namespace task_internal

// Starts the task now, on this thread; it frees itself when it ends.
inline void Spawn(Task<void> task) {
  [](Task<void> owned) -> task_internal::Detached { co_await std::move(owned); }(std::move(task));
}

// Signal: one coroutine waits, other code on the same loop notifies; a notification before the wait is
// kept.
class Signal {
 public:
  void Notify() {
    if (waiter_) {
      std::exchange(waiter_, nullptr).resume();
    } else {
      notified_ = true;
    }
  }

  bool await_ready() noexcept { return std::exchange(notified_, false); }
  void await_suspend(std::coroutine_handle<> waiter) noexcept { waiter_ = waiter; }
  void await_resume() const noexcept {}

 private:
  std::coroutine_handle<> waiter_;
  bool notified_ = false;
};

}  // namespace vllm_router
