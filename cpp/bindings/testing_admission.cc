// Priority classes, names of tenants, attributes of keys and tokens of tenants, without a server.
#include <pybind11/stl.h>

#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "admission/key_grant.h"
#include "admission/priority_class.h"
#include "admission/tenant_name.h"
#include "admission/tenant_tokens.h"
#include "bindings/bindings.h"
#include "bindings/errors.h"
#include "proxy/admission/client_rules.h"
#include "proxy/api/server_options.h"

namespace vllm_router {
namespace {

namespace py = pybind11;
using namespace pybind11::literals;

using Texts = std::vector<std::pair<std::string, std::string>>;
using MaybeClass = std::optional<std::string>;

std::vector<HeaderField> ClaimFields(const Texts& texts) {
  std::vector<HeaderField> fields;
  for (const auto& [name, value] : texts) fields.push_back({name, value});
  return fields;
}

std::optional<PriorityClass> ClassNamed(const MaybeClass& name) {
  if (!name) return std::nullopt;
  const std::optional<PriorityClass> found = PriorityClassByName(*name);
  if (!found) throw py::value_error("there is no class " + *name);
  return found;
}

MaybeClass ClassName(const std::optional<PriorityClass>& priority_class) {
  return priority_class ? MaybeClass(PriorityClassName(*priority_class)) : std::nullopt;
}

py::dict GrantOf(const KeyGrant& grant) {
  return py::dict(
      "tenant"_a = grant.tenant, "class"_a = ClassName(grant.priority_class),
      "max_class"_a = ClassName(grant.max_class), "trusted"_a = grant.trusted,
      "highest"_a = PriorityClassName(grant.highest()));
}

using TenantCounts = std::tuple<uint64_t, uint64_t, uint64_t>;  // prompt, cached, completion

TokenCounts TenantCountsOf(const TenantCounts& counts) {
  return {.prompt = std::get<0>(counts), .cached = std::get<1>(counts), .completion = std::get<2>(counts)};
}
TenantCounts TenantCountsOf(const TokenCounts& counts) {
  return {counts.prompt, counts.cached, counts.completion};
}

// A table and its rows in metrics.
class TestTenants {
 public:
  TestTenants(size_t max_tenants, size_t others) : tokens_(max_tenants), labels_(others) {}

  void Add(const std::string& tenant, const TenantCounts& counts, bool configured) {
    tokens_.Add(tenant, configured, TenantCountsOf(counts));
  }
  std::map<std::string, TenantCounts> Table() const {
    std::map<std::string, TenantCounts> table;
    for (const TenantSums::Tenant& tenant : tokens_.Read().tenants)
      table[tenant.name] = TenantCountsOf(tenant.tokens);
    return table;
  }
  TenantCounts Total() const { return TenantCountsOf(tokens_.Read().total); }
  std::vector<std::pair<std::string, TenantCounts>> Scrape() {
    std::vector<std::pair<std::string, TenantCounts>> rows;
    for (const TenantRow& row : labels_.Follow(tokens_.Read()))
      rows.emplace_back(row.tenant, TenantCountsOf(row.tokens));
    return rows;
  }

 private:
  TenantTokens tokens_;
  TenantLabels labels_;
};

}  // namespace

void BindTestingAdmission(py::module_& testing) {
  testing.def("class_in_headers", [](const Texts& texts) {
    const HeaderClaim claim = ClassInHeaders(ClaimFields(texts));
    return std::pair(ClassName(claim.claimed), claim.unknown);
  });
  testing.def(
      "class_of_service_tier", [](const std::string& tier) { return ClassName(ClassOfServiceTier(tier)); });
  testing.def(
      "grant_class",
      [](const MaybeClass& headers, const MaybeClass& service_tier, const MaybeClass& alias,
         const MaybeClass& key, const MaybeClass& highest, bool trusts_headers) {
        const ClassGrant grant = GrantClass(
            {.headers = ClassNamed(headers),
             .service_tier = ClassNamed(service_tier),
             .alias = ClassNamed(alias),
             .key = ClassNamed(key)},
            {.highest = *ClassNamed(highest), .trusts_headers = trusts_headers});
        return std::tuple(ClassName(grant.given), ClassName(grant.claimed), grant.clamped);
      },
      "headers"_a = py::none(), "service_tier"_a = py::none(), "alias"_a = py::none(), "key"_a = py::none(),
      "highest"_a = "default", "trusts_headers"_a = false);
  testing.def("is_tenant_name", [](const py::bytes& text) { return IsTenantName(std::string_view(text)); });
  testing.def("tenant_named", [](const py::bytes& text) { return TenantNamed(std::string_view(text)); });
  testing.def("tenant_of_key", [](const std::string& key) { return TenantOfKey(Sha256({key})); });
  testing.def("tenant_in_headers", [](const Texts& texts, const std::string& name) {
    const TenantClaim claim = TenantInHeaders(ClaimFields(texts), name);
    return std::pair(claim.fields, std::string(claim.value));
  });
  testing.def("parse_key_attributes", [](const std::string& text) {
    return GrantOf(ValueOrThrow(ParseKeyAttributes(text)));
  });
  testing.def(
      "grant_in_headers", [](const Texts& texts) { return GrantOf(GrantInHeaders(ClaimFields(texts))); });
  py::class_<TestTenants>(testing, "TenantTokens")
      .def(py::init<size_t, size_t>(), "max_tenants"_a, "others"_a = TenantLabels::kOthers)
      .def("add", &TestTenants::Add, "tenant"_a, "tokens"_a, "configured"_a = false)
      .def("table", &TestTenants::Table)
      .def("total", &TestTenants::Total)
      .def("scrape", &TestTenants::Scrape);
  py::class_<ClientRules>(testing, "ClientRules")
      .def(
          py::init([](const std::string& tenant_header, const std::vector<std::string>& trusted,
                      const std::vector<std::string>& aliases) {
            FixedOptions options;
            options.tenant_header = tenant_header;
            options.trusted_addresses = trusted;
            options.model_alias_classes = aliases;
            return ValueOrThrow(ClientRules::Make(options));
          }),
          "tenant_header"_a = "", "trusted_addresses"_a = std::vector<std::string>(),
          "model_alias_class"_a = std::vector<std::string>())
      .def_property_readonly("any", &ClientRules::any)
      .def("trusts", &ClientRules::TrustsAddress)
      .def("class_of_alias", [](const ClientRules& rules, const std::string& alias) {
        return ClassName(rules.ClassOfAlias(alias));
      });
}

}  // namespace vllm_router
