// CancelScope: work for a client that may leave. Cancel() ends whatever the scope waits for at that moment.
//
//   CancelScope scope(head.via);
//   co_await http.Get(&scope, worker.url, "/v1/models", 5'000);   // ends soon after scope.Cancel()
//   OnCancel leave(scope, [&] { permit.Leave(); });         // so does this wait
//   co_await permit.Acquire(1, timeout_ms);
//
// The coroutine that waits continues in a later turn of the loop, and looks at cancelled(). A scope is cancelled once
// and for ever: requests and pauses that begin in it afterwards end at once, and hooks are not called. Cost: a link in a list for each wait. One thread.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

#include "net/event_loop.h"
#include "net/task.h"

namespace vllm_router {

class CancelScope {
 public:
  // `via`: the Via fields of the client's request; requests in the scope carry them on. Must outlive it.
  explicit CancelScope(std::span<const std::string_view> via) : via_(via) {}
  CancelScope(const CancelScope&) = delete;
  CancelScope& operator=(const CancelScope&) = delete;

  void Cancel();
  bool cancelled() const { return cancelled_; }
  std::span<const std::string_view> via() const { return via_; }
  void set_via(std::span<const std::string_view> via) { via_ = via; }

  // A stopping server does not wait for it, as it may take minutes.
  void set_long(bool is_long = true) { long_ = is_long; }
  bool is_long() const { return long_; }

  // Returns false if the scope is cancelled, before or during the pause.
  Task<bool> Pause(EventLoop& loop, int64_t nanos);
  void EndPause();  // early; likewise in a later turn

  // Called by Cancel(), if that comes while the hook lives. It may only end a wait, not remove other hooks.
  class Hook {
   public:
    Hook(const Hook&) = delete;
    Hook& operator=(const Hook&) = delete;

   protected:
    using Callback = void (*)(Hook*);
    Hook(CancelScope* scope, Callback callback);  // null: no scope
    ~Hook();

   private:
    friend class CancelScope;
    const Callback callback_;
    Hook** link_ = nullptr;  // what points to this one; null: in no scope
    Hook* next_ = nullptr;
  };

 private:
  std::span<const std::string_view> via_;
  bool cancelled_ = false;
  bool long_ = false;
  Hook* hooks_ = nullptr;
  Delay* pause_ = nullptr;
};

// While it lives, scope.Cancel() calls `end`.
template <typename End>
class OnCancel final : CancelScope::Hook {
 public:
  OnCancel(CancelScope& scope, End end) : OnCancel(&scope, std::move(end)) {}
  OnCancel(CancelScope* scope, End end) : Hook(scope, &OnCancel::Call), end_(std::move(end)) {}

 private:
  static void Call(Hook* hook) { static_cast<OnCancel*>(hook)->end_(); }

  End end_;
};

}  // namespace vllm_router
