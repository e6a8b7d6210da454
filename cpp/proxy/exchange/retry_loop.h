// RetryLoop: attempts at one worker each: SELECT (worker_choice.h), and what follows it (upstream_request.h).
// After a failed one, retry_state.h decides whether there is another.
//
//   SELECT -> UpstreamRequest -> responded         workers that were attempted are left out, while there
//     ^             |                              are others
//     `-- pause <---+---> no retry: the client gets the last failure
//                   `---> evicted: Run() again, later
//
// Its results are those of attempts.h.
//
// Belongs to one exchange.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "proxy/api/request_id.h"
#include "proxy/exchange/attempts.h"
#include "proxy/exchange/kept_response.h"
#include "proxy/exchange/retry_state.h"
#include "proxy/exchange/upstream_request.h"
#include "proxy/exchange/worker_choice.h"

namespace vllm_router {

class Delay;
struct Settings;

class RetryLoop final : public Attempts {
 public:
  // All must outlive it. `info` records what happens.
  RetryLoop(
      IoThread& thread, const Settings& settings, RequestInfo& info, const UpstreamRequest::Hooks& hooks);

  Task<End> Run(const Call& call) override;

  void Cancel() override;
  bool IsAt(const Worker& worker) const override { return info_.worker.get() == &worker; }
  void WorkerDied(const Worker& worker) override;
  bool WorkerDrained(const Worker& worker) override;
  void AddWaits(const Worker& worker, size_t* reads_bodies, std::vector<HangDetector::Wait>* waits) override;
  bool MoveFrom(const Worker& worker, const HangDetector::Doubt& doubt, size_t* reads_bodies) override;
  bool Evict() override;
  bool sent() const override { return attempt_ && attempt_->sender().sent(); }
  void ForgetRequest() override;
  void ResponseEnded(ResponseEnd end) override;
  void RecordTimeout() override;
  void SettleServerErrors() override { server_errors_.Ended(); }
  Task<void> Finished() override;

 private:
  // Counts a request that was in flight at a lost worker at the worker that gets it next.
  class Endangers {
   public:
    Endangers() = default;
    ~Endangers() { End(); }
    Endangers(const Endangers&) = delete;
    Endangers& operator=(const Endangers&) = delete;
    void Begin(const std::shared_ptr<Worker>& worker) {
      End();
      worker->lost_elsewhere.fetch_add(1, std::memory_order_relaxed);
      worker_ = worker;
    }
    void End() {
      if (worker_ != nullptr) worker_->lost_elsewhere.fetch_sub(1, std::memory_order_relaxed);
      worker_ = nullptr;
    }

   private:
    std::shared_ptr<Worker> worker_;
  };

  bool WaitsAt(const Worker& worker) const {
    return attempting_ && IsAt(worker) && attempt_->AwaitsFirstByte();
  }
  bool MayMove() const;
  void LeaveEvicted();
  bool HasBadBody() const;
  bool HasConnection() const { return attempt_ && attempt_->connection().is_leased(); }
  std::optional<WorkerChoice::Selected> Select();
  FailedAttempt Failure() const;
  Task<bool> WaitForNextAttempt(int64_t pause_ns);
  void KeepResponse();
  bool UseKeptResponse();

  IoThread& thread_;
  const Settings& settings_;
  RequestInfo& info_;
  const UpstreamRequest::Hooks hooks_;
  Call request_{};
  bool cancelled_ = false;
  bool attempting_ = false;  // the last attempt has not ended
  bool evicted_ = false;     // it ends since another request needs its worker

  RetryState retries_;
  WorkerChoice choice_;
  Delay* pause_ = nullptr;  // before the next attempt
  bool lost_once_ = false;  // in this or an earlier attempt, so only fresh connections are used
  Endangers endangers_;     // the worker of this attempt, if there was a loss before
  ServerErrors server_errors_;
  std::optional<UpstreamRequest> attempt_;  // the last one

  // The last response of a failed attempt: for the client, if no other worker responds.
  std::optional<KeptResponse> kept_;
};

}  // namespace vllm_router
