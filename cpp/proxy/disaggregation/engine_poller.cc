#include "proxy/disaggregation/engine_poller.h"

#include <utility>
#include <vector>

#include "base/log.h"
#include "base/text.h"
#include "proxy/client/model_report.h"
#include "proxy/thread/io_thread.h"

namespace vllm_router {
namespace {

constexpr int kWarnedEngineFailures = 3;

// The first model that is an engine's own.
EngineKind EngineIn(const std::vector<ModelCard>& cards) {
  for (const ModelCard& card : cards) {
    const EngineKind engine = EngineKindByName(card.owned_by);
    if (engine != EngineKind::kUnknown) return engine;
  }
  return EngineKind::kUnknown;
}

}  // namespace

bool EnginePoller::Learn(
    const WorkerUrl& address, const Workers& workers, const StatusOr<HttpResponse>& response,
    bool /*doubted*/, int failures) {
  std::optional<std::vector<ModelCard>> cards;
  if (response.ok() && response->status == 200) cards = ModelsInReport(response->body);
  const EngineKind engine = cards ? EngineIn(*cards) : EngineKind::kUnknown;
  if (engine == EngineKind::kUnknown && failures + 1 == kWarnedEngineFailures) {
    Log(LogLevel::kWarning,
        Concat(
            "worker ", address.base,
            " has not told which engine it is: GET /v1/models names no model whose owned_by is vllm or ",
            "sglang; it is not chosen before; name the connector (--kv-connector nixl or sglang)"));
  }
  if (!cards) return false;
  bool changed = false;
  for (const std::shared_ptr<Worker>& worker : workers)
    changed |= worker->engine.exchange(engine, std::memory_order_relaxed) != engine;
  if (changed) PublishSoon();
  return engine != EngineKind::kUnknown;
}

void EnginePoller::Published(const FleetView& fleet) {
  std::set<WorkerId> others;
  for (const FleetView::Member& member : fleet.members()) {
    if (member.pair != PairState::kOtherEngine) continue;
    const Worker& worker = *member.worker;
    others.insert(worker.id);
    if (others_.contains(worker.id)) continue;
    Log(LogLevel::kError,
        Concat(
            "worker ", worker.url.url, " is ", EngineKindName(worker.engine.load(std::memory_order_relaxed)),
            ", and the fleet is ", EngineKindName(fleet.stages()->engine),
            ": with --kv-connector auto all workers are of one engine, the first that is learned; it is not ",
            "chosen until it is replaced, or all others have been removed"));
  }
  others_ = std::move(others);
}

}  // namespace vllm_router
