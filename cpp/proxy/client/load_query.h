// What load a worker reports, wherever it does so (load_report.h).
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
  std::vector<std::optional<ReportedLoad>> loads;  // of each rank; none where the worker does not say
  bool heard = false;                              // it reported at least one
};

// Of the ranks of a host (of the host itself for one without rank), polled where `source` says and, where the host has no
// such path, at the next one. `source` remembers which.
Task<LoadResponse> QueryLoad(
    HttpClient& http, CancelScope* scope, WorkerUrl host, std::vector<std::optional<uint32_t>> ranks,
    LoadSource* source, int64_t timeout_ms);

}  // namespace vllm_router
