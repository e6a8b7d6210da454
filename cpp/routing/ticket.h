// Ticket: guarantees that load is released. Made by Router::Select, it adds this request's load to its
// worker; Finish or destruction subtracts it again, exactly once, on every path. Nothing else touches
// the counters.
//
//   StatusOr<Ticket> ticket = router->Select(key, view);
//   ... ticket->MoveTo(std::move(*other));                     // the host sent it to another worker
//   ... ticket->FirstToken();                                  // prefill is done; its share goes back early
//   ticket->Finish({.end = Outcome::End::kFinished, .status = 200});
//
// Move-only. Not thread-safe except Finish()/FirstToken()/MoveTo(), which may race: an atomic state
// decides. Reading the worker or the decision must not race with MoveTo(). Outlives the router and the
// worker's membership: it shares ownership of both policy and worker.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "policy/decision.h"
#include "policy/policy.h"
#include "worker/bytes_per_token.h"
#include "worker/worker.h"

namespace vllm_router {

// The size of a prompt whose tokens the worker may report, so that estimates of later prompts improve.
struct PromptSize {
  uint64_t bytes = 0;                 // of text, or four per token id; 0: nothing to learn
  BytesPerToken* of_model = nullptr;  // for text; lives as long as the policy
};

class Ticket {
 public:
  Ticket() = default;  // holds nothing; already finished
  // Reserves `share` on the worker.
  Ticket(
      std::shared_ptr<Policy> policy, std::shared_ptr<Worker> worker, const Decision& decision,
      LoadShare share, PromptSize prompt = {});
  // The same, unless the worker has `most` open requests already.
  static std::optional<Ticket> MakeBelow(
      int64_t most, std::shared_ptr<Policy> policy, std::shared_ptr<Worker> worker, const Decision& decision,
      LoadShare share, PromptSize prompt = {});
  Ticket(Ticket&& other) noexcept;
  Ticket& operator=(Ticket&& other) noexcept;
  ~Ticket();  // as Finish({kNotSent}) unless already finished

  const Worker& worker() const { return *worker_; }
  const std::shared_ptr<Worker>& shared_worker() const { return worker_; }
  const Decision& decision() const { return decision_; }
  const Policy& policy() const { return *policy_; }
  // To compute at the worker, as its load has it.
  uint32_t prefill_tokens() const { return share_.queued_prefill; }
  bool finished() const { return (state_.load(std::memory_order_acquire) & kFinished) != 0; }

  // The caller chose the worker, so the policy's reason does not apply.
  void CallPinned() { decision_.reason = Reason::kPinned; }

  // The request went to the worker of `next` instead: this ticket becomes `next`, and its former state
  // ends as not sent, so that the load is on one of the two workers at any time. False: it is finished,
  // and `next` ends as not sent. REQUIRES: `next` is not finished, and no other thread uses it.
  bool MoveTo(Ticket&& next);

  // Returns the prefill share and tells the policy, once. `now_ns`: by the clock of RoutingKey::now_ns; 0: SteadyClock's.
  void FirstToken(int64_t now_ns = 0);
  // Returns the load and tells the policy, with the time of the first token. True for the call that did it.
  bool Finish(const Outcome& outcome);

 private:
  static constexpr uint8_t kFirstToken = 1;
  static constexpr uint8_t kFinished = 2;
  static constexpr uint8_t kBusy = 4;  // the worker is being read or replaced, for some nanoseconds

  // Sets `bits` as soon as the ticket is not busy, unless it has one of `unless`. Returns the state
  // before, or the one that prevented it.
  uint8_t SetState(uint8_t bits, uint8_t unless);

  std::shared_ptr<Policy> policy_;
  std::shared_ptr<Worker> worker_;
  Decision decision_;
  LoadShare share_;
  PromptSize prompt_;
  int64_t first_token_ns_ = 0;
  std::atomic<uint8_t> state_{kFinished};
};

}  // namespace vllm_router
