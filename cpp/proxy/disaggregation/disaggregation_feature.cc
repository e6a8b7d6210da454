#include "proxy/disaggregation/disaggregation_feature.h"

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <boost/json.hpp>

#include "base/option_spec.h"
#include "base/text.h"
#include "disaggregation/kv_connector.h"
#include "net/ip_range.h"
#include "proxy/admin/admin_context.h"
#include "proxy/admin/feature.h"
#include "proxy/api/server_options.h"
#include "proxy/control/health_checker.h"
#include "proxy/control/services.h"
#include "proxy/disaggregation/bootstrap_poller.h"
#include "proxy/disaggregation/claim_keeper.h"
#include "proxy/disaggregation/engine_poller.h"
#include "proxy/disaggregation/pd_registration_service.h"
#include "proxy/disaggregation/push_identities.h"
#include "proxy/disaggregation/registration_report.h"
#include "proxy/thread/io_thread.h"
#include "routing/router.h"

namespace vllm_router {
namespace {

Status CheckKvConnector(const FixedOptions& options, const Router& router) {
  std::vector<std::string_view> known = {kAutoConnector};
  for (const KvConnector* const connector : KvConnectors()) known.push_back(connector->traits().name);
  if (std::ranges::find(known, options.kv_connector) == known.end()) {
    return WordIsUnknown("kv_connector", options.kv_connector, known);
  }
  const KvConnector* const chosen = FindKvConnector(options.kv_connector);  // null for auto
  if (chosen != nullptr && router.may_bypass() && !chosen->traits().decode_can_prefill) {
    return absl::InvalidArgumentError(Concat(
        "pd_bypass_uncached_tokens is ", router.options().bypass.uncached_tokens, " and kv_connector is ",
        options.kv_connector,
        ", whose decode workers cannot prefill by themselves; set pd_bypass_uncached_tokens to 0"));
  }
  const bool registers = chosen != nullptr && chosen->traits().registers;
  if (!registers || !options.vllm_discovery_address.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(Concat(
      "kv_connector is ", options.kv_connector, ", whose workers register with the router; set ",
      "vllm_discovery_address to the HOST:PORT where they do"));
}

Status CheckRegistration(const FixedOptions& options) {
  for (const std::string& text : options.vllm_discovery_allow) {
    const StatusOr<IpRange> range = IpRange::Parse("vllm_discovery_allow", text);
    if (!range.ok()) return range.status();
  }
  if (options.vllm_discovery_address.empty()) return absl::OkStatus();
  return RegistrationSocket::EndpointOf(options.vllm_discovery_address).status();
}

Status Check(const ServerOptions& options, const Router& router) {
  ROUTER_RETURN_IF_ERROR(CheckKvConnector(options, router));
  return CheckRegistration(options);
}

// What pairs have to know of workers before these are in rotation.
void FollowPairFacts(const ServerParts& server) {
  const std::string& name = server.options.kv_connector;
  const KvConnector* const connector = FindKvConnector(name);
  const PairRule rule{
      .engine_ids = connector != nullptr && connector->traits().names_engine,
      .one_engine = name == kAutoConnector,
      .registered = connector != nullptr && connector->traits().registers};
  server.router.pool().registry().SetPairRule(rule);
  PairFactPoller* facts = nullptr;
  if (rule.engine_ids) facts = server.services.Add<BootstrapPoller>();
  if (rule.one_engine) facts = server.services.Add<EnginePoller>();
  if (facts == nullptr) return;
  server.services.Find<HealthChecker>()->OnChange([facts] { facts->Look(); });
  for (const std::unique_ptr<IoThread>& thread : server.threads)
    thread->features.Refer<PairFactPoller>(facts);
}

Status Add(const ServerParts& server) {
  for (const std::unique_ptr<IoThread>& thread : server.threads) AddPairParts(thread.get());
  if (!server.router.pool().registry().is_staged()) return absl::OkStatus();
  FollowPairFacts(server);
  if (!server.options.vllm_discovery_address.empty()) server.services.Add<PdRegistrationService>();
  return absl::OkStatus();
}

Status Open(const Services& services) {
  auto* const registrations = services.Find<PdRegistrationService>();
  return registrations != nullptr ? registrations->Open() : absl::OkStatus();
}

void AddRegistrations(AdminContext& admin, const PageCall& /*call*/, boost::json::object* page) {
  const auto* const registrations = admin.services->Find<PdRegistrationService>();
  if (registrations != nullptr) (*page)["registrations"] = RegistrationReport(registrations->Report());
}

constexpr PageSection kSections[] = {{.path = "/admin/discovery", .add = &AddRegistrations}};

}  // namespace

void AddPairParts(IoThread* thread) {
  thread->features.Own(std::make_unique<ClaimKeeper>(*thread));
  thread->features.Own(std::make_unique<PushIdentities>());
}

extern constexpr Feature kDisaggregationFeature = {
    .name = "disaggregation", .check = &Check, .add = &Add, .open = &Open, .sections = kSections};

}  // namespace vllm_router
