#include <type_traits>

#include "bindings/bindings.h"
#include "bindings/callables.h"
#include "bindings/errors.h"
#include "simulation/simulated_worker.h"

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
  options.Add("status_code", &Options::faults, &Faults::status_code);
  options.Add("fail_first_n", &Options::faults, &Faults::fail_first_n);
  options.Add("retry_after_s", &Options::faults, &Faults::retry_after_s);
  options.Add("latency_ms", &Options::faults, &Faults::latency_ms);
  options.Add("crash_after", &Options::faults, &Faults::crash_after);
  options.Add("hang", &Options::faults, &Faults::hang);
  options.Add("garbage", &Options::faults, &Faults::garbage);
  options.Add("close_early", &Options::faults, &Faults::close_early);
  options.Add("close_after_bytes", &Options::faults, &Faults::close_after_bytes);
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
      .def("stats_json", &SimulatedWorker::StatsJson);
}

}  // namespace vllm_router
