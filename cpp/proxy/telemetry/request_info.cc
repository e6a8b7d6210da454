#include "proxy/telemetry/request_info.h"

#include <algorithm>

namespace vllm_router {

std::string_view ExchangeEndName(ExchangeEnd end) {
  constexpr std::string_view kNames[kExchangeEndCount] = {"done",        "no_done",     "client_gone",
                                                          "slow_client", "worker_gone", "worker_error",
                                                          "timeout",     "drain",       "worker_aborted"};
  return kNames[static_cast<size_t>(end)];
}

std::string_view AttemptPhaseName(AttemptPhase phase) {
  switch (phase) {
    case AttemptPhase::kInference:
      return "inference";
    case AttemptPhase::kPrefill:
      return "prefill";
    case AttemptPhase::kDecode:
      return "decode";
  }
  return "";
}

// `chosen_ns` is that of the last choice, and of the only one as long as no attempt has ended.
std::optional<int64_t> RequestInfo::decision_ns() const {
  const int64_t first_ns = attempts_made.empty() ? chosen_ns : attempts_made.front().chosen_ns;
  if (first_ns == 0 || body_ns == 0) return std::nullopt;
  return std::max<int64_t>(0, first_ns - body_ns - queue_ns);
}

}  // namespace vllm_router
