#include "proxy/admission/past_prompt.h"

#include <algorithm>
#include <utility>

#include "admission/whole_responses.h"
#include "base/time_units.h"
#include "proxy/exchange/request.h"
#include "proxy/thread/io_thread.h"

namespace vllm_router {
namespace {

constexpr int64_t kRetryLookNs = 200 * kNanosPerMs;  // for a retry

}  // namespace

void PastPrompt::Begin() {
  if (is_whole_ == nullptr) return;
  chosen_ns_ = request_.thread.clock.NowNanos();
  Arm(WholeResponses::PrefillNs(request_.info.prefill_tokens));
}

void PastPrompt::End() {
  Stop();
  Uncount();
}

void PastPrompt::Uncount() {
  if (counted_) counts_.Add(*std::exchange(counted_, std::nullopt), tokens_, -1);
}

void PastPrompt::Arm(int64_t wait_ns) {
  timer_.Arm(
      request_.thread.loop.timers(), std::max<int64_t>(1, wait_ns / kNanosPerMs), &PastPrompt::OnTimer, this);
}

// When the timer was armed the worker was being chosen, so the number of tokens may be known only now.
void PastPrompt::OnTimer(void* self_pointer) {
  auto* const self = static_cast<PastPrompt*>(self_pointer);
  const RequestInfo& info = self->request_.info;
  const int64_t now_ns = self->request_.thread.clock.NowNanos();
  if (self->counted_) {
    if (info.worker == nullptr || info.worker->id == *self->counted_) return self->Arm(kRetryLookNs);
    self->Uncount();
    self->chosen_ns_ = now_ns;
  }
  const int64_t left_ns = WholeResponses::PrefillNs(info.prefill_tokens) - (now_ns - self->chosen_ns_);
  if (info.worker == nullptr || left_ns > 0) return self->Arm(left_ns);
  // Most have responded by now, so that their bodies need not be read for this.
  if (!self->is_whole_(self->request_)) return;
  self->counted_ = info.worker->id;
  self->tokens_ = info.prefill_tokens;
  self->counts_.Add(*self->counted_, self->tokens_, 1);
  self->Arm(kRetryLookNs);
  self->passed_(self->context_);
}

}  // namespace vllm_router
