#include "proxy/admission/admission_feature.h"

#include <memory>
#include <utility>
#include <vector>

#include "admission/tenant_tokens.h"
#include "proxy/admin/feature.h"
#include "proxy/admission/admission_metrics.h"
#include "proxy/admission/client_rules.h"
#include "proxy/admission/thread_admission.h"
#include "proxy/api/server_options.h"
#include "proxy/control/services.h"
#include "proxy/security/authorizer.h"
#include "proxy/thread/io_thread.h"
#include "proxy/thread/server_limits.h"

namespace vllm_router {
namespace {

Status Check(const ServerOptions& options, const Router& /*router*/) {
  return ClientRules::Make(options).status();
}

Status Add(const ServerParts& server) {
  StatusOr<ClientRules> made = ClientRules::Make(server.options);
  if (!made.ok()) return made.status();
  const ClientRules& rules = *server.limits.features.Own(std::make_unique<ClientRules>(*std::move(made)));
  TenantTokens& tokens =
      *server.limits.features.Own(std::make_unique<TenantTokens>(server.options.max_tenants));
  std::vector<const ThreadAdmission*> threads;
  for (const std::unique_ptr<IoThread>& thread : server.threads) {
    threads.push_back(thread->features.Own(
        std::unique_ptr<ThreadAdmission>(new ThreadAdmission{.rules = rules, .tokens = tokens})));
    if (rules.any()) thread->authorizer.TellClientsApart();
  }
  auto* const metrics = server.services.Keep(std::make_unique<AdmissionMetrics>(tokens, std::move(threads)));
  server.services.AddMetrics([metrics](MetricsPage* page) { metrics->Write(page); });
  return absl::OkStatus();
}

}  // namespace

extern constexpr Feature kAdmissionFeature = {.name = "admission", .check = &Check, .add = &Add};

}  // namespace vllm_router
