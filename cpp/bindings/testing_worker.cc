#include <pybind11/stl.h>

#include "bindings/bindings.h"
#include "worker/health.h"
#include "worker/worker_registry.h"
#include "worker/worker_url.h"

namespace vllm_router {
namespace {

namespace py = pybind11;

// Tests look at code and sentence; the public face translates in errors.cc.
void RaiseIfError(const Status& status) {
  if (!status.ok()) throw py::value_error(status.ToString());
}

py::dict ParsedUrl(const std::string& url) {
  const StatusOr<WorkerUrl> parsed = ParseWorkerUrl(url);
  RaiseIfError(parsed.status());
  py::dict dict;
  dict["url"] = parsed->url;
  dict["base"] = parsed->base;
  dict["host"] = parsed->host;
  dict["tls"] = parsed->tls;
  dict["port"] = parsed->port;
  dict["prefix"] = parsed->prefix;
  dict["authority"] = parsed->authority;
  dict["rank"] = parsed->rank;
  return dict;
}

// A plan that knows which view it was made for, to see views and plans stay together.
struct NumberedPlan final : FleetPlan {
  NumberedPlan(uint64_t number, uint64_t membership)
      : FleetPlan(nullptr), number(number), membership(membership) {}
  const uint64_t number;
  const uint64_t membership;
};

class RegistryHarness {
 public:
  RegistryHarness()
      : registry_([](const FleetView& next) {
          const auto* last = static_cast<const NumberedPlan*>(next.plan());
          return std::make_shared<NumberedPlan>(last == nullptr ? 1 : last->number + 1, next.membership());
        }) {}

  WorkerRegistry& registry() { return registry_; }

  std::vector<py::tuple> Members(const FleetView& view) const {
    std::vector<py::tuple> members;
    for (uint32_t position = 0; position < view.members().size(); ++position) {
      const FleetView::Member& member = view.members()[position];
      members.push_back(py::make_tuple(
          member.worker->url.url, static_cast<uint32_t>(member.worker->id), member.worker->weight,
          member.healthy, member.draining, view.IsEligible(position)));
    }
    return members;
  }

 private:
  WorkerRegistry registry_;
};

}  // namespace

void BindTestingWorker(py::module_& testing) {
  py::class_<HealthTracker>(testing, "HealthTracker")
      .def(py::init<uint32_t, uint32_t>(), py::arg("failure_threshold"), py::arg("success_threshold"))
      .def("observe", &HealthTracker::Observe, py::arg("success"))
      .def_property_readonly("healthy", &HealthTracker::healthy);

  testing.def("parse_worker_url", &ParsedUrl);
  testing.def("same_host", [](const std::string& a, const std::string& b) {
    return SameHost(ParseWorkerUrl(a).value(), ParseWorkerUrl(b).value());
  });

  py::class_<FleetView, std::shared_ptr<FleetView>>(testing, "FleetView")
      .def_property_readonly(
          "eligible",
          [](const FleetView& view) {
            return std::vector<uint32_t>(view.eligible().begin(), view.eligible().end());
          })
      .def_property_readonly("membership", &FleetView::membership)
      .def_property_readonly("equal_weights", &FleetView::equal_weights)
      .def_property_readonly("eligible_weight", &FleetView::eligible_weight)
      .def_property_readonly(
          "plan",
          [](const FleetView& view) -> std::optional<std::pair<uint64_t, uint64_t>> {
            const auto* plan = static_cast<const NumberedPlan*>(view.plan());
            if (plan == nullptr) return std::nullopt;
            return std::pair(plan->number, plan->membership);
          })
      .def("find", &FleetView::Find)
      .def("without", [](const FleetView& view, const std::vector<uint32_t>& positions) {
        return view.Without(positions);
      });

  py::class_<RegistryHarness>(testing, "Registry")
      .def(py::init<>())
      .def(
          "add",
          [](RegistryHarness& self, const std::string& url, double weight) {
            RaiseIfError(self.registry().Add(url, weight));
          },
          py::arg("url"), py::arg("weight") = 1.0)
      .def(
          "add_all",
          [](RegistryHarness& self, const std::vector<std::pair<std::string, double>>& workers) {
            std::vector<WorkerRegistry::NewWorker> views;
            for (const auto& [url, weight] : workers) views.push_back({.url = url, .weight = weight});
            RaiseIfError(self.registry().AddAll(views));
          })
      .def(
          "remove",
          [](RegistryHarness& self, const std::string& url) { RaiseIfError(self.registry().Remove(url)); })
      .def(
          "set_healthy", [](RegistryHarness& self, const std::string& url,
                            bool healthy) { RaiseIfError(self.registry().SetHealthy(url, healthy)); })
      .def(
          "set_draining", [](RegistryHarness& self, const std::string& url,
                             bool draining) { RaiseIfError(self.registry().SetDraining(url, draining)); })
      .def_property_readonly(
          "version", [](RegistryHarness& self) { return self.registry().snapshot().version(); })
      // A copy: Python holds no pointers to const.
      .def_property_readonly("view", [](RegistryHarness& self) { return *self.registry().snapshot().Load(); })
      .def("members", [](RegistryHarness& self) { return self.Members(*self.registry().snapshot().Load()); });
}

}  // namespace vllm_router
