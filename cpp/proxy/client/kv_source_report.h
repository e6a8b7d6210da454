// What a worker reports about its KV events and its models:
//
//   GET /kv_event_sources   vLLM: {"0": {"endpoint": "tcp://*:5557", "replay_endpoint": "tcp://*:5558", ...}, "1": ...}
//   GET /server_info        SGLang: {"kv_events": {"endpoint_host": "*", "endpoint_port_base": 5557, "dp_size": 1, ...}}
//   GET /v1/models          {"data": [{"id": "m"}, {"id": "adapter", "parent": "m"}]}
//
// Strict about what it uses: a malformed entry is left out. At most kMaxKvRanks ranks and kMaxReportedModels
// names. Pure; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "events/kv_source.h"

namespace vllm_router {

inline constexpr size_t kMaxReportedModels = 64;

struct ReportedSource {
  uint32_t rank = 0;
  std::string endpoint;         // as the engine binds it
  std::string replay_endpoint;  // empty: none
  std::string topic;

  friend bool operator==(const ReportedSource&, const ReportedSource&) = default;
};

// Those that publish over ZeroMQ, by rank; nullopt if `json` is no such report.
std::optional<std::vector<ReportedSource>> SourcesInReport(std::string_view json);
std::optional<std::vector<ReportedSource>> SourcesInServerInfo(std::string_view json);

// The names of the base model: the models without a parent, in their order.
std::vector<std::string> BaseModelsIn(std::string_view json);

}  // namespace vllm_router
