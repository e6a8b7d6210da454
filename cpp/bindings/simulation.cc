#include <algorithm>
#include <type_traits>

#include "base/text.h"
#include "bindings/bindings.h"
#include "bindings/callables.h"
#include "bindings/errors.h"
#include "simulation/simulated_worker.h"
#include "simulation/stage_worker.h"

namespace vllm_router {

namespace py = pybind11;

namespace {

// Options of all parts side by side, as keyword arguments and flags are.
class OptionsClass {
 public:
  explicit OptionsClass(py::module_& module) : class_(module, "SimulatedWorkerOptions") {
    class_.def(py::init<>());
  }

  template <typename Value>
  void Add(const char* name, Value SimulatedWorkerOptions::*member) {
    class_.def_readwrite(name, member);
  }
  template <typename Part, typename Value>
  void Add(const char* name, Part SimulatedWorkerOptions::*part, Value Part::*member) {
    class_.def_property(
        name, [=](const SimulatedWorkerOptions& options) { return options.*part.*member; },
        [=](SimulatedWorkerOptions& options, const Value& value) { options.*part.*member = value; });
  }
  void Add(const char* name, double EngineCoefficients::*member) {
    class_.def_property(
        name, [=](const SimulatedWorkerOptions& options) { return options.engine.coefficients.*member; },
        [=](SimulatedWorkerOptions& options, double value) { options.engine.coefficients.*member = value; });
  }

