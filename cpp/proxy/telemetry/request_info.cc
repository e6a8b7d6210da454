#include "proxy/telemetry/request_info.h"

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

}  // namespace vllm_router
