#include "proxy/admission/client_rules.h"

#include <algorithm>
#include <array>

#include "base/text.h"
#include "http/char_class.h"
#include "proxy/api/server_options.h"

namespace vllm_router {
namespace {

// Their values are secrets or describe the message, and names of tenants are in logs.
constexpr std::array<std::string_view, 11> kNoNames = {"authorization",
                                                       "proxy-authorization",
                                                       "x-api-key",
                                                       "api-key",
                                                       "cookie",
                                                       "sec-websocket-protocol",
                                                       "host",
                                                       "content-length",
                                                       "connection",
                                                       "via",
                                                       "transfer-encoding"};

Status CheckTenantHeader(std::string_view name) {
  const bool is_free = std::ranges::none_of(
      kNoNames, [name](std::string_view other) { return EqualsIgnoreCase(name, other); });
  if (!name.empty() && All(name, kTokenChar) && is_free) return absl::OkStatus();
  return absl::InvalidArgumentError(Concat(
      "tenant_header is ", Quoted(name),
      "; it must be the name of a header that names tenants and holds no credential, such as X-Tenant-ID"));
}

}  // namespace

StatusOr<ClientRules> ClientRules::Make(const FixedOptions& options) {
  ClientRules rules;
  if (!options.tenant_header.empty()) ROUTER_RETURN_IF_ERROR(CheckTenantHeader(options.tenant_header));
  rules.tenant_header_ = options.tenant_header;
  for (const std::string& text : options.trusted_addresses) {
    const StatusOr<IpRange> range = IpRange::Parse("trusted_addresses", text);
    if (!range.ok()) return range.status();
    rules.trusted_.push_back(*range);
  }
  for (const std::string& text : options.model_alias_classes) {
    const size_t sign = text.rfind('=');
    const std::string_view name = sign == std::string::npos ? text : std::string_view(text).substr(sign + 1);
    const std::optional<PriorityClass> named = PriorityClassByName(name);
    if (sign == std::string::npos || sign == 0 || !named) {
      return absl::InvalidArgumentError(Concat(
          "model_alias_class has ", Quoted(text), "; write it as ALIAS=CLASS, where the class is ",
          kPriorityClassNames));
    }
    if (!rules.alias_classes_.emplace(text.substr(0, sign), *named).second) {
      return absl::InvalidArgumentError(Concat(
          "model_alias_class has the alias ", Quoted(text.substr(0, sign)), " twice; leave one of them"));
    }
  }
  return rules;
}

bool ClientRules::TrustsAddress(std::string_view address) const {
  return std::ranges::any_of(trusted_, [address](const IpRange& range) { return range.Contains(address); });
}

std::optional<PriorityClass> ClientRules::ClassOfAlias(std::string_view alias) const {
  const auto found = alias_classes_.find(alias);
  return found != alias_classes_.end() ? std::optional(found->second) : std::nullopt;
}

}  // namespace vllm_router
