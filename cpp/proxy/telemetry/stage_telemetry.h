// StageTelemetry: what one thread counts at requests to a fleet with stages: plans, pairs of a prefill and a decode worker,
// claims on KV blocks. That thread writes, any other may read the counters (counters.h).
//
// Words that are counted by live forever: they are constants.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "proxy/api/routes.h"
#include "proxy/telemetry/buckets.h"
#include "proxy/telemetry/counters.h"

namespace vllm_router {

class WorkerCounterMap;
struct RequestInfo;
struct Worker;

// What came of asking a prefill worker's bootstrap server for its engine id.
enum class BootstrapResult : uint8_t {
  kOk,
  kNoId,         // of this rank
  kUnreachable,  // or not in time
  kInvalid,      // another status than 200, too long, or not what bootstrap servers say
};
inline constexpr size_t kBootstrapResultCount = 4;
std::string_view BootstrapResultName(BootstrapResult result);

struct StageCounters {
  LabeledCounters plans;   // by kind
  LabeledCounters local;   // by reason
  LabeledCounters claims;  // by end
  Counter bypass_saved_tokens;
  std::array<Counter, kNamedRoutes> requests;  // that a pair was chosen for
  std::array<Lazy<DurationHistogram>, kNamedRoutes> durations;
  LabeledCounters errors;     // by error type
  LabeledCounters retries;    // by what had failed
  LabeledCounters cancelled;  // by state
  WorkerWaitHistogram prefills;
  OverheadHistogram handoffs;
};

class StageTelemetry {
 public:
  // `workers`, of the same thread, outlives it.
  explicit StageTelemetry(WorkerCounterMap& workers) : workers_(workers) {}

  // How KV blocks at a prefill worker ended.
  void ClaimEnded(std::string_view end) { counters_.Get().claims.Add(end); }
  void BootstrapQueried(const std::shared_ptr<Worker>& worker, BootstrapResult result);
  // One of a pair's two requests is sent; fails before a byte for the client; breaks off behind it.
  void PairSent(const std::shared_ptr<Worker>& worker);
  void PairFailed(const std::shared_ptr<Worker>& worker);
  void PairBrokeOff(const std::shared_ptr<Worker>& worker);
  // There is another attempt, since `failed` did.
  void PairRetried(std::string_view failed) { counters_.Get().retries.Add(failed); }
  // The client has left, or the request was ended otherwise, in this state.
  void PairCancelled(std::string_view state) { counters_.Get().cancelled.Add(state); }
  // Members of a client's request that were removed.
  void MembersRemoved(std::string_view name, uint64_t count) {
    if (count != 0) removed_members_.Get().Add(name, count);
  }
  // At the end of an exchange. `error`: its type; empty after a complete 2xx response. REQUIRES: record.pd.
  void Record(const RequestInfo& record, std::string_view error);

  // Null while nothing has been counted.
  const StageCounters* counters() const { return counters_.Find(); }
  const LabeledCounters* removed_members() const { return removed_members_.Find(); }

 private:
  WorkerCounterMap& workers_;
  Lazy<StageCounters> counters_;
  Lazy<LabeledCounters> removed_members_;  // by name
};

}  // namespace vllm_router
