// The load that a worker reports, from whichever endpoint it has (load_report.h).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "net/task.h"
#include "proxy/client/http_client.h"
#include "proxy/client/load_report.h"
#include "worker/worker_url.h"

namespace vllm_router {

struct LoadResponse {
  std::vector<std::optional<ReportedLoad>> loads;  // of each rank; nullopt if not reported
  bool heard = false;                              // at least one rank was reported
};

// Polls the load of a host's ranks, or of the host itself if it has none, at the endpoint that `source`
// names; if the host lacks that path, at the next one. `source` remembers the result.
Task<LoadResponse> QueryLoad(
    HttpClient& http, CancelScope* scope, WorkerUrl host, std::vector<std::optional<uint32_t>> ranks,
    LoadSource* source, int64_t timeout_ms);

}  // namespace vllm_router
