// PairFailure: which of a pair's workers failed last, and how. It passes each failure on to what counts failures: the
// RetryState, the metrics, and the health check where decode was to fetch blocks of an engine by its id.
//
//   failure.Note(leg, event, names_engine)    a leg has ended with this event; one that is no failure is passed over
//   failure.NoteDecode(…)                     decode is given up, though its leg has not ended
//
//   prefill    its own request failed
//   decode     likewise
//   transfer   decode had parameters and failed, or got no blocks in time: either worker may be to blame
//
// Belongs to one exchange. One thread.
#pragma once

#include <string_view>

#include "proxy/api/error_response.h"
#include "proxy/disaggregation/pair_choice.h"
#include "proxy/disaggregation/stage_leg.h"
#include "proxy/exchange/retry_state.h"

namespace vllm_router {

struct IoThread;

class PairFailure {
 public:
  // All must outlive it.
  PairFailure(IoThread& thread, PairChoice& choice, RetryState& retries)
      : thread_(thread), choice_(choice), retries_(retries) {}

  // `names_engine`: decode was told which engine has the blocks.
  void Note(StageLeg& leg, const PdEvent& event, bool names_engine);
  void NoteDecode(AttemptFailure how, int status, HttpError error, std::string_view what);

  // Null: none has failed.
  PairChoice::Side* side() const { return side_; }
  bool is_of_decode() const { return side_ == &choice_.decode(); }
  // Its prefill worker could not be reached, as all that have failed at prefill.
  bool IsPrefillUnreached() const { return side_ == &choice_.prefill() && !prefill_was_reached_; }
  std::string_view what() const { return what_; }
  // There was no memory for prefill's response, which is no worker's failure.
  bool lacks_memory() const { return lacks_memory_; }
  // For a client to which no worker's response can be given.
  HttpError error() const { return error_; }

 private:
  IoThread& thread_;
  PairChoice& choice_;
  RetryState& retries_;
  PairChoice::Side* side_ = nullptr;
  std::string_view what_;
  HttpError error_ = HttpError::kWorkerClosed;
  bool prefill_was_reached_ = false;
  bool lacks_memory_ = false;
};

}  // namespace vllm_router
