#include "routing/ticket.h"

#include <thread>
#include <utility>

#include "base/check.h"
#include "base/clock.h"

namespace vllm_router {

Ticket::Ticket(
    std::shared_ptr<Policy> policy, std::shared_ptr<Worker> worker, const Decision& decision, LoadShare share,
    PromptSize prompt)
    : policy_(std::move(policy)),
      worker_(std::move(worker)),
      decision_(decision),
      share_(share),
      prompt_(prompt),
      state_(0) {
  worker_->load.Take(share_);
}

std::optional<Ticket> Ticket::MakeBelow(
    int64_t most, std::shared_ptr<Policy> policy, std::shared_ptr<Worker> worker, const Decision& decision,
    LoadShare share, PromptSize prompt) {
  if (!worker->load.TakeBelow(share, most)) return std::nullopt;
  std::optional<Ticket> ticket(std::in_place);
  ticket->policy_ = std::move(policy);
  ticket->worker_ = std::move(worker);
  ticket->decision_ = decision;
  ticket->share_ = share;
  ticket->prompt_ = prompt;
  ticket->state_.store(0, std::memory_order_release);
  return ticket;
}

// The moved-from ticket is finished, so its destructor returns nothing. No other thread uses it.
Ticket::Ticket(Ticket&& other) noexcept
    : policy_(std::move(other.policy_)),
      worker_(std::move(other.worker_)),
      decision_(other.decision_),
      share_(other.share_),
      prompt_(other.prompt_),
      first_token_ns_(other.first_token_ns_),
      state_(other.state_.load(std::memory_order_acquire)) {
  other.state_.store(kFinished, std::memory_order_relaxed);
}

Ticket& Ticket::operator=(Ticket&& other) noexcept {
  if (this == &other) return *this;
  Finish({.end = Outcome::End::kNotSent});
  policy_ = std::move(other.policy_);
  worker_ = std::move(other.worker_);
  decision_ = other.decision_;
  share_ = other.share_;
  prompt_ = other.prompt_;
  first_token_ns_ = other.first_token_ns_;
  state_.store(other.state_.exchange(kFinished, std::memory_order_acq_rel), std::memory_order_release);
  return *this;
}

Ticket::~Ticket() { Finish({.end = Outcome::End::kNotSent}); }

uint8_t Ticket::SetState(uint8_t bits, uint8_t unless) {
  uint8_t before = state_.load(std::memory_order_acquire);
  for (;;) {
    if ((before & unless) != 0) return before;
    if ((before & kBusy) != 0) {
      std::this_thread::yield();
      before = state_.load(std::memory_order_acquire);
    } else if (state_.compare_exchange_weak(
                   before, before | bits, std::memory_order_acq_rel, std::memory_order_acquire)) {
      return before;
    }
  }
}

bool Ticket::MoveTo(Ticket&& next) {
  ROUTER_CHECK(!next.finished(), "a ticket moves to one that is open");
  Ticket other(std::move(next));
  const uint8_t before = SetState(kBusy, kFinished);
  if ((before & kFinished) != 0) return false;
  std::swap(policy_, other.policy_);
  std::swap(worker_, other.worker_);
  std::swap(decision_, other.decision_);
  std::swap(share_, other.share_);
  std::swap(prompt_, other.prompt_);
  // A first token from the previous worker does not count for this one.
  state_.store(other.state_.exchange(before, std::memory_order_relaxed), std::memory_order_release);
  return true;
}

void Ticket::FirstToken(int64_t now_ns) {
  const uint8_t before = SetState(kFirstToken | kBusy, kFirstToken | kFinished);
  if (before != 0) return;
  worker_->load.EndWait(share_);
  first_token_ns_ = now_ns != 0 ? now_ns : SteadyClock().NowNanos();
  policy_->ObserveFirstToken(decision_, first_token_ns_);
  state_.fetch_and(static_cast<uint8_t>(~kBusy), std::memory_order_release);
}

bool Ticket::Finish(const Outcome& outcome) {
  // The call that sets the bit returns the load. A first token that lost the race leaves its share to
  // this call; one that won has returned it. A finished ticket is not moved, so worker and policy stay.
  const uint8_t before = SetState(kFinished, kFinished);
  if ((before & kFinished) != 0) return false;
  worker_->load.Return(share_, (before & kFirstToken) == 0);
  Outcome timed = outcome;
  if ((before & kFirstToken) != 0) timed.first_token_ns = first_token_ns_;
  policy_->Observe(decision_, timed);
  if (outcome.prompt_tokens && prompt_.bytes != 0) {
    worker_->bytes_per_token.Learn(prompt_.bytes, *outcome.prompt_tokens);
    if (prompt_.of_model != nullptr) prompt_.of_model->Learn(prompt_.bytes, *outcome.prompt_tokens);
  }
  return true;
}

}  // namespace vllm_router
