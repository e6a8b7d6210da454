#include "proxy/admission/eviction.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "proxy/admission/class_pools.h"
#include "proxy/exchange/request.h"
#include "proxy/thread/io_thread.h"
#include "routing/ticket.h"

namespace vllm_router {

void Eviction::Chosen(const Ticket* ticket) {
  Withdraw();
  dispatch_.Chosen(ticket);
  const bool is_first = !std::exchange(chosen_, true);
  const std::shared_ptr<const AdmissionSettings> settings = thread_.rules.Get()->settings;
  if (ticket == nullptr || settings == nullptr || !settings->evicts()) return;
  const PriorityClass of_class = ClassOf(request_);
  if (of_class == PriorityClass::kInteractive) {
    const Worker& worker = ticket->worker();
    const double pace = static_cast<double>(worker.prefill_pace.load(std::memory_order_relaxed));
    thread_.pools.evictables().EvictAt(worker.id, *settings, pace, request_.thread.clock.NowNanos());
  } else if (is_first && settings->of(of_class).evict) {
    List(*ticket);
  }
}

// Where the policy reads no prompts its length is estimated.
void Eviction::List(const Ticket& ticket) {
  const bool is_counted = request_.key.prompt_tokens > 1;
  const uint64_t tokens = is_counted ? ticket.prefill_tokens() : PromptTokensOf(request_, false);
  listing_ = std::make_shared<Listing>(Listing{.of = this});
  worker_ = ticket.worker().id;
  number_ = thread_.pools.evictables().Add(
      worker_,
      {.of_class = ClassOf(request_),
       .tokens = static_cast<uint32_t>(std::min<uint64_t>(tokens, std::numeric_limits<uint32_t>::max())),
       .chosen_ns = request_.thread.clock.NowNanos(),
       .evictions = evictions_},
      [&loop = request_.thread.loop, listing = listing_] {
        loop.Post([listing] {
          if (listing->of != nullptr) listing->of->Evict();
        });
      });
}

void Eviction::Withdraw() {
  if (listing_ == nullptr) return;
  listing_->of = nullptr;
  listing_ = nullptr;
  thread_.pools.evictables().Remove(worker_, number_);
}

void Eviction::Evict() {
  Withdraw();
  // A stopping server waits for no queue.
  if (request_.thread.draining || !request_.attempts->Evict()) return;
  evicted_ = true;
  ++evictions_;
  thread_.evicted[static_cast<size_t>(ClassOf(request_))].Add();
  if (request_.info.identity != nullptr) request_.info.identity->evictions = evictions_;
}

Task<Verdict> Eviction::WaitAgain() {
  Withdraw();
  chosen_ = false;
  Verdict verdict = Verdict::kNext;
  if (std::exchange(evicted_, false)) {
    verdict = co_await dispatch_.WaitInFront();
  } else {
    verdict = co_await dispatch_.WaitAgain();
  }
  co_return verdict;
}

}  // namespace vllm_router
