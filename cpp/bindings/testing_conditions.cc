// What is wrong with a fleet, without a server.
#include <pybind11/stl.h>

#include "bindings/bindings.h"
#include "conditions/conditions.h"
#include "conditions/recent_outcomes.h"
#include "proxy/conditions/condition_watch.h"
#include "worker/response_code.h"

namespace vllm_router {

namespace py = pybind11;
using namespace pybind11::literals;

namespace {

std::map<std::string, uint32_t> CodesOf(const Outcomes& outcomes) {
  std::map<std::string, uint32_t> codes;
  for (size_t code = 0; code < kResponseCodeCount; ++code) {
    if (outcomes.codes[code] != 0)
      codes.emplace(ResponseCodeName(static_cast<ResponseCode>(code)), outcomes.codes[code]);
  }
  return codes;
}

// (url, state, {model: [(status, is_stream, head_ns)]})
using Attempts = std::vector<std::tuple<int, bool, int64_t>>;
using FactsTuple = std::tuple<std::string, std::string, std::map<std::string, Attempts>>;

WorkerFacts FactsOf(const FactsTuple& tuple) {
  const auto& [url, state, models] = tuple;
  WorkerFacts facts{
      .url = url,
      .is_healthy = state != "unhealthy",
      .is_ejected = state == "ejected",
      .is_in_doubt = state == "hangs",
      .is_draining = state == "draining"};
  for (const auto& [model, attempts] : models) {
    for (const auto& [status, is_stream, head_ns] : attempts)
      facts.models[model].Add({.status = status, .is_stream = is_stream, .head_ns = head_ns});
  }
  return facts;
}

}  // namespace

void BindTestingConditions(py::module_& testing) {
  testing.def(
      "response_code", [](int status) { return ResponseCodeName(ResponseCodeOf(status)); }, "status"_a);
  testing.def(
      "time_quantile",
      [](const std::vector<int64_t>& nanos, double share) {
        TimeCounts counts;
        for (const int64_t each : nanos) counts.Add(each);
        return counts.Quantile(share);
      },
      "nanos"_a, "share"_a);
  py::class_<RecentOutcomes>(testing, "RecentOutcomes")
      .def(py::init<>())
      .def(
          "add",
          [](RecentOutcomes& outcomes, uint32_t worker, const std::string& model, int status,
             int64_t now_ns) { outcomes.Add(WorkerId{worker}, model, {.status = status}, now_ns); },
          "worker"_a, "model"_a, "status"_a, "now_ns"_a)
      // {worker: ({model: {code: count}}, (at_ns, status, model) of the last failure)}
      .def(
          "sums",
          [](const RecentOutcomes& outcomes, int64_t now_ns) {
            OutcomeSums sums;
            outcomes.AddTo(&sums, now_ns);
            py::dict found;
            for (const auto& [id, worker] : sums) {
              std::map<std::string, std::map<std::string, uint32_t>> models;
              for (const auto& [name, each] : worker.models) models.emplace(name, CodesOf(each));
              const LastFailure& last = worker.last_failure;
              found[py::int_(static_cast<uint32_t>(id))] =
                  py::make_tuple(models, py::make_tuple(last.at_ns, last.status, last.model));
            }
            return found;
          },
          "now_ns"_a);
  testing.def("set_condition_speed", [](int64_t speed) { return ConditionWatch::speed.exchange(speed); });
  // [(condition, worker, model, is_page, text)]
  testing.def(
      "find_conditions",
      [](const std::vector<FactsTuple>& fleet) {
        std::vector<WorkerFacts> facts;
        for (const FactsTuple& worker : fleet) facts.push_back(FactsOf(worker));
        std::vector<py::tuple> rows;
        for (const Condition& each : FindConditions(facts)) {
          rows.push_back(
              py::make_tuple(ConditionName(each.kind), each.worker, each.model, each.is_page, each.text));
        }
        return rows;
      },
      "fleet"_a);
}

}  // namespace vllm_router
