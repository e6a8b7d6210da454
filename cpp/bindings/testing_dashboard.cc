// Streams of events and the history of the dashboard, without a server.
#include <array>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <pybind11/functional.h>
#include <pybind11/stl.h>

#include "bindings/bindings.h"
#include "conditions/condition_report.h"
#include "proxy/api/event_stream.h"
#include "proxy/dashboard/event_broadcaster.h"
#include "proxy/dashboard/fleet_history.h"

namespace vllm_router {

namespace py = pybind11;
using namespace pybind11::literals;

void BindTestingDashboard(py::module_& testing) {
  py::class_<EventStream, std::shared_ptr<EventStream>>(testing, "EventStream")
      .def(py::init<int64_t>(), "keep_alive_ms"_a = EventStream::kKeepAliveMs)
      .def(
          "add",
          [](EventStream& stream, const std::string& piece) {
            return stream.Add(std::make_shared<const std::string>(piece));
          },
          "piece"_a)
      .def("end", &EventStream::End)
      .def("open", &EventStream::Open, "wake"_a)
      .def("close", &EventStream::Close)
      .def(
          "take",
          [](EventStream& stream) -> py::object {
            const EventStream::Piece piece = stream.Take();
            if (piece == nullptr) return py::none();
            return py::str(*piece);
          })
      .def_property_readonly("ended", &EventStream::ended);
  testing.attr("EVENT_STREAM_MOST_WAITING") = EventStream::kMostWaiting;
  testing.def("set_dashboard_speed", [](int64_t speed) { return EventBroadcaster::speed.exchange(speed); });

  // A second each: {count: so far}, and what waits.
  py::class_<FleetHistory>(testing, "FleetHistory")
      .def(py::init<>())
      .def(
          "add",
          [](FleetHistory& history, double t, const std::map<std::string, uint64_t>& so_far,
             const std::map<size_t, uint64_t>& first_tokens, const std::map<size_t, uint64_t>& waits,
             double waiting) {
            const auto of = [&so_far](const char* name) {
              const auto found = so_far.find(name);
              return found == so_far.end() ? uint64_t{0} : found->second;
            };
            FleetCounts counts{
                .at_ns = static_cast<int64_t>(t * 1e9),
                .requests = of("requests"),
                .failed = of("failed"),
                .retried = of("retried"),
                .receipts = of("receipts"),
                .reporting = of("reporting"),
                .reported = of("reported"),
                .reported_of = of("reported_of"),
                .expected = of("expected"),
                .expected_of = of("expected_of")};
            for (const auto& [bucket, count] : first_tokens) counts.first_tokens.at(bucket) = count;
            for (const auto& [bucket, count] : waits) counts.waits.at(bucket) = count;
            history.Add(counts, t, waiting);
          },
          "t"_a, "so_far"_a, "first_tokens"_a = py::dict(), "waits"_a = py::dict(), "waiting"_a = 0)
      .def_property_readonly("size", [](const FleetHistory& history) { return history.points().size(); })
      // (t, requests, p50_ms, p95_ms, cached, expected, waiting) of the last point
      .def_property_readonly(
          "last",
          [](const FleetHistory& history) {
            const FleetHistory::Point& point = history.points().back();
            return py::make_tuple(
                point.t, point.requests, point.p50_ms, point.p95_ms, point.cached, point.expected,
                point.waiting);
          })
      .def_property_readonly("facts", [](const FleetHistory& history) {
        const FleetHistory::Facts& facts = history.facts();
        return py::dict(
            "requests"_a = facts.requests, "failed"_a = facts.failed, "retried"_a = facts.retried,
            "p99_ms"_a = facts.p99_ms, "reporting"_a = facts.reporting,
            "longest_wait_ms"_a = facts.longest_wait_ms);
      });

  testing.def(
      "status_sentence",
      [](const std::vector<std::string>& texts, size_t workers) {
        std::vector<ActiveCondition> conditions;
        for (const std::string& text : texts)
          conditions.push_back({.condition = {.kind = ConditionKind::kWorkerIsDown, .text = text}});
        return StatusSentence(conditions, workers);
      },
      "texts"_a, "workers"_a);

  // conditions: (name, worker, model), the worst first. Returns the state and its model of a worker that the fleet takes to serve.
  testing.def(
      "worker_state",
      [](std::string_view url, const std::vector<std::array<std::string, 3>>& conditions) {
        std::vector<ActiveCondition> active;
        for (const auto& [name, worker, model] : conditions) {
          auto kind = ConditionKind::kNoWorkerServes;
          while (kind != ConditionKind::kService && ConditionName(kind) != name)
            kind = static_cast<ConditionKind>(static_cast<int>(kind) + 1);
          active.push_back({.condition = {.kind = kind, .worker = worker, .model = model}});
        }
        const MemberState state = StateOf(url, active);
        return std::pair(std::string(state.name), std::string(state.model));
      },
      "url"_a, "conditions"_a);
}

}  // namespace vllm_router
