// What there is to choose from, for the settings: policies with the options that they read, connectors of pairs, and what
// the response cache may keep.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <span>
#include <string_view>
#include <vector>

#include "bindings/bindings.h"
#include "disaggregation/kv_connector.h"
#include "policy/policy_registry.h"
#include "response_cache/cacheability.h"

namespace vllm_router {

namespace py = pybind11;
using namespace pybind11::literals;

namespace {

std::vector<std::string_view> ListOf(std::span<const std::string_view> names) {
  return {names.begin(), names.end()};
}

}  // namespace

void BindCatalogues(py::module_& module) {
  module.def("policies", [] {
    py::list policies;
    for (const PolicyEntry& entry : Policies()) {
      policies.append(py::dict(
          "name"_a = entry.name, "aliases"_a = entry.aliases, "may_be_fallback"_a = entry.may_be_fallback,
          "reads_index"_a = entry.reads_index, "options"_a = entry.options));
    }
    return policies;
  });
  module.def("foreign_policies", [] {
    py::dict nearest;
    for (const ForeignPolicy& foreign : ForeignPolicies())
      nearest[py::cast(foreign.name)] = py::cast(foreign.nearest);
    return nearest;
  });
  module.def("kv_connectors", [] {
    py::list connectors;
    for (const KvConnector* const connector : KvConnectors()) {
      const KvConnector::Traits& traits = connector->traits();
      connectors.append(py::dict(
          "name"_a = traits.name, "decode_can_prefill"_a = traits.decode_can_prefill,
          "registers"_a = traits.registers));
    }
    return connectors;
  });
  module.def("cacheable_routes", [] { return ListOf(CacheableRoutes()); });
  module.def("ignorable_members", [] { return ListOf(IgnorableMembers()); });
}

}  // namespace vllm_router
