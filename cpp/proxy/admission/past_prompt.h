// PastPrompt: a response in one piece whose prompt is past, by an estimate (whole_responses.h), while its worker's own load
// counts it as waiting for its first token to the end.
//
//   Begin()   its worker is chosen        the estimate passes ──▶ it is counted there, and `passed` is called
//   Stop()    a worker responds: nothing more is estimated       a retry is estimated anew at its worker
//   End()     its load counts it as past its prompt, or it has ended
//
// Belongs to one request. One thread.
#pragma once

#include <cstdint>
#include <optional>

#include "net/timer_wheel.h"
#include "worker/worker.h"

namespace vllm_router {

struct Request;
class WholeResponses;

class PastPrompt {
 public:
  // `is_whole`: the response to the body, which is held until a worker responds, comes in one piece; null: not known, as of a
  // body that is not held. All outlive it.
  using IsWhole = bool (*)(const Request& request);
  PastPrompt(
      const Request& request, WholeResponses& counts, IsWhole is_whole, Timer::Callback passed, void* context)
      : request_(request), counts_(counts), is_whole_(is_whole), passed_(passed), context_(context) {}
  ~PastPrompt() { End(); }
  PastPrompt(const PastPrompt&) = delete;
  PastPrompt& operator=(const PastPrompt&) = delete;

  void Begin();
  void Stop() { timer_.Disarm(); }
  void End();

 private:
  void Arm(int64_t wait_ns);
  void Uncount();
  static void OnTimer(void* self);

  const Request& request_;
  WholeResponses& counts_;
  const IsWhole is_whole_;
  const Timer::Callback passed_;
  void* const context_;
  Timer timer_;
  int64_t chosen_ns_ = 0;
  std::optional<WorkerId> counted_;  // where
  uint32_t tokens_ = 0;              // of its prompt, as counted
};

}  // namespace vllm_router
