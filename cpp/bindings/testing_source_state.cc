#include <pybind11/stl.h>

#include "bindings/bindings.h"
#include "events/cache_audit.h"
#include "events/source_state.h"

namespace vllm_router {

namespace py = pybind11;
using namespace pybind11::literals;

namespace {

Payload PayloadOf(const py::bytes& bytes) {
  const std::string_view text = bytes;
  return Payload(text.begin(), text.end());
}

py::tuple TupleOf(const SourceAction& action) {
  using Kind = SourceAction::Kind;
  switch (action.kind) {
    case Kind::kApply:
      return py::make_tuple(
          "apply", action.number,
          py::bytes(reinterpret_cast<const char*>(action.payload.data()), action.payload.size()));
    case Kind::kNewIncarnation:
      return py::make_tuple("new_incarnation", IncarnationCauseName(action.cause));
    case Kind::kStartReplay:
      return py::make_tuple("start_replay", action.number);
    case Kind::kStopReplay:
      return py::make_tuple("stop_replay");
  }
  throw py::value_error("no such action");
}

// Calls `call(state, .., actions)` and returns the actions as tuples.
template <typename Call>
py::list ActionsOf(Call call) {
  SourceActions actions;
  call(&actions);
  py::list tuples;
  for (const SourceAction& action : actions) tuples.append(TupleOf(action));
  return tuples;
}

IncarnationCause CauseByName(std::string_view name) {
  for (int i = 0; i < kIncarnationCauseCount; ++i) {
    const auto cause = static_cast<IncarnationCause>(i);
    if (IncarnationCauseName(cause) == name) return cause;
  }
  throw py::value_error("no such cause");
}

py::dict CountsOf(const SourceState& state) {
  const SourceState::Counts& counts = state.counts();
  py::dict incarnations;
  for (int i = 0; i < kIncarnationCauseCount; ++i) {
    const uint64_t count = counts.incarnations[static_cast<size_t>(i)];
    if (count != 0) incarnations[py::str(IncarnationCauseName(static_cast<IncarnationCause>(i)))] = count;
  }
  return py::dict(
      py::arg("applied") = counts.applied, py::arg("duplicates") = counts.duplicates,
      py::arg("lost") = counts.lost, py::arg("discarded") = counts.discarded,
      py::arg("replays_started") = counts.replays_started, py::arg("replays_ok") = counts.replays_ok,
      py::arg("replays_incomplete") = counts.replays_incomplete,
      py::arg("replays_timed_out") = counts.replays_timed_out,
      py::arg("replays_abandoned") = counts.replays_abandoned, py::arg("incarnations") = incarnations);
}

}  // namespace

// Moments are nanoseconds. What returns actions returns a list of ("apply", number, payload),
// ("new_incarnation", cause), ("start_replay", number) and ("stop_replay",).
void BindTestingSourceState(py::module_& testing) {
  py::class_<SourceState>(testing, "SourceState")
      .def(
          py::init([](bool has_replay, size_t max_held_batches, size_t max_held_bytes) {
            return SourceState(SourceStateOptions{has_replay, max_held_batches, max_held_bytes});
          }),
          py::arg("has_replay"), py::arg("max_held_batches") = SourceStateOptions{}.max_held_batches,
          py::arg("max_held_bytes") = SourceStateOptions{}.max_held_bytes)
      .def(
          "connected",
          [](SourceState& state, int64_t now) {
            return ActionsOf([&](SourceActions* actions) { state.OnConnected(now, actions); });
          })
      .def(
          "disconnected",
          [](SourceState& state, int64_t now) {
            return ActionsOf([&](SourceActions* actions) { state.OnDisconnected(now, actions); });
          })
      .def(
          "batch",
          [](SourceState& state, uint64_t number, const py::bytes& payload, int64_t now) {
            return ActionsOf(
                [&](SourceActions* actions) { state.OnBatch(number, PayloadOf(payload), now, actions); });
          })
      .def("replay_started", &SourceState::OnReplayStarted)
      .def(
          "replay_batch",
          [](SourceState& state, uint64_t number, const py::bytes& payload, int64_t now) {
            return ActionsOf([&](SourceActions* actions) {
              state.OnReplayBatch(number, PayloadOf(payload), now, actions);
            });
          })
      .def(
          "replay_end",
          [](SourceState& state, int64_t now) {
            return ActionsOf([&](SourceActions* actions) { state.OnReplayEnd(now, actions); });
          })
      .def(
          "tick",
          [](SourceState& state, int64_t now) {
            return ActionsOf([&](SourceActions* actions) { state.OnTick(now, actions); });
          })
      .def(
          "evidence",
          [](SourceState& state, int64_t now) {
            return ActionsOf([&](SourceActions* actions) { state.OnEvidenceOfRestart(now, actions); });
          })
      .def(
          "cleared", [](SourceState& state, uint64_t number,
                        uint32_t incarnation) { state.OnCleared(number, incarnation); })
      .def(
          "malformed",
          [](SourceState& state, uint64_t number, uint32_t incarnation, int64_t now) {
            return ActionsOf(
                [&](SourceActions* actions) { state.OnMalformed(number, incarnation, now, actions); });
          })
      .def(
          "reset",
          [](SourceState& state, std::string_view cause, int64_t now) {
            return ActionsOf([&](SourceActions* actions) { state.Reset(CauseByName(cause), now, actions); });
          })
      .def("next_tick", &SourceState::next_tick_ns)
      .def("trust", [](const SourceState& state) { return KvTrustName(state.trust()); })
      .def("holding", &SourceState::holding)
      .def("held_batches", &SourceState::held_batches)
      .def("held_bytes", &SourceState::held_bytes)
      .def("next_number", &SourceState::next_number)
      .def("incarnation", &SourceState::incarnation)
      .def("gaps", &SourceState::gaps)
      .def("counts", &CountsOf);
  py::class_<CacheAudit>(testing, "CacheAudit")
      .def(py::init())
      .def("is_due", &CacheAudit::IsDue)
      .def("check", &CacheAudit::Check, "known"_a, "usable"_a, "gaps"_a, "now_ns"_a)
      .def(
          "judge",
          [](const CacheAudit& audit, std::string_view name, uint64_t gaps) {
            for (int i = 0; i < kKvTrustCount; ++i) {
              const auto trust = static_cast<KvTrust>(i);
              if (KvTrustName(trust) == name) return KvTrustName(audit.Limit(trust, gaps));
            }
            throw py::value_error("no such trust");
          },
          "trust"_a, "gaps"_a);
}

}  // namespace vllm_router
