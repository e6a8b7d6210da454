// PrefixSource: where a worker streams events about the prefixes in its KV cache, as an operator names it.
//
//   vllm-1=http://w1:8000/v1/kv_events                                       the worker at w1:8000
//   vllm-1=http://w1:9000/events,reconnect_interval_ms=5000,worker=http://w1:8000
//
// The name stands in metrics and admin responses. Pure; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"
#include "worker/fleet_view.h"
#include "worker/worker_url.h"

namespace vllm_router {

struct PrefixSource {
  static constexpr int64_t kDefaultReconnectMs = 1'000;
  static constexpr int64_t kLongestReconnectMs = 60'000;

  std::string name;
  WorkerUrl endpoint;  // host and port
  std::string target;  // path and query
  int64_t reconnect_ms = kDefaultReconnectMs;
  std::string worker;  // URL; empty: the worker at the endpoint's host and port
};

// InvalidArgument (Unimplemented for WebSocket) names `option`, the value, the limit and the remedy.
StatusOr<PrefixSource> ParsePrefixSource(std::string_view option, std::string_view value);

// The source's worker, by position. NotFound if there is none, InvalidArgument if there is more than one,
// with the source, the reason and the remedy.
StatusOr<uint32_t> FindWorkerOf(const PrefixSource& source, const FleetView& fleet);

}  // namespace vllm_router
