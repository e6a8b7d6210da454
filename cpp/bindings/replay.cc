// _core.replay: a trace through the router's own policies and a simulated fleet. Its contract is in
// _core.pyi.
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/text.h"
#include "bindings/arguments.h"
#include "bindings/bindings.h"
#include "bindings/errors.h"
#include "bindings/py_router.h"
#include "holdout/effect_estimate.h"
#include "simulation/comparison_policies.h"
#include "simulation/replay.h"

namespace vllm_router {

namespace py = pybind11;
using namespace py::literals;

namespace {

// The members of one of the three arguments. Each is requested by name; Done() rejects members that were
// not requested.
class Members {
 public:
  Members(const char* what, const py::dict& given) : what_(what), given_(given) {}

  // None counts as absent.
  py::object Find(const char* name) {
    names_.push_back(name);
    if (!given_.contains(name)) return py::none();
    py::object value = given_[name];
    return value;
  }
  template <typename T>
  void Read(const char* name, T* target) {
    const py::object value = Find(name);
    if (value.is_none()) return;
    try {
      *target = value.cast<T>();
    } catch (const py::cast_error&) {
      throw py::type_error(Concat(
          what_, "[\"", name, "\"] is ", Show(value), "; it must be ",
          std::is_same_v<T, bool>       ? "True or False"
          : std::is_integral_v<T>       ? "a whole number, 0 or more"
          : std::is_floating_point_v<T> ? "a number"
                                        : "a list of numbers"));
    }
  }
  // A view of an array, which stays alive as long as this does.
  template <typename T>
  void Read(const char* name, const char* dtype, bool required, std::span<const T>* target) {
    const py::object value = Find(name);
    if (value.is_none()) {
      if (!required) return;
      throw py::key_error(Concat(what_, " has no ", name, "; it must hold a numpy array of ", dtype));
    }
    *target = ArrayView<T>(value, name, dtype);
    held_.push_back(value);
  }
  void Done() {
    for (const auto& [key, value] : given_) {
      const std::string name = py::str(key);
      if (std::find(names_.begin(), names_.end(), name) != names_.end()) continue;
      const std::vector<std::string_view> known(names_.begin(), names_.end());
      const std::string_view nearest = NearestName(name, known);
      throw py::type_error(Concat(
          what_, " has ", Quoted(name), ", which is not a member of it",
          nearest.empty() ? "" : Concat("; did you mean ", nearest, "?")));
    }
  }
  std::vector<std::string>* names() { return &names_; }

