#include "proxy/api/pd_settings.h"

#include "base/text.h"
#include "disaggregation/kv_connector.h"
#include "routing/router.h"
#include "worker/fleet_view.h"

namespace vllm_router {

std::string NoPairMessage(const PdSettings& settings, const FleetView& whole) {
  const bool awaits_first = settings.discovers && whole.members().empty();
  const KvConnector* connector = FindKvConnector(settings.kv_connector);
  if (!awaits_first || connector == nullptr || connector->traits().awaited.empty()) {
    return NoPairMessage(whole);
  }
  return Concat("no ", connector->traits().awaited, " has registered");
}

std::string AwaitedPairMessage(const PdSettings& settings, const FleetView& whole) {
  if (!settings.discovers) return NoPairMessage(whole);
  const StageViews& stages = *whole.stages();
  return Concat(
      "Waiting for discovered workers: ", stages.prefill->eligible().size(), " prefill, ",
      stages.decode->eligible().size(), " decode");
}

}  // namespace vllm_router
