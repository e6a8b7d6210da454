// RetryPlan: whether a request that failed at one worker gets another attempt, and after what pause.
// Used only while the client has no byte of a response. The policy chooses the next worker, with those
// of earlier attempts excluded.
//
//   RetryPlan plan(options);
//   std::optional<int64_t> pause = plan.Next({.how = AttemptFailure::kStatus, .status = 503}, now, random);   // ns
//
//   pause after failure k    min(initial * multiplier^k, max) * (1 ± jitter)     k = 0, 1, 2 …
//   no worker was reached, and an untried worker is left               none
//   the worker sent Retry-After and no other worker is left            at least that; none if it is long
//
// A connection that ends before the worker has the whole request is retried like one that could not be
// made. If it ends afterwards, the request itself may have crashed its worker; a response that is not
// HTTP may have the same cause. Such a request is sent to `lost_retries` more workers in all, or to none
// if its client is known for such requests.
//
// Pure: the time and the source of random numbers are passed in. One thread. The limit on all retries
// is in retry_budget.h.
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
      1;  // of these, sends after a worker had it and ended the connection, or sent no HTTP
  int64_t initial_backoff_ms = 50;
  int64_t max_backoff_ms = 30'000;
  double backoff_multiplier = 1.5;
  double jitter_factor = 0.2;
  double budget = 0.2;  // share of the requests (retry_budget.h); 0: the constant part alone
};

enum class AttemptFailure : uint8_t {
  kConnect,           // no connection, so the worker knows nothing of the request
  kBroken,            // the connection ended before the worker had all of the request
  kLost,              // it had all of it, and the connection ended before a response's head
  kBadResponse,       // the response is not HTTP
  kSendTimeout,       // the worker stopped reading the request
  kFirstByteTimeout,  // it read it and sent nothing
  kStatus,            // it responded with a status that permits a retry
  kDrained,           // the worker was taken out of the fleet while it had the request; it did not fail
  kMoved,             // it read it, sent nothing, and is in doubt (worker/hang_detector.h)
};

struct FailedAttempt {
  AttemptFailure how = AttemptFailure::kLost;
  int status = 0;                         // with kStatus
  std::optional<int64_t> retry_after_ms;  // with kStatus
  bool untried_left = false;              // an eligible worker without an attempt is left
  bool repeatable = true;                 // a second worker may execute it although one may have begun
  int64_t first_sent_ns = 0;              // of the first attempt that sent anything; 0: none has
};

// 408, 429, 500, 502, 503 and 504, as in vllm-project/router.
bool IsRetryableStatus(int status);

// Seconds of a Retry-After field in milliseconds; nullopt for a date or nonsense.
std::optional<int64_t> ParseRetryAfter(std::string_view value);

class RetryPlan {
 public:
  // `retry_lost`: false if this is denied to the client, whatever the options are.
  explicit RetryPlan(const RetryOptions& options, bool retry_lost = true)
      : options_(&options), lost_left_(retry_lost ? options.lost_retries : 0) {}

  // Whether an attempt of a repeatable request that is under way may be ended for another one.
  bool MayMove() const { return !options_->disabled && failures_ + 1 < options_->max_attempts; }

  // One attempt has failed. Returns the nanoseconds to wait before the next; nullopt: there is none.
  std::optional<int64_t> Next(const FailedAttempt& failed, int64_t now_ns, Random& random);

  uint32_t failures() const { return failures_; }
  // True if it ended only because max_attempts was reached.
  bool exhausted() const { return exhausted_; }

 private:
  int64_t Backoff(Random& random) const;

  const RetryOptions* options_;
  uint32_t lost_left_;
  bool exhausted_ = false;
  uint32_t failures_ = 0;
};

}  // namespace vllm_router