 private:
  const char* const what_;
  const py::dict given_;
  std::vector<std::string> names_;
  std::vector<py::object> held_;
};

ReplayTrace TraceOf(Members& members) {
  ReplayTrace trace;
  members.Read("arrival_s", "float64", true, &trace.arrival_s);
  members.Read("input_tokens", "uint32", true, &trace.input_tokens);
  members.Read("output_tokens", "uint32", true, &trace.output_tokens);
  members.Read("block_ids", "uint64", true, &trace.block_ids);
  members.Read("block_offsets", "int64", true, &trace.block_offsets);
  members.Read("output_block_ids", "uint64", false, &trace.output_block_ids);
  members.Read("output_block_offsets", "int64", false, &trace.output_block_offsets);
  members.Read("session_ids", "uint64", false, &trace.session_ids);
  members.Read("priority_classes", "uint8", false, &trace.priority_classes);
  members.Read("tenants", "uint32", false, &trace.tenants);
  members.Read("after_rows", "int64", false, &trace.after_rows);
  members.Read("after_offsets", "int64", false, &trace.after_offsets);
  members.Read("pause_s", "float64", false, &trace.pause_s);
  members.Read("block_size", &trace.block_size);
  members.Read("time_scale", &trace.time_scale);
  members.Read("poisson_rate", &trace.poisson_rate);
  members.Read("closed_loop", &trace.closed_loop);
  members.Done();
  return trace;
}

ReplayPeerSync PeerSyncOf(const py::object& given) {
  if (!PyDict_Check(given.ptr())) {
    throw py::type_error(
        "routing[\"peer_sync\"] is " + Show(given) + "; it must be a dict such as {\"interval_s\": 0.25}");
  }
  Members members("routing[\"peer_sync\"]", py::reinterpret_borrow<py::dict>(given));
  ReplayPeerSync sync;
  members.Read("interval_s", &sync.interval_s);
  members.Read("stride_tokens", &sync.stride_tokens);
  members.Read("loss", &sync.loss);
  members.Read("decisions_delay_s", &sync.decisions_delay_s);
  const py::object cuts = members.Find("cuts");
  members.Done();
  if (cuts.is_none()) return sync;
  for (const py::handle row : py::iter(cuts)) {
    if (!PyDict_Check(row.ptr())) {
      throw py::type_error(
          "routing[\"peer_sync\"][\"cuts\"] holds " + Show(row) +
          "; each cut must be a dict such as {\"time_s\": 60.0, \"seconds\": 30.0, \"router\": 2}");
    }
    Members of_cut("a cut", py::reinterpret_borrow<py::dict>(row));
    ReplayPeerSync::Cut cut;
    of_cut.Read("time_s", &cut.time_s);
    of_cut.Read("seconds", &cut.seconds);
    of_cut.Read("router", &cut.router);
    of_cut.Done();
    sync.cuts.push_back(cut);
  }
  return sync;
}

ReplayRouting RoutingOf(Members& members, const py::dict& given, uint64_t cache_blocks) {
  ReplayRouting routing;
  members.Read("routers", &routing.routers);
  members.Read("by_session", &routing.by_session);
  members.Read("prefix_blocks", &routing.prefix_blocks);
  members.Read("events_delay_s", &routing.events_delay_s);
  members.Read("streams", &routing.streams);
  members.Read("seed", &routing.seed);
  members.Read("holdout_percent", &routing.holdout_percent);
  if (const py::object policy = members.Find("holdout_policy"); !policy.is_none())
    routing.holdout_policy = py::str(policy);
  if (const py::object lines = members.Find("admission"); !lines.is_none()) {
    if (!py::isinstance<py::str>(lines)) {
      throw py::type_error(
          "routing[\"admission\"] is " + Show(lines) +
          "; it must be a text of lines such as \"class batch queue_size=100\", or None");
    }
    routing.admission = lines.cast<std::string>();
  }
  members.Read("admission_search", &routing.admission_search);
  if (const py::object line = members.Find("programs"); !line.is_none()) {
    if (!py::isinstance<py::str>(line)) {
      throw py::type_error(
          "routing[\"programs\"] is " + Show(line) + "; it must be a text such as \"on fill=0.9\", or None");
    }
    routing.programs = line.cast<std::string>();
  }
  if (const py::object names = members.Find("tenant_names"); !names.is_none()) {
    for (const py::handle name : py::iter(names)) routing.tenant_names.push_back(py::str(name));
  }
  if (const py::object sync = members.Find("peer_sync"); !sync.is_none())
    routing.peer_sync = PeerSyncOf(sync);
  routing.router = RouterOptionsOf(given, members.names());
  routing.router.policy.seed = routing.seed;
  if (!given.contains("max_blocks_per_worker")) {
    routing.router.policy.max_blocks_per_worker = std::max<uint64_t>(cache_blocks, 1);
  }
  members.Done();
  return routing;
}

ReplayEvent EventOf(const py::handle& given) {
  if (!PyDict_Check(given.ptr())) {
    throw py::type_error(
        "fleet[\"events\"] holds " + Show(given) +
        "; each event must be a dict such as {\"time_s\": 60.0, \"kind\": \"fail\", \"worker\": 2}");
  }
  Members members("an event", py::reinterpret_borrow<py::dict>(given));
  ReplayEvent event;
  members.Read("time_s", &event.time_s);
  members.Read("worker", &event.worker);
  members.Read("speed", &event.speed);
  const py::object kind = members.Find("kind");
  constexpr std::pair<std::string_view, ReplayEvent::Kind> kKinds[] = {
      {"fail", ReplayEvent::Kind::kFail},
      {"join", ReplayEvent::Kind::kJoin},
      {"drain", ReplayEvent::Kind::kDrain},
      {"wipe", ReplayEvent::Kind::kWipe},
      {"speed", ReplayEvent::Kind::kSpeed}};
  const auto* const found = std::find_if(std::begin(kKinds), std::end(kKinds), [&](const auto& known) {
    return py::isinstance<py::str>(kind) && kind.cast<std::string>() == known.first;
  });
  if (found == std::end(kKinds)) {
    throw py::value_error(
        "an event has kind " + Show(kind) + "; it must be fail, join, drain, wipe or speed");
  }
  event.kind = found->second;
  members.Done();
  return event;
}

EngineCoefficients CoefficientsOf(const py::object& given) {
  if (given.is_none()) return {};
  if (py::isinstance<py::str>(given)) {
    return ValueOrThrow(EngineCoefficientsByName(given.cast<std::string>()));
  }
  if (!PyDict_Check(given.ptr())) {
    throw py::type_error(
        "fleet[\"coefficients\"] is " + Show(given) +
        "; it must be the name of a preset or a dict of coefficients");
  }
  EngineCoefficients coefficients;
  Members members("fleet[\"coefficients\"]", py::reinterpret_borrow<py::dict>(given));
  members.Read("step_ms", &coefficients.step_ms);
  members.Read("prefill_us_per_token", &coefficients.prefill_us_per_token);
  members.Read("attention_ns_per_token2", &coefficients.attention_ns_per_token2);
  members.Read("decode_us_per_sequence", &coefficients.decode_us_per_sequence);
  members.Read("context_ns_per_token", &coefficients.context_ns_per_token);
  members.Done();
  return coefficients;
}

ReplayStages StagesOf(const py::object& given) {
  if (!PyDict_Check(given.ptr())) {
    throw py::type_error(
        "fleet[\"stages\"] is " + Show(given) + "; it must be a dict such as {\"prefill\": 2}");
  }
  Members members("fleet[\"stages\"]", py::reinterpret_borrow<py::dict>(given));
  ReplayStages stages;
  members.Read("prefill", &stages.prefill);
  members.Read("prefill_cache_blocks", &stages.prefill_cache_blocks);
  members.Read("kv_bytes_per_token", &stages.kv_bytes_per_token);
  members.Read("link_gb_per_s", &stages.link_gb_per_s);
  members.Read("transfer_ms", &stages.transfer_ms);
  members.Done();
  return stages;
}

ReplayFleet FleetOf(Members& members) {
  ReplayFleet fleet;
  members.Read("workers", &fleet.workers);
  members.Read("cache_blocks", &fleet.engine.cache_blocks);
  members.Read("max_running", &fleet.engine.max_running);
  members.Read("step_tokens", &fleet.engine.step_tokens);
  members.Read("min_computed_tokens", &fleet.engine.min_computed_tokens);
  members.Read("prompts_first", &fleet.engine.prompts_first);
  fleet.engine.coefficients = CoefficientsOf(members.Find("coefficients"));
  if (const py::object stages = members.Find("stages"); !stages.is_none()) fleet.stages = StagesOf(stages);
  members.Read("speeds", &fleet.speeds);
  members.Read("weights", &fleet.weights);
  const py::object events = members.Find("events");
  if (!events.is_none()) {
    for (const py::handle event : py::iter(events)) fleet.events.push_back(EventOf(event));
  }
  members.Done();
  return fleet;
}

// The vector's memory becomes the array's.
template <typename T>
py::array_t<T> Array(std::vector<T> values) {
  auto held = std::make_unique<std::vector<T>>(std::move(values));
  const py::capsule owner(held.get(), [](void* vector) { delete static_cast<std::vector<T>*>(vector); });
  const std::vector<T>* const kept = held.release();
  return py::array_t<T>(static_cast<py::ssize_t>(kept->size()), kept->data(), owner);
}

template <typename T, typename Member>
py::array_t<T> Column(const std::vector<ReplayWorker>& workers, Member member) {
  std::vector<T> values;
  for (const ReplayWorker& worker : workers) values.push_back(worker.*member);
  return Array(std::move(values));
}

py::dict ResultOf(ReplayResult result) {
  const std::vector<ReplayWorker>& workers = result.workers;
  py::dict summaries(
      "requests"_a = Column<uint64_t>(workers, &ReplayWorker::requests),
      "prompt_tokens"_a = Column<uint64_t>(workers, &ReplayWorker::prompt_tokens),
      "hit_tokens"_a = Column<uint64_t>(workers, &ReplayWorker::hit_tokens),
      "output_tokens"_a = Column<uint64_t>(workers, &ReplayWorker::output_tokens),
      "computed_tokens"_a = Column<uint64_t>(workers, &ReplayWorker::computed_tokens),
      "fetched_tokens"_a = Column<uint64_t>(workers, &ReplayWorker::fetched_tokens),
      "busy_s"_a = Column<double>(workers, &ReplayWorker::busy_s),
      "steps"_a = Column<uint64_t>(workers, &ReplayWorker::steps),
      "evicted_blocks"_a = Column<uint64_t>(workers, &ReplayWorker::evicted_blocks),
      "held_blocks"_a = Column<uint64_t>(workers, &ReplayWorker::held_blocks));
  return py::dict(
      "worker"_a = Array(std::move(result.worker)),
      "prefill_worker"_a = Array(std::move(result.prefill_worker)),
      "fetched_tokens"_a = Array(std::move(result.fetched_tokens)),
      "arrival_s"_a = Array(std::move(result.arrival_s)), "ttft_s"_a = Array(std::move(result.ttft_s)),
      "e2e_s"_a = Array(std::move(result.e2e_s)), "hit_tokens"_a = Array(std::move(result.hit_tokens)),
      "predicted_tokens"_a = Array(std::move(result.predicted_tokens)),
      "status"_a = Array(std::move(result.status)), "held_out"_a = Array(std::move(result.held_out)),
      "wait_s"_a = Array(std::move(result.wait_s)), "dispatch"_a = Array(std::move(result.dispatch)),
      "workers"_a = summaries, "span_s"_a = result.span_s, "load_spread"_a = result.load_spread,
      "peer_sync_frames"_a = result.peer_sync_frames, "peer_sync_bytes"_a = result.peer_sync_bytes);
}

py::dict SimulateTrace(const py::dict& trace_dict, const py::dict& routing_dict, const py::dict& fleet_dict) {
  Members trace_members("trace", trace_dict);
  Members routing_members("routing", routing_dict);
  Members fleet_members("fleet", fleet_dict);
  const ReplayTrace trace = TraceOf(trace_members);
  const ReplayFleet fleet = FleetOf(fleet_members);
  const uint64_t cache_blocks =
      std::max(fleet.engine.cache_blocks, fleet.stages ? fleet.stages->prefill_cache_blocks : 0);
  const ReplayRouting routing = RoutingOf(routing_members, routing_dict, cache_blocks);

  bool interrupted = false;
  const auto go_on = [&interrupted] {
    const py::gil_scoped_acquire acquire;
    interrupted = PyErr_CheckSignals() != 0;
    return !interrupted;
  };
  StatusOr<ReplayResult> result = [&] {
    const py::gil_scoped_release release;
    return Simulate(trace, routing, fleet, go_on);
  }();
  if (interrupted) throw py::error_already_set();
  return ResultOf(ValueOrThrow(std::move(result)));
}

}  // namespace

using Strata = py::array_t<uint8_t, py::array::c_style | py::array::forcecast>;
using Flags = py::array_t<bool, py::array::c_style | py::array::forcecast>;
using Values = py::array_t<double, py::array::c_style | py::array::forcecast>;

// None: too few are held out for an interval.
py::object EstimateEffect(
    double share, const Strata& strata, const Flags& held_out, const Values& values, double alpha) {
  if (!(share > 0 && share < 1))
    throw py::value_error("share is " + Show(py::float_(share)) + "; it must be between 0 and 1");
  if (strata.size() != values.size() || held_out.size() != values.size()) {
    throw py::value_error(Concat(
        "strata has ", strata.size(), " entries, held_out ", held_out.size(), " and values ", values.size(),
        "; each conversation has one in all three"));
  }
  EffectEstimate estimate(share);
  for (py::ssize_t i = 0; i < values.size(); ++i) {
    if (strata.at(i) >= EffectEstimate::kStrata) {
      throw py::value_error(Concat(
          "strata has ", static_cast<int>(strata.at(i)), "; there are ", EffectEstimate::kStrata,
          ", from 0 on"));
    }
    estimate.Add(strata.at(i), held_out.at(i), values.at(i));
  }
  const std::optional<Interval> interval = estimate.At(alpha);
  if (!interval) return py::none();
  return py::make_tuple(estimate.effect(), interval->low, interval->high);
}

void BindReplay(py::module_& module) {
  py::module_ replay =
      module.def_submodule("replay", "Traces through the product's policies; see vllm_router.");
  replay.def("simulate", &SimulateTrace, "trace"_a, "routing"_a, "fleet"_a);
  replay.def(
      "estimate_effect", &EstimateEffect, "share"_a, "strata"_a, "held_out"_a, "values"_a, "alpha"_a = 0.05);
  py::dict presets;
  for (const EnginePreset& preset : EnginePresets()) {
    const EngineCoefficients& given = preset.coefficients;
    presets[py::str(std::string(preset.name))] = py::dict(
        "what"_a = std::string(preset.what), "step_ms"_a = given.step_ms,
        "prefill_us_per_token"_a = given.prefill_us_per_token,
        "attention_ns_per_token2"_a = given.attention_ns_per_token2,
        "decode_us_per_sequence"_a = given.decode_us_per_sequence,
        "context_ns_per_token"_a = given.context_ns_per_token);
  }
  replay.attr("presets") = presets;
  py::list comparisons;
  for (const std::string_view name : ComparisonPolicyNames()) comparisons.append(std::string(name));
  replay.attr("comparison_policies") = py::tuple(comparisons);
}

}  // namespace vllm_router
