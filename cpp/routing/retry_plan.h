// RetryPlan: whether a request that failed at one worker is tried again, and after what pause. Asked only while the
// client has no byte of an answer; which worker is next is the policy's question, with the tried ones left out.
//
//   RetryPlan plan(options, /*repeatable=*/true);
//   std::optional<int64_t> pause = plan.Next({.how = AttemptFailure::kStatus, .status = 503}, now, random);   // ns
//
//   pause after failure k    min(initial * multiplier^k, max) * (1 ± jitter)     k = 0, 1, 2 …
//   nobody was reached, and an untried worker is left                  none
//   the worker said Retry-After and nobody else is left                at least that, or no retry if it is long
//
// A connection that ends before the request is whole at the worker is tried again like one that could not be made. One that
// ends afterwards may have been ended by the request itself, which may have crashed its worker, and what is not HTTP may
// be its work as well: such a request is given to `lost_retries` more workers in all, or to none if its client is known for
// such requests.
//
// Pure: the time and the random are passed in. One thread. How many retries there may be in all says retry_budget.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/random.h"

namespace vllm_router {

struct RetryOptions {
  bool disabled = false;
  uint32_t max_attempts = 5;  // sends in total; 1: no retries
  uint32_t lost_retries =
      1;  // of these, sends after a worker had it and ended the connection, or spoke no HTTP
  int64_t initial_backoff_ms = 50;
  int64_t max_backoff_ms = 30'000;
  double backoff_multiplier = 1.5;
  double jitter_factor = 0.2;
  double budget = 0.2;  // share of the requests (retry_budget.h); 0: the constant part alone
};

enum class AttemptFailure : uint8_t {
  kConnect,           // no connection, so the worker knows nothing of the request
  kBroken,            // the connection ended before the worker had all of the request
  kLost,              // it had all of it, and the connection ended before an answer's head
  kBadResponse,       // what came is not HTTP
  kSendTimeout,       // the worker stopped taking the request
  kFirstByteTimeout,  // it took it and said nothing
  kStatus,            // it answered with a status that asks for another try
};

struct FailedAttempt {
  AttemptFailure how = AttemptFailure::kLost;
  int status = 0;                         // with kStatus
  std::optional<int64_t> retry_after_ms;  // with kStatus
  bool untried_left = false;              // somebody may be chosen who was not tried
  int64_t first_sent_ns = 0;              // of the first try that sent anything; 0: none has
};

// 408, 429, 500, 502, 503 and 504, as in vllm-project/router.
bool IsRetryableStatus(int status);

// Seconds of a Retry-After field in milliseconds; nullopt for a date or nonsense.
std::optional<int64_t> ParseRetryAfter(std::string_view value);

class RetryPlan {
 public:
  // `repeatable`: doing it twice does no harm, so it may be sent again although a worker may have begun.
  // `retry_lost`: false where that is denied to the client, whatever the options say.
  RetryPlan(const RetryOptions& options, bool repeatable, bool retry_lost = true)
      : options_(&options), repeatable_(repeatable), lost_left_(retry_lost ? options.lost_retries : 0) {}

  // One try has failed. Nanoseconds to wait before the next; nullopt: there is none.
  std::optional<int64_t> Next(const FailedAttempt& failed, int64_t now_ns, Random& random);

  uint32_t failures() const { return failures_; }
  // It ended for want of tries, and for no other reason.
  bool exhausted() const { return exhausted_; }

 private:
  int64_t Backoff(Random& random) const;

  const RetryOptions* options_;
  bool repeatable_;
  uint32_t lost_left_;
  bool exhausted_ = false;
  uint32_t failures_ = 0;
};

}  // namespace vllm_router
