#include "proxy/telemetry/stage_telemetry.h"

#include "proxy/telemetry/request_info.h"
#include "proxy/telemetry/worker_counters.h"

namespace vllm_router {

std::string_view BootstrapResultName(BootstrapResult result) {
  switch (result) {
    case BootstrapResult::kOk:
      return "ok";
    case BootstrapResult::kNoId:
      return "no_id";
    case BootstrapResult::kUnreachable:
      return "unreachable";
    case BootstrapResult::kInvalid:
      return "invalid";
  }
  return "";
}

void StageTelemetry::BootstrapQueried(const std::shared_ptr<Worker>& worker, BootstrapResult result) {
  workers_.Of(worker).bootstrap_queries[static_cast<size_t>(result)].Add();
}

void StageTelemetry::PairSent(const std::shared_ptr<Worker>& worker) {
  workers_.Of(worker).pair.Get().requests.Add();
}

void StageTelemetry::PairFailed(const std::shared_ptr<Worker>& worker) {
  workers_.Of(worker).pair.Get().errors.Add();
}

void StageTelemetry::PairBrokeOff(const std::shared_ptr<Worker>& worker) {
  workers_.Of(worker).pair.Get().stream_errors.Add();
}

void StageTelemetry::Record(const RequestInfo& record, std::string_view error) {
  const PdInfo& pd = *record.pd;
  StageCounters& counts = counters_.Get();
  if (!pd.kind.empty()) counts.plans.Add(pd.kind);
  if (!pd.local.empty()) counts.local.Add(pd.local);
  if (pd.saved_tokens != 0) counts.bypass_saved_tokens.Add(pd.saved_tokens);
  if (pd.prefill_ns != 0) counts.prefills.Add(pd.prefill_ns);
  if (pd.handoff_ns != 0) counts.handoffs.Add(pd.handoff_ns);
  if (!error.empty()) {
    // The reference router's word for want of a worker of either stage.
    counts.errors.Add(record.error == "no_workers" ? std::string_view("server_selection") : error);
  }
  if (pd.prefill == nullptr) return;
  const auto route = static_cast<size_t>(record.route);
  counts.requests[route].Add();
  counts.durations[route].Get().Add(record.end_ns - record.head_ns);
}

}  // namespace vllm_router
