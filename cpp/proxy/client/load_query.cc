#include "proxy/client/load_query.h"

#include <algorithm>
#include <string>
#include <utility>

namespace vllm_router {
namespace {

using Ranks = std::vector<std::optional<uint32_t>>;

// Whether the status means that the path does not exist, rather than that an error occurred.
bool IsLacking(int status) { return status == 404 || status == 405 || status == 501; }

std::vector<std::optional<ReportedLoad>> Read(LoadSource::At at, std::string_view body, const Ranks& ranks) {
  std::vector<std::optional<ReportedLoad>> loads;
  for (const std::optional<uint32_t> rank : ranks) {
    std::optional<ReportedLoad> load;
    if (at == LoadSource::At::kMetrics) load = LoadInMetrics(body, rank);
    if (at == LoadSource::At::kGetLoad && !rank) load = LoadInGetLoad(body);
    if (at == LoadSource::At::kLoad && !rank) load = LoadInLoad(body);
    loads.push_back(load);
  }
  return loads;
}

}  // namespace

Task<LoadResponse> QueryLoad(
    HttpClient& http, CancelScope* scope, WorkerUrl host, Ranks ranks, LoadSource* source,
    int64_t timeout_ms) {
  LoadResponse result;
  result.loads.resize(ranks.size());
  source->Begin();
  while (source->at() != LoadSource::At::kNowhere) {
    const LoadSource::At at = source->at();
    std::string target(source->target());
    const StatusOr<HttpResponse> response = co_await http.Get(scope, host, std::move(target), timeout_ms);
    if (!response.ok()) co_return result;
    if (response->status == 200) {
      result.loads = Read(at, response->body, ranks);
      const auto known = [](const std::optional<ReportedLoad>& load) { return load.has_value(); };
      if (std::any_of(result.loads.begin(), result.loads.end(), known)) {
        result.heard = true;
        co_return result;
      }
    } else if (!IsLacking(response->status)) {
      co_return result;
    }
    source->Lacks();
  }
  co_return result;
}

}  // namespace vllm_router
