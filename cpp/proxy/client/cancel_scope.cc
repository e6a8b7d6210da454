#include "proxy/client/cancel_scope.h"

namespace vllm_router {

CancelScope::Hook::Hook(CancelScope* scope, Callback callback) : callback_(callback) {
  if (scope == nullptr) return;
  link_ = &scope->hooks_;
  next_ = scope->hooks_;
  if (next_ != nullptr) next_->link_ = &next_;
  scope->hooks_ = this;
}

CancelScope::Hook::~Hook() {
  if (link_ == nullptr) return;
  *link_ = next_;
  if (next_ != nullptr) next_->link_ = link_;
}

void CancelScope::Cancel() {
  cancelled_ = true;
  for (Hook* hook = hooks_; hook != nullptr; hook = hook->next_) hook->callback_(hook);
  EndPause();
}

void CancelScope::EndPause() {
  if (pause_ != nullptr) pause_->Cancel();
}

Task<bool> CancelScope::Pause(EventLoop& loop, int64_t nanos) {
  if (cancelled_) co_return false;
  Delay delay(loop);
  pause_ = &delay;
  co_await delay.For(nanos);
  pause_ = nullptr;
  co_return !cancelled_;
}

}  // namespace vllm_router
