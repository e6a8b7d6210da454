// AdmissionMetrics: the metrics of classes and tenants. Any thread.
#pragma once

#include <vector>

#include "admission/tenant_tokens.h"
#include "base/mutex.h"

namespace vllm_router {

class MetricsPage;
class TenantTable;
struct ThreadAdmission;

class AdmissionMetrics {
 public:
  // The arguments outlive it.
  AdmissionMetrics(
      const TenantTokens& tokens, const TenantTable& tenants, std::vector<const ThreadAdmission*> threads)
      : tokens_(tokens), tenants_(tenants), threads_(std::move(threads)) {}

  void Write(MetricsPage* page) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  const TenantTokens& tokens_;
  const TenantTable& tenants_;
  const std::vector<const ThreadAdmission*> threads_;
  Mutex mutex_;  // of one scrape at a time
  TenantLabels labels_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace vllm_router
