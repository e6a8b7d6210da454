#include "proxy/api/pd_settings.h"

#include "base/text.h"
#include "routing/router.h"
#include "worker/fleet_view.h"

namespace vllm_router {

std::string NoPairMessage(const PdSettings& settings, const FleetView& whole) {
  const bool awaits_first = settings.discovers && whole.members().empty();
  if (awaits_first && settings.kv_connector == "moriio") return "no MoRI-IO worker has registered";
  return NoPairMessage(whole);
}

std::string AwaitedPairMessage(const PdSettings& settings, const FleetView& whole) {
  if (!settings.discovers) return NoPairMessage(whole);
  const StageViews& stages = *whole.stages();
  return Concat(
      "Waiting for discovered workers: ", stages.prefill->eligible().size(), " prefill, ",
      stages.decode->eligible().size(), " decode");
}

}  // namespace vllm_router
