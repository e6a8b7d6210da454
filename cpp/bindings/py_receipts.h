// PyReceipts: the receipts of the tickets that Python has finished, for Router.receipts(). The log is made with the first of
// them. Thread-safe: one writer, under a mutex.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/mutex.h"
#include "receipts/receipt_json.h"
#include "receipts/receipt_log.h"
#include "routing/ticket.h"

namespace vllm_router {

class PyReceipts {
 public:
  PyReceipts(uint32_t count, uint32_t block_tokens) : count_(count), block_tokens_(block_tokens) {}

  // The ticket has ended so. What was not sent has no receipt.
  void Write(const Ticket& ticket, std::string_view model, const Outcome& outcome) {
    if (count_ == 0 || outcome.end == Outcome::End::kNotSent) return;
    ReceiptFacts facts{
        .request_id = {},
        .model = model,
        .policy = ticket.policy().name(),
        .route = {},
        .end = EndName(outcome.end),
        .worker = &ticket.worker(),
        .decision = &ticket.decision(),
        .block_tokens = block_tokens_,
        .prompt_tokens = outcome.prompt_tokens,
        .cached_tokens = outcome.cached_tokens,
        .wall_us = UnixMicros(),
        .status = outcome.status,
        .attempts = 1};
    if (outcome.first_token_ms) facts.first_token_ns = static_cast<int64_t>(*outcome.first_token_ms * 1e6);
    const MutexLock lock(mutex_);
    if (log_ == nullptr)
      log_ = std::make_unique<ReceiptLog>(/*threads=*/1, ReceiptLog::Options{.per_thread = count_});
    log_->writer(0).Write(facts);
  }

  std::string Json(const ReceiptFilter& filter) const {
    const MutexLock lock(mutex_);
    return ReceiptsJson(log_ != nullptr ? log_->Find(filter) : ReceiptLog::Found{});
  }

 private:
  const uint32_t count_;
  const uint32_t block_tokens_;
  mutable Mutex mutex_;
  std::unique_ptr<ReceiptLog> log_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace vllm_router