 private:
  py::class_<SimulatedWorkerOptions> class_;
};

std::unique_ptr<SimulatedWorker> StartWorker(const SimulatedWorkerOptions& options) {
  StatusOr<std::unique_ptr<SimulatedWorker>> worker = SimulatedWorker::Start(options);
  if (absl::IsUnavailable(worker.status())) {  // the port, not the fleet
    py::set_error(PyExc_OSError, std::string(worker.status().message()).c_str());
    throw py::error_already_set();
  }
  return ValueOrThrow(std::move(worker));
}

StageWorker& StageOf(SimulatedWorker& worker) {
  StageWorker* const stage = worker.stage();
  if (stage == nullptr)
    throw py::value_error("the worker has no stage; make it with stage=\"prefill\" or \"decode\"");
  return *stage;
}

StageGate GateByName(std::string_view name) {
  const auto found = std::find(kStageGateNames.begin(), kStageGateNames.end(), name);
  if (found == kStageGateNames.end()) {
    std::string known;
    for (const std::string_view gate : kStageGateNames)
      known += (known.empty() ? "" : ", ") + std::string(gate);
    throw py::value_error("the gate is " + Quoted(name) + "; it must be one of " + known);
  }
  return static_cast<StageGate>(found - kStageGateNames.begin());
}

// (path, headers, body) of each, the body as bytes.
py::list CapturedBy(SimulatedWorker& worker) {
  py::list listed;
  for (const CapturedRequest& request : StageOf(worker).captured()) {
    py::list headers;
    for (const auto& [name, value] : request.headers) {
      const auto latin1 = [](const std::string& text) {
        return py::reinterpret_steal<py::str>(
            PyUnicode_DecodeLatin1(text.data(), static_cast<Py_ssize_t>(text.size()), nullptr));
      };
      headers.append(py::make_tuple(latin1(name), latin1(value)));
    }
    listed.append(py::make_tuple(request.path, headers, py::bytes(request.body)));
  }
  return listed;
}

}  // namespace

void BindSimulation(py::module_& module) {
  using Options = SimulatedWorkerOptions;
  OptionsClass options(module);
  options.Add("host", &Options::host);
  options.Add("port", &Options::port);
  options.Add("threads", &Options::threads);
  options.Add("model", &Options::model, &SimModel::name);
  options.Add("max_model_len", &Options::model, &SimModel::max_model_len);
  options.Add("step_ms", &EngineCoefficients::step_ms);
  options.Add("prefill_us_per_token", &EngineCoefficients::prefill_us_per_token);
  options.Add("attention_ns_per_token2", &EngineCoefficients::attention_ns_per_token2);
  options.Add("decode_us_per_sequence", &EngineCoefficients::decode_us_per_sequence);
  options.Add("context_ns_per_token", &EngineCoefficients::context_ns_per_token);
  options.Add("tool_script", &Options::tool_script);
  options.Add("wide_text", &Options::model, &SimModel::wide_text);
  options.Add("ignore_prompt_ids", &Options::model, &SimModel::ignore_prompt_ids);
  options.Add("speed", &Options::engine, &BatchEngineOptions::speed);
  options.Add("max_running", &Options::engine, &BatchEngineOptions::max_running);
  options.Add("step_tokens", &Options::engine, &BatchEngineOptions::step_tokens);
  options.Add("cache_blocks", &Options::engine, &BatchEngineOptions::cache_blocks);
  options.Add("block_tokens", &Options::engine, &BatchEngineOptions::block_tokens);
  options.Add("fixed_response_bytes", &Options::fixed_response_bytes);
  options.Add("keep_alive_s", &Options::keep_alive_s);
  options.Add("late_head", &Options::late_head);
  options.Add("kv_events_port", &Options::kv_events_port);
  options.Add("kv_events_replay_port", &Options::kv_events_replay_port);
  options.Add("kv_events_buffer_steps", &Options::kv_events_buffer_steps);
  options.Add("kv_events_polled", &Options::kv_events_polled);
  options.Add("stage", &Options::stage);
  options.Add("connector", &Options::connector);
  options.Add("kv_load_failure_policy", &Options::kv_load_failure_policy);
  options.Add("kv_lease_s", &Options::kv_lease_s);
  options.Add("status_code", &Options::faults, &Faults::status_code);
  options.Add("fail_first_n", &Options::faults, &Faults::fail_first_n);
  options.Add("retry_after_s", &Options::faults, &Faults::retry_after_s);
  options.Add("latency_ms", &Options::faults, &Faults::latency_ms);
  options.Add("crash_after", &Options::faults, &Faults::crash_after);
  options.Add("hang", &Options::faults, &Faults::hang);
  options.Add("garbage", &Options::faults, &Faults::garbage);
  options.Add("close_early", &Options::faults, &Faults::close_early);
  options.Add("close_after_bytes", &Options::faults, &Faults::close_after_bytes);
  options.Add("close_after_tokens", &Options::faults, &Faults::close_after_tokens);
  options.Add("health_status", &Options::faults, &Faults::health_status);
  options.Add("kv_drop_batches", &Options::faults, &Faults::kv_drop_batches);
  options.Add("kv_garbage_batches", &Options::faults, &Faults::kv_garbage_batches);
  options.Add("kv_stall", &Options::faults, &Faults::kv_stall);

  py::class_<SimulatedWorker>(module, "SimulatedWorker", ClassDoc("SimulatedWorker"))
      .def(py::init(&StartWorker), py::arg("options"))
      .def_property_readonly("port", &SimulatedWorker::port)
      .def_property_readonly("kv_events_port", &SimulatedWorker::kv_events_port)
      .def_property_readonly("kv_events_replay_port", &SimulatedWorker::kv_events_replay_port)
      .def(
          "restart_kv_events",
          [](SimulatedWorker& worker) {
            ThrowIfError([&worker] {
              const py::gil_scoped_release release;
              return worker.RestartKvEvents();
            }());
          })
      .def_property_readonly("crashed", &SimulatedWorker::crashed)
      .def("stop", &SimulatedWorker::Stop, py::call_guard<py::gil_scoped_release>())
      .def(
          "set_faults",
          [](SimulatedWorker& worker, const Options& options) {
            ThrowIfError(worker.SetFaults(options.faults));
          },
          py::arg("options"))
      .def("stats_json", &SimulatedWorker::StatsJson)
      .def(
          "set_gate",
          [](SimulatedWorker& worker, const std::string& gate, bool closed) {
            StageOf(worker).SetGate(GateByName(gate), closed);
          },
          py::arg("gate"), py::arg("closed"))
      .def(
          "waiting_at",
          [](SimulatedWorker& worker, const std::string& gate) {
            return StageOf(worker).waiting_at(GateByName(gate));
          },
          py::arg("gate"))
      .def("captured", &CapturedBy)
      .def("kv_counters_json", [](SimulatedWorker& worker) { return StageOf(worker).CountersJson(); })
      .def(
          "advance_leases",
          [](SimulatedWorker& worker, int64_t nanos) { StageOf(worker).AdvanceLeases(nanos); },
          py::arg("nanos"))
      .def(
          "fail_handshakes",
          [](SimulatedWorker& worker, int64_t count) { StageOf(worker).FailHandshakes(count); },
          py::arg("count"))
      .def_property_readonly(
          "engine_id", [](SimulatedWorker& worker) { return StageOf(worker).engine_id(); });
}

}  // namespace vllm_router
