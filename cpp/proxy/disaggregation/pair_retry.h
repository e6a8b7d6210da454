// PairRetry: whether and when a pair that failed is attempted again, and at which workers. What kind of attempt may follow
// is said by the machine (disaggregation/pd_machine.h).
//
//   failure().Note(…)            what failed: it counts for the pause, and excludes a worker
//   co_await Next(machine)       after the pause: an attempt, whose workers are chosen, or why there is none
//
//   RetryState      attempts, pauses and the budget, as of any request      proxy/exchange/retry_state.h
//   PairFailure     which worker failed, and how                            pair_failure.h
//
// Belongs to one PdExchange. One thread.
#pragma once

#include <cstdint>
#include <optional>

#include "net/task.h"
#include "proxy/disaggregation/pair_choice.h"
#include "proxy/disaggregation/pair_failure.h"
#include "proxy/exchange/retry_state.h"

namespace vllm_router {

class Delay;

class PairRetry {
 public:
  // What follows: a planned attempt of this kind, or an event that says why there is none.
  struct Step {
    std::optional<PdAttemptKind> attempt = {};
    PdEvent event = {};
  };

  // All must outlive it. `info` records what happens.
  PairRetry(IoThread& thread, const Settings& settings, RequestInfo& info, PairChoice& choice);

  void Begin(const RetryState::Request& request) { retries_.Begin(request); }
  // nullopt: the machine does not choose any more, since the client has left.
  Task<std::optional<Step>> Next(const PdMachine& machine);
  // Ends the pause.
  void Cancel();

  PairFailure& failure() { return failure_; }
  // Decode could not be reached.
  bool IsDecodeUnreached() const;
  // The response of this worker is whole.
  void ReportServed(const Worker& worker) const { retries_.ReportServed(worker); }
  // The request is about to be forgotten.
  void KeepDigest() { retries_.KeepDigest(); }

 private:
  void RecordAlone();
  // nullopt: there is no other attempt.
  std::optional<int64_t> PauseBefore(const PdRetry& retry);

  IoThread& thread_;
  RequestInfo& info_;
  PairChoice& choice_;
  RetryState retries_;
  PairFailure failure_;
  bool no_other_pair_ = false;
  Delay* pause_ = nullptr;
};

}  // namespace vllm_router
