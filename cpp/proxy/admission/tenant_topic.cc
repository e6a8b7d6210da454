#include "proxy/admission/tenant_topic.h"

#include <memory>
#include <string_view>
#include <utility>

#include "proxy/admission/class_pools.h"
#include "proxy/telemetry/metrics_page.h"

namespace vllm_router {

std::string TenantTopic::Tell(bool full, int64_t now_ns) {
  if (pools_.rules().Load()->settings != nullptr) return limits_.Tell(full, now_ns);
  limits_.Drop();
  return {};
}

void TenantTopic::Hear(const PeerWord& word, int64_t now_ns) {
  const std::shared_ptr<const AdmissionSettings> settings = pools_.rules().Load()->settings;
  if (settings == nullptr) return;
  limits_.Hear(
      *settings,
      {.router = word.router,
       .told_ns = word.told_ns,
       .interval_ms = word.interval_ms,
       .bytes = word.payload},
      now_ns);
}

void TenantTopic::WriteMetrics(MetricsPage* page) const {
  page->Counter(
      "tenant_limit_reports_total",
      "Tenants whose use of limits this router told the others (told), or left for its next report, since "
      "1,024 others came first (delayed); or that others told (heard), without a limit here (ignored) or "
      "without room (no_room); and reports that could not be read (malformed).");
  for (const auto& [name, result] :
       {std::pair("told", FleetLimits::kTold), std::pair("delayed", FleetLimits::kUntold),
        std::pair("heard", FleetLimits::kHeard), std::pair("ignored", FleetLimits::kIgnored),
        std::pair("no_room", FleetLimits::kNoRoom), std::pair("malformed", FleetLimits::kMalformed)})
    page->Add(limits_.count(result), {{"result", name}});
  page->Gauge(
      "tenant_limit_parts",
      "1 while tenants' limits are those of all routers together; while the n routers that were heard last "
      "are not heard, n: this router then has 1/n of each.");
  page->Add(limits_.parts());
}

}  // namespace vllm_router
