// RerunAttempts: attempts of a request whose stream its worker did not finish, at workers that have not had it, until one
// sends a stream:
//
//   RerunAttempts attempts(request);           instead of those that it had (Request::UseAttempts)
//   co_await attempts.RunAgain(failed, worker, sent_ns, copy)     true: response() is the beginning of a stream
//                                                                 false: why_not()
//
// The rules are those of any retry: RetryPlan (the attempts before count), the budget, to which streams under way count as
// requests, and the quarantine, which hears of each worker that was lost.
//
// Without a place at any worker that may have it the request waits for one (place_wait.h), but not beside another's stream.
//
// Attempts beside a worker that goes on with its stream have a record of their own until AddToRequest(), and at most
// kMostBeside of all streams wait for one worker's response: more would be a storm of prompts. Belongs to one exchange. One
// thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "proxy/exchange/attempts.h"
#include "proxy/exchange/request_losses.h"
#include "proxy/exchange/server_errors.h"
#include "proxy/exchange/upstream_request.h"
#include "proxy/exchange/worker_choice.h"
#include "routing/retry_plan.h"

namespace vllm_router {

class Delay;
struct Request;
struct ThreadContinuation;

class RerunAttempts final : public Attempts {
 public:
  static constexpr uint32_t kMostBeside = 4;

  enum class Place : uint8_t { kAlone, kBeside };
  enum class WhyNot : uint8_t {
    kNone,
    kNoWorker,   // all were attempted, or may not be chosen
    kSuspected,  // the request may be what ends workers
    kRetries,    // the failure is of no kind that is retried, there were too many, or the budget is used up
    kWait,       // no worker had a place within --continue-wait-secs
  };

  // Both outlive it; the request has its head and its whole body.
  RerunAttempts(Request& request, ThreadContinuation& continuation, Place place = Place::kAlone);

  // One more may wait for this worker's response beside another's stream.
  static bool HasRoomBeside(const Worker& worker);

  // The attempt at this worker failed like this; null: none did, and the next one may be there again. `sent_ns`: when it got
  // the first byte of the request. `copy`, which outlives the attempts: what workers get now; null: the body as it is.
  Task<bool> RunAgain(
      const FailedAttempt& failed, std::shared_ptr<Worker> worker, int64_t sent_ns, const SplicedBody* copy);
  WhyNot why_not() const { return why_not_; }
  // The last worker was lost with the request, and there is no other attempt; or another worker was.
  void ReportLoss();
  void ReportLossOf(const Worker& worker, int64_t sent_ns);
  // After RunAgain(): waits for more of the response behind in(), as UpstreamRequest::ReadMore().
  Task<bool> ReadMore(int64_t timeout_ms) { return attempt_->response().ReadMore(timeout_ms); }

  // Of attempts beside another's stream: they are over, or what was chosen takes the other's place.
  enum class After : uint8_t { kDropped, kTakesPlace };
  void AddToRequest(After after);

  // Not called: what is served is known already.
  Task<End> Run(const Call& /*call*/) override { co_return End::kFailed; }
  void Cancel() override;
  bool IsAt(const Worker& worker) const override;
  void WorkerDied(const Worker& worker) override;
  bool WorkerDrained(const Worker& worker) override;
  void AddWaits(const Worker& worker, size_t* reads_bodies, std::vector<HangDetector::Wait>* waits) override;
  bool MoveFrom(
      const Worker& /*worker*/, const HangDetector::Doubt& /*doubt*/, size_t* /*reads_bodies*/) override {
    return false;
  }
  bool sent() const override { return attempt_ && attempt_->sender().sent(); }
  void ForgetRequest() override {
    if (attempt_) attempt_->sender().Forget();
  }
  void ResponseEnded(ResponseEnd end) override;
  void RecordTimeout() override {
    if (attempt_) attempt_->outcome().RecordTimeout();
  }
  void SettleServerErrors() override { server_errors_.Ended(); }
  Task<void> Finished() override;

 private:
  void BeginChoosing();
  void CountAttemptsBefore(size_t attempts);
  std::optional<int64_t> PauseAfter(
      FailedAttempt failed, const std::shared_ptr<Worker>& worker, int64_t sent_ns);
  Task<bool> Pause(int64_t pause_ns);
  bool Choose();
  Task<UpstreamRequest::End> Attempt();
  bool HasStream() const;
  FailedAttempt EndFailedAttempt(UpstreamRequest::End end);

  Request& request_;
  ThreadContinuation& continuation_;
  const std::unique_ptr<RequestInfo> own_info_;  // null: not begun beside another
  RequestInfo* info_;                            // the request's, or that
  UpstreamRequest::Message message_;
  RetryPlan plan_;
  RequestLosses losses_;
  WorkerChoice choice_;
  ServerErrors server_errors_;
  std::optional<UpstreamRequest> attempt_;  // the last one; it may have been none
  Delay* pause_ = nullptr;                  // before the next one
  WhyNot why_not_ = WhyNot::kNone;
  bool cancelled_ = false;
  bool attempting_ = false;
  bool is_relayed_ = false;  // the last attempt's response, and no failed one's
  bool any_lost_ = false;
};

}  // namespace vllm_router
