// The Python class of the HTTP server. Options are the flags' names; times in seconds, fractions
// allowed.
#include "proxy/server/server.h"

#include <pybind11/functional.h>
#include <pybind11/stl.h>

#include "base/log.h"
#include "bindings/arguments.h"
#include "bindings/bindings.h"
#include "bindings/callables.h"
#include "bindings/errors.h"
#include "bindings/option_values.h"
#include "bindings/py_router.h"
#include "bindings/server_options.h"
#include "proxy/api/server_option_table.h"

namespace vllm_router {
namespace py = pybind11;

ServerOptions ToServerOptions(const py::kwargs& given, ServerOptions options) {
  for (const auto& [key, value] : given) {
    const auto name = key.cast<std::string>();
    if (const auto* fixed = FindOption(FixedOptionTable(), name); fixed != nullptr) {
      SetFromPython<FixedOptions>(*fixed, value, &options);
    } else if (const auto* setting = FindOption(SettingsTable(), name); setting != nullptr) {
      SetFromPython<Settings>(*setting, value, &options);
    } else {
      throw py::type_error("the server has no option '" + name + "'");
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
        for (const auto& spec : FixedOptionTable()) names.emplace_back(spec.name);
        for (const auto& spec : SettingsTable()) names.emplace_back(spec.name);
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
