// RetryState: whether a request that failed is sent again, and when. Both kinds of Attempts (attempts.h) go by it, so that
// a change of a rule is made here.
//
//   Begin(request)           it counts in the budget, once
//   Failed(failure, attempt) an attempt has failed; one that was lost is reported to the quarantine
//   Next(untried_left)       the pause before the next attempt; nullopt: there is none
//
//   RetryPlan        the failures, the pause and the maximum of attempts      routing/retry_plan.h
//   RequestLosses    a request that may have ended two workers                request_losses.h
//   RetryBudget      the retries of all requests together                     routing/retry_budget.h
//
// A retry takes from the budget, unless no worker knows of the request. What was granted is counted: in the record of
// the request and at the worker that failed. Costs nothing until there is a failure. Belongs to one exchange. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "proxy/exchange/request_losses.h"
#include "proxy/exchange/upstream_message.h"
#include "proxy/exchange/upstream_request.h"
#include "routing/retry_plan.h"

namespace vllm_router {

struct IoThread;
struct RequestInfo;
struct Settings;
struct Worker;

class RetryState {
 public:
  // What it refers to outlives the state.
  struct Request {
    const UpstreamMessage* message;
    std::string_view id;
    bool repeatable;  // to execute it twice does no harm
    // The same, by the body, which is read only after a failure or before a move; null: no body says so.
    bool (*leaves_nothing)(std::string_view) = nullptr;
    bool client_restricted;  // by the quarantine: not given to a second worker after a loss
  };

  // All must outlive it. `info` records what happens.
  RetryState(IoThread& thread, const Settings& settings, RequestInfo& info);

  // Again where no worker had room before: it does not count twice.
  void Begin(const Request& request);

  // An attempt has failed. `first_sent_ns` of the failure is filled in.
  void Failed(const FailedAttempt& failure, const UpstreamRequest& attempt);
  // The worker does not go on, though its attempt has not said so.
  void Failed(AttemptFailure how, int status, std::shared_ptr<Worker> worker);
  const FailedAttempt& failure() const { return failure_; }  // the last one
  // Whether it counts against its worker, which was not drained or moved away from.
  bool IsBlamed() const { return blamed_ != nullptr; }
  // Whether the connection ended after the worker had a part of the request.
  bool WasLost() const { return IsLoss(failure_.how); }

  // REQUIRES: Failed(). `untried_left`: an eligible worker without an attempt is left.
  std::optional<int64_t> Next(bool untried_left);

  // An attempt that waits may be ended, once for each request, so that another worker gets it: a request that makes
  // engines hang costs two workers, as one that ends them does. Then the budget decides.
  bool MayMove() const;
  bool TakeMove(int64_t now_ns);
  // It may be sent again though a worker has it.
  bool MayRepeat() const { return request_.message->replayable() && IsRepeatable(); }

  // For the quarantine: the request was served after all; it is about to be forgotten.
  void ReportServed(const Worker& worker) const { losses_.ReportServed(worker, request_.id); }
  void KeepDigest() { losses_.Keep(*request_.message); }

 private:
  static bool IsLoss(AttemptFailure how) {
    return how == AttemptFailure::kLost || how == AttemptFailure::kBroken;
  }

  bool IsRepeatable() const;

  IoThread& thread_;
  const Settings& settings_;
  RequestInfo& info_;
  Request request_{};
  std::optional<RetryPlan> plan_;
  RequestLosses losses_;
  FailedAttempt failure_;
  std::shared_ptr<Worker> blamed_;  // for the last failure; null: none is
  bool moved_ = false;
};

}  // namespace vllm_router
