// The Python class of the HTTP server. Options are the flags' names; times in seconds, fractions
// allowed.
#include "proxy/server/server.h"

#include <pybind11/functional.h>
#include <pybind11/stl.h>

#include <cmath>
#include <functional>
#include <map>

#include "base/log.h"
#include "bindings/arguments.h"
#include "bindings/bindings.h"
#include "bindings/callables.h"
#include "bindings/errors.h"
#include "bindings/py_router.h"
#include "bindings/server_options.h"

namespace vllm_router {
namespace py = pybind11;
namespace {

using Setter = std::function<void(ServerOptions&, const py::handle&)>;

template <typename Part, typename T>
Setter Set(T Part::*member) {
  return [member](ServerOptions& options, const py::handle& value) { options.*member = value.cast<T>(); };
}

Setter SetUnlessNone(std::string ServerOptions::*member) {
  return [member](ServerOptions& options, const py::handle& value) {
    if (!value.is_none()) options.*member = value.cast<std::string>();
  };
}

// Of a group of options.
template <typename Part, typename Group, typename T>
Setter SetIn(Group Part::*group, T Group::*member) {
  return [group, member](ServerOptions& options, const py::handle& value) {
    options.*group.*member = value.cast<T>();
  };
}

// Rounded up, so that a tiny limit does not become 0.
int64_t Milliseconds(const py::handle& seconds) {
  return static_cast<int64_t>(std::ceil(seconds.cast<double>() * 1000));
}

Setter SetSeconds(int64_t ServerOptions::*member) {
  return [member](ServerOptions& options, const py::handle& value) { options.*member = Milliseconds(value); };
}

template <typename Part, typename Group>
Setter SetSecondsIn(Group Part::*group, int64_t Group::*member) {
  return [group, member](ServerOptions& options, const py::handle& value) {
    options.*group.*member = Milliseconds(value);
  };
}

const std::map<std::string, Setter>& Setters() {
  static const auto* setters = new std::map<std::string, Setter>{
      {"host", Set(&ServerOptions::host)},
      {"port", Set(&ServerOptions::port)},
      {"threads", Set(&ServerOptions::threads)},
      {"max_payload_size", Set(&ServerOptions::max_payload_size)},
      {"max_connections", Set(&ServerOptions::max_connections)},
      {"max_concurrent_requests", Set(&ServerOptions::max_concurrent_requests)},
      {"queue_size", Set(&ServerOptions::queue_size)},
      {"queue_timeout_secs", SetSeconds(&ServerOptions::queue_timeout_ms)},
      {"body_memory_mb",
       [](ServerOptions& options, const py::handle& value) {
         options.body_memory_bytes = value.cast<uint64_t>() << 20;
       }},
      {"rate_limit_tokens_per_second",
       [](ServerOptions& options, const py::handle& value) {
         if (!value.is_none()) options.rate_limit_per_second = value.cast<uint32_t>();
       }},
      {"client_head_timeout_secs", SetSeconds(&ServerOptions::client_head_timeout_ms)},
      {"client_body_timeout_secs", SetSeconds(&ServerOptions::client_body_timeout_ms)},
      {"half_closed_clients",
       [](ServerOptions& options, const py::handle& value) {
         options.serve_half_closed = value.cast<std::string>() == "serve";
       }},
      {"client_min_body_rate", Set(&ServerOptions::client_min_body_rate)},
      {"body_rate_window_secs", SetSeconds(&ServerOptions::body_rate_window_ms)},
      {"client_idle_timeout_secs", SetSeconds(&ServerOptions::client_idle_timeout_ms)},
      {"client_write_timeout_secs", SetSeconds(&ServerOptions::client_write_timeout_ms)},
      {"connect_timeout_secs", SetSeconds(&ServerOptions::connect_timeout_ms)},
      {"upstream_write_timeout_secs", SetSeconds(&ServerOptions::upstream_write_timeout_ms)},
      {"request_timeout_secs", SetSeconds(&ServerOptions::request_timeout_ms)},
      {"first_byte_timeout_secs", SetSeconds(&ServerOptions::first_byte_timeout_ms)},
      {"stream_idle_timeout_secs", SetSeconds(&ServerOptions::stream_idle_timeout_ms)},
      {"stream_total_timeout_secs", SetSeconds(&ServerOptions::stream_total_timeout_ms)},
      {"hold_stream_head",
       [](ServerOptions& options, const py::handle& value) {
         options.hold_stream_head = value.cast<std::string>() == "on";
       }},
      {"dead_worker_grace_secs", SetSeconds(&ServerOptions::dead_worker_grace_ms)},
      {"upstream_pool_size", Set(&ServerOptions::upstream_pool_size)},
      {"upstream_pool_idle_secs", SetSeconds(&ServerOptions::upstream_pool_idle_ms)},
      {"retry_max_retries", SetIn(&ServerOptions::retry, &RetryOptions::max_attempts)},
      {"retry_lost_requests", SetIn(&ServerOptions::retry, &RetryOptions::lost_retries)},
      {"retry_initial_backoff_ms", SetIn(&ServerOptions::retry, &RetryOptions::initial_backoff_ms)},
      {"retry_max_backoff_ms", SetIn(&ServerOptions::retry, &RetryOptions::max_backoff_ms)},
      {"retry_backoff_multiplier", SetIn(&ServerOptions::retry, &RetryOptions::backoff_multiplier)},
      {"retry_jitter_factor", SetIn(&ServerOptions::retry, &RetryOptions::jitter_factor)},
      {"retry_budget", SetIn(&ServerOptions::retry, &RetryOptions::budget)},
      {"disable_retries", SetIn(&ServerOptions::retry, &RetryOptions::disabled)},
      {"cb_failure_threshold", SetIn(&ServerOptions::breaker, &BreakerOptions::failure_threshold)},
      {"cb_success_threshold", SetIn(&ServerOptions::breaker, &BreakerOptions::success_threshold)},
      {"cb_timeout_duration_secs", SetSecondsIn(&ServerOptions::breaker, &BreakerOptions::open_ms)},
      {"cb_window_duration_secs", SetSecondsIn(&ServerOptions::breaker, &BreakerOptions::window_ms)},
      {"disable_circuit_breaker", SetIn(&ServerOptions::breaker, &BreakerOptions::disabled)},
      {"health_compat", Set(&ServerOptions::health_compat)},
      {"slow_start_secs", SetSeconds(&ServerOptions::slow_start_ms)},
      {"api_key", SetUnlessNone(&ServerOptions::api_key)},
      {"client_api_key_file", SetUnlessNone(&ServerOptions::client_api_key_file)},
      {"api_key_validation_urls", Set(&ServerOptions::api_key_validation_urls)},
      {"api_key_validation_cache_secs", SetSeconds(&ServerOptions::api_key_validation_cache_ms)},
      {"api_key_validation_timeout_secs", SetSeconds(&ServerOptions::api_key_validation_timeout_ms)},
      {"admin_api_key_file", SetUnlessNone(&ServerOptions::admin_api_key_file)},
      {"admin_host", Set(&ServerOptions::admin_host)},
      {"admin_port",
       [](ServerOptions& options, const py::handle& value) {
         if (!value.is_none()) options.admin_port = value.cast<uint16_t>();
       }},
      {"fan_out_path", Set(&ServerOptions::fan_out_paths)},
      {"cors_allowed_origins", Set(&ServerOptions::cors_allowed_origins)},
      {"tls_cert_path", SetUnlessNone(&ServerOptions::tls_cert_path)},
      {"tls_key_path", SetUnlessNone(&ServerOptions::tls_key_path)},
      {"tls_client_ca_file", SetUnlessNone(&ServerOptions::tls_client_ca_file)},
      {"tls_min_version", Set(&ServerOptions::tls_min_version)},
      {"tls_ciphers", Set(&ServerOptions::tls_ciphers)},
      {"worker_ca_file", SetUnlessNone(&ServerOptions::worker_ca_file)},
      {"worker_tls_insecure", Set(&ServerOptions::worker_tls_insecure)},
      {"worker_cert_path", SetUnlessNone(&ServerOptions::worker_cert_path)},
      {"worker_key_path", SetUnlessNone(&ServerOptions::worker_key_path)},
      {"reuse_port", Set(&ServerOptions::reuse_port)},
      {"preserve_host", Set(&ServerOptions::preserve_host)},
      {"trust_forwarded", Set(&ServerOptions::trust_forwarded)},
      {"request_id_headers",
       [](ServerOptions& options, const py::handle& value) {
         if (!value.is_none()) options.request_id_headers = value.cast<std::vector<std::string>>();
       }},
      {"prometheus_host",
       [](ServerOptions& options, const py::handle& value) {
         if (!value.is_none()) options.prometheus_host = value.cast<std::string>();
       }},
      {"prometheus_port",
       [](ServerOptions& options, const py::handle& value) {
         if (!value.is_none()) options.prometheus_port = value.cast<uint16_t>();
       }},
      {"worker_startup_timeout_secs", SetSeconds(&ServerOptions::worker_startup_timeout_ms)},
      {"worker_startup_check_interval", SetSeconds(&ServerOptions::worker_startup_check_ms)},
      {"load_poll_interval_secs",
       [](ServerOptions& options, const py::handle& value) {
         if (!value.is_none()) SetSeconds (&ServerOptions::load_poll_interval_ms)(options, value);
       }},
      {"health_check_interval_secs", SetSeconds(&ServerOptions::health_check_interval_ms)},
      {"health_check_timeout_secs", SetSeconds(&ServerOptions::health_check_timeout_ms)},
      {"health_failure_threshold", Set(&ServerOptions::health_failure_threshold)},
      {"health_success_threshold", Set(&ServerOptions::health_success_threshold)},
      {"health_check_endpoint", Set(&ServerOptions::health_check_endpoint)},
      {"drain_timeout_secs", SetSeconds(&ServerOptions::drain_timeout_ms)},
      {"shutdown_settle_secs", SetSeconds(&ServerOptions::shutdown_settle_ms)},
      {"shutdown_grace_period_secs", SetSeconds(&ServerOptions::shutdown_grace_ms)},
      {"tokenize_timeout_ms", Set(&ServerOptions::tokenize_timeout_ms)},
      {"access_log", Set(&ServerOptions::access_log)},
      {"record_log", SetUnlessNone(&ServerOptions::record_log)},
      {"record_log_salt_file", SetUnlessNone(&ServerOptions::record_log_salt_file)},
      {"decision_headers", Set(&ServerOptions::decision_headers)},
      {"sse_error_event", Set(&ServerOptions::sse_error_event)},
  };
  return *setters;
}

}  // namespace

ServerOptions ToServerOptions(const py::kwargs& given, ServerOptions options) {
  for (const auto& [key, value] : given) {
    const auto name = key.cast<std::string>();
    const auto setter = Setters().find(name);
    if (setter == Setters().end()) throw py::type_error("the server has no option '" + name + "'");
    try {
      setter->second(options, value);
    } catch (const py::cast_error&) {
      throw py::value_error(
          name + " is " + Show(value) + ", which is not of its type or range; see docs/reference/cli.md");
    }
  }
  return options;
}

namespace {

// REQUIRES: a name that the setting log_level takes.
LogLevel LevelByName(const std::string& name) {
  if (name == "debug") return LogLevel::kDebug;
  if (name == "info") return LogLevel::kInfo;
  return name == "warn" || name == "warning" ? LogLevel::kWarning : LogLevel::kError;
}

}  // namespace

void BindServer(py::module_& module) {
  py::class_<Server>(module, "Server", ClassDoc("Server"))
      .def(
          py::init([](const PyRouter& router, const py::kwargs& kwargs) {
            const ServerOptions options = ToServerOptions(kwargs);
            StatusOr<std::unique_ptr<Server>> server = absl::UnknownError("");
            {
              py::gil_scoped_release release;
              server = Server::Start(router.shared(), options);
            }
            return ValueOrThrow(std::move(server));
          }),
          py::arg("router"))
      .def_property_readonly("port", &Server::port)
      .def_property_readonly("any_worker_answered", &Server::any_worker_responded)
      .def_property_readonly("metrics_port", &Server::metrics_port)
      .def_property_readonly(
          "tls", [](const Server& server) { return !server.options().tls_cert_path.empty(); })
      .def_property_readonly("host", [](const Server& server) { return server.options().host; })
      .def("metrics_text", &Server::MetricsText, py::call_guard<py::gil_scoped_release>())
      .def_property_readonly("admin_port", &Server::admin_port)
      .def_property_readonly("has_something_to_reload", &Server::has_something_to_reload)
      .def("reload", &Server::Reload, py::call_guard<py::gil_scoped_release>())
      .def("shutdown", &Server::Shutdown)
      .def(
          "wait",
          [](Server& server, double seconds) { return server.Wait(static_cast<int64_t>(seconds * 1000)); },
          py::arg("timeout_secs") = -1.0, py::call_guard<py::gil_scoped_release>())
      .def_property_readonly("exchanges_cut", &Server::exchanges_cut)
      .def_property_readonly_static("option_names", [](const py::object&) {
        std::vector<std::string> names;
        for (const auto& [name, setter] : Setters()) names.push_back(name);
        return names;
      });

  module.def(
      "configure_log",
      [](const std::string& level, const std::string& log_format, const std::string& directory) {
        ThrowIfError(ConfigureLog(
            {.level = LevelByName(level),
             .format = log_format == "json" ? LogFormat::kJson : LogFormat::kText,
             .directory = directory}));
      },
      py::arg("level") = "info", py::arg("log_format") = "text", py::arg("directory") = "");
  module.def(
      "log", [](const std::string& level, const std::string& message) { Log(LevelByName(level), message); },
      py::arg("level"), py::arg("message"));
  module.def("flush_log", &FlushLog);
}

}  // namespace vllm_router
