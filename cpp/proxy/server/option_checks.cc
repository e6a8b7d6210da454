#include "proxy/server/option_checks.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "base/option_spec.h"
#include "base/text.h"
#include "net/ip_range.h"
#include "proxy/api/server_options.h"
#include "proxy/control/pd_registration_service.h"
#include "routing/kv_connector.h"
#include "routing/router.h"

namespace vllm_router {

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

Status CheckExclusion(const Settings& settings) {
  if (!settings.excludes_overloaded() || settings.load_poll_interval_ms != 0) return absl::OkStatus();
  return absl::InvalidArgumentError(Concat(
      settings.exclude_waiting_above != 0
          ? Concat("exclude_waiting_above is ", settings.exclude_waiting_above)
          : Concat("exclude_kv_above is ", settings.exclude_kv_above),
      " and load_poll_interval_secs is 0, so that no worker tells its load; set load_poll_interval_secs to "
      "the "
      "seconds between two polls, or leave it out for 1"));
}

Status CheckRegistration(const FixedOptions& options) {
  for (const std::string& text : options.vllm_discovery_allow) {
    const StatusOr<IpRange> range = IpRange::Parse("vllm_discovery_allow", text);
    if (!range.ok()) return range.status();
  }
  if (options.vllm_discovery_address.empty()) return absl::OkStatus();
  return PdRegistrationService::EndpointOf(options.vllm_discovery_address).status();
}

}  // namespace vllm_router
