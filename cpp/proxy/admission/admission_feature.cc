#include "proxy/admission/admission_feature.h"

#include <memory>
#include <utility>
#include <vector>

#include "admission/tenant_table.h"
#include "admission/tenant_tokens.h"
#include "base/clock.h"
#include "base/log.h"
#include "proxy/admin/feature.h"
#include "proxy/admission/admission_endpoints.h"
#include "proxy/admission/admission_metrics.h"
#include "proxy/admission/class_metrics.h"
#include "proxy/admission/class_pools.h"
#include "proxy/admission/client_rules.h"
#include "proxy/admission/dispatch_service.h"
#include "proxy/admission/program_metrics.h"
#include "proxy/admission/programs.h"
#include "proxy/admission/tenant_limit.h"
#include "proxy/admission/tenant_topic.h"
#include "proxy/admission/thread_admission.h"
#include "proxy/api/server_options.h"
#include "proxy/control/other_routers.h"
#include "proxy/control/services.h"
#include "proxy/security/authorizer.h"
#include "proxy/thread/io_thread.h"
#include "proxy/thread/server_limits.h"
#include "routing/router.h"

namespace vllm_router {
namespace {

// Those of the server that serve clients.
struct ClientThreads {
  std::vector<IoThread*> all;
};

Status MayFollow(const Settings& settings) {
  ROUTER_RETURN_IF_ERROR(Programs::Read(settings.program_admission).status());
  return ClassPools::Read(settings.admission_classes).status();
}

// Neither is for requests that go to two workers, or that a gateway sends.
Status CheckPrograms(const ServerOptions& options, const Router& router) {
  if (!options.has_programs() || !(router.is_staged() || options.epp_only)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      router.is_staged()
          ? "program_admission is not off, and the fleet has prefill and decode workers, for which programs "
            "are not implemented yet; leave program_admission out"
          : "program_admission is not off and epp_only is set, so that no request would be a program's: the "
            "endpoint picker knows none; leave program_admission out, or epp_only");
}

Status Check(const ServerOptions& options, const Router& router) {
  if (router.is_staged() && !options.admission_classes.empty()) {
    return absl::InvalidArgumentError(
        "admission_config is set, and the fleet has prefill and decode workers, for which priority classes "
        "are not "
        "implemented yet; leave admission_config out");
  }
  if (options.epp_only && !options.admission_classes.empty()) {
    return absl::InvalidArgumentError(
        "admission_config is set and epp_only, too, so that no request would have a class or a limit: the "
        "endpoint picker has neither; leave admission_config out, or epp_only");
  }
  ROUTER_RETURN_IF_ERROR(CheckPrograms(options, router));
  ROUTER_RETURN_IF_ERROR(MayFollow(options));
  return ClientRules::Make(options).status();
}

bool TellsApart(const Settings& settings) {
  return settings.has_programs() || !settings.admission_classes.empty();
}

void TellClientsApart(IoThread& thread) { thread.authorizer.TellClientsApart(); }

void AddPrograms(const ServerParts& server, const ProgramSettings& settings) {
  Programs& programs = *server.limits.features.Own(std::make_unique<Programs>(server.options.max_programs));
  programs.Follow(settings, 0);
  std::vector<const ThreadPrograms*> threads;
  for (const std::unique_ptr<IoThread>& thread : server.threads)
    threads.push_back(thread->features.Own(std::make_unique<ThreadPrograms>(programs)));
  server.services.Add<ProgramService>(programs);
  const auto* const metrics =
      server.services.Keep(std::make_unique<ProgramMetrics>(programs, server.router, std::move(threads)));
  server.services.AddMetrics([metrics](MetricsPage* page) { metrics->Write(page); });
}

// Peer sync is a feature in front of this one.
void ShareLimits(const ServerParts& server, ClassPools& pools, TenantTable& tenants) {
  auto* const others = server.services.Find<OtherRouters>();
  if (others == nullptr || server.options.rate_limit_scope != RateLimitScope::kFleet) return;
  auto* const topic = server.services.Keep(std::make_unique<TenantTopic>(pools, tenants));
  others->AddTopic(topic);
  server.services.AddMetrics([topic](MetricsPage* page) { topic->WriteMetrics(page); });
}

Status Add(const ServerParts& server) {
  StatusOr<ClientRules> made = ClientRules::Make(server.options);
  if (!made.ok()) return made.status();
  const ClientRules& rules = *server.limits.features.Own(std::make_unique<ClientRules>(*std::move(made)));
  TenantTokens& tokens =
      *server.limits.features.Own(std::make_unique<TenantTokens>(server.options.max_tenants));
  TenantTable& tenants =
      *server.limits.features.Own(std::make_unique<TenantTable>(server.options.max_tenants));
  ClassPools& pools = *server.limits.features.Own(std::make_unique<ClassPools>());
  server.limits.features.Refer<PlaceQueues>(&pools);
  ROUTER_RETURN_IF_ERROR(pools.Follow(server.options.admission_classes));
  auto& clients = *server.limits.features.Own(std::make_unique<ClientThreads>());
  const StatusOr<ProgramSettings> programs = Programs::Read(server.options.program_admission);
  if (!programs.ok()) return programs.status();
  AddPrograms(server, *programs);
  const bool tells_apart = rules.any() || TellsApart(server.options);
  std::vector<const ThreadAdmission*> threads;
  std::vector<const ThreadClasses*> class_threads;
  for (const std::unique_ptr<IoThread>& thread : server.threads) {
    ThreadClasses& classes = *thread->features.Own(std::make_unique<ThreadClasses>(pools));
    class_threads.push_back(&classes);
    thread->features.Own(std::make_unique<ThreadTenants>(tenants));
    threads.push_back(thread->features.Own(std::unique_ptr<ThreadAdmission>(
        new ThreadAdmission{.rules = rules, .tokens = tokens, .classes = classes})));
    clients.all.push_back(thread.get());
    if (tells_apart) TellClientsApart(*thread);
  }
  server.services.Add<DispatchService>(pools);
  const auto* const class_metrics =
      server.services.Keep(std::make_unique<ClassMetrics>(pools, std::move(class_threads)));
  server.services.AddMetrics([class_metrics](MetricsPage* page) { class_metrics->Write(page); });
  auto* const metrics =
      server.services.Keep(std::make_unique<AdmissionMetrics>(tokens, tenants, std::move(threads)));
  server.services.AddMetrics([metrics](MetricsPage* page) { metrics->Write(page); });
  ShareLimits(server, pools, tenants);
  return absl::OkStatus();
}

void Follow(const ServerLimits& limits, const Settings& settings) {
  const Status followed = limits.features.Find<ClassPools>()->Follow(settings.admission_classes);
  if (!followed.ok()) Log(LogLevel::kError, std::string(followed.message()));
  if (const StatusOr<ProgramSettings> programs = Programs::Read(settings.program_admission); programs.ok())
    limits.features.Find<Programs>()->Follow(*programs, SteadyClock().NowNanos());
  if (!TellsApart(settings)) return;
  for (IoThread* const thread : limits.features.Find<ClientThreads>()->all)
    thread->loop.Post([thread] { TellClientsApart(*thread); });
}

constexpr EndpointTable kTables[] = {&AdmissionEndpoints};

}  // namespace

extern constexpr Feature kAdmissionFeature = {
    .name = "admission",
    .check = &Check,
    .add = &Add,
    .may_follow = &MayFollow,
    .follow = &Follow,
    .endpoints = kTables};

}  // namespace vllm_router
