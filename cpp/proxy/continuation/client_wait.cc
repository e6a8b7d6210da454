#include "proxy/continuation/client_wait.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "proxy/api/settings.h"
#include "proxy/continuation/continuation_sink.h"
#include "proxy/exchange/request.h"
#include "proxy/thread/io_thread.h"

namespace vllm_router {

void ClientWait::Begin(ContinuationSink& sink) {
  if (since_ns_ != 0) return;
  sink_ = &sink;
  since_ns_ = request_.thread.clock.NowNanos();
  ArmComment();
}

void ClientWait::End() {
  comment_due_.Disarm();
  const int64_t since_ns = std::exchange(since_ns_, 0);
  if (since_ns != 0) longest_ns_ = std::max(longest_ns_, request_.thread.clock.NowNanos() - since_ns);
}

void ClientWait::ArmComment() {
  comment_due_.Arm(
      request_.thread.loop.timers(), request_.settings.continuation.keepalive_ms, &ClientWait::OnCommentDue,
      this);
}

void ClientWait::OnCommentDue(void* self) {
  auto& wait = *static_cast<ClientWait*>(self);
  if (wait.request_.is_cancelled()) return;  // the sink may be gone
  wait.ArmComment();
  const std::optional<BodySink::Took> took = wait.sink_->WriteComment();
  if (took == BodySink::Took::kAll || took == BodySink::Took::kNotYet) ++wait.comments_;
  if (took == BodySink::Took::kGone) wait.request_.Cancel(CancelReason::kClientGone);
}

}  // namespace vllm_router
