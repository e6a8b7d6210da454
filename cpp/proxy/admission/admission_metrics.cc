#include "proxy/admission/admission_metrics.h"

#include "admission/tenant_name.h"
#include "admission/tenant_table.h"
#include "proxy/admission/thread_admission.h"
#include "proxy/telemetry/metrics_page.h"

namespace vllm_router {

void AdmissionMetrics::Write(MetricsPage* page) {
  const auto sum = [this](Counter ThreadAdmission::*counter) {
    uint64_t count = 0;
    for (const ThreadAdmission* const thread : threads_) count += (thread->*counter).count();
    return count;
  };
  page->Counter(
      "class_claims_clamped_total", "Requests that claimed a higher priority class than their key permits.");
  page->Add(sum(&ThreadAdmission::clamped));
  page->Counter(
      "class_claims_unknown_total",
      "Header fields that named an unknown priority class, which counts as default.");
  page->Add(sum(&ThreadAdmission::unknown_classes));
  page->Counter(
      "tenant_headers_ignored_total",
      "Requests whose --tenant-header did not count, by reason: untrusted (their key and address are not "
      "trusted) or "
      "ambiguous (several names).");
  page->Add(sum(&ThreadAdmission::untrusted_headers), {{"reason", "untrusted"}});
  page->Add(sum(&ThreadAdmission::ambiguous_headers), {{"reason", "ambiguous"}});

  std::vector<TenantRow> rows;
  {
    const MutexLock lock(mutex_);
    rows = labels_.Follow(tokens_.Read());
  }
  page->Counter(
      "tenant_tokens_total",
      "Tokens that workers reported, by tenant and kind: prompt (cached ones included), cached or "
      "completion. Tenants of the key file and the 64 busiest others have their names, other ones are other. "
      "A tenant that gets its series late begins there with what came since the last scrape; its earlier "
      "tokens stay in other.");
  for (const TenantRow& row : rows) {
    page->Add(row.tokens.prompt, {{"tenant", row.tenant}, {"kind", "prompt"}});
    page->Add(row.tokens.cached, {{"tenant", row.tenant}, {"kind", "cached"}});
    page->Add(row.tokens.completion, {{"tenant", row.tenant}, {"kind", "completion"}});
  }
  page->Counter(
      "tenant_rejected_total",
      "Requests rejected by their tenant's limits, by the code of the error: tenant_rate_limited, "
      "tenant_tokens_limited or tenant_concurrency. Tenants have names as in tenant_tokens_total, or by a "
      "row in the file of classes; those that were never rejected are left out.");
  for (const TenantRow& row : rows) {
    for (size_t i = 0; i < kTenantRejections; ++i) {
      const bool is_rest = row.tenant == kOtherTenants;
      if (row.tokens.rejected[i] != 0 || is_rest)
        page->Add(row.tokens.rejected[i], {{"tenant", row.tenant}, {"reason", kTenantRejectionCodes[i]}});
    }
  }
  page->Gauge(
      "limited_tenants",
      "Tenants with limits that are accounted for separately (--max-tenants, and those of the file of "
      "classes).");
  page->Add(tenants_.size());
  page->Counter(
      "tenant_limits_shared_total",
      "Requests whose tenant shared its limits with others, since --max-tenants of them had requests under "
      "way or something to pay.");
  page->Add(tenants_.shared_finds());
}

}  // namespace vllm_router
