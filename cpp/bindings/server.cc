// The Python class of the HTTP server. Options are the flags' names; times in seconds, fractions
// allowed.
#include "proxy/server/server.h"

#include <pybind11/functional.h>
#include <pybind11/stl.h>

#include <algorithm>

#include "base/clock.h"
#include "base/log.h"
#include "bindings/arguments.h"
#include "bindings/bindings.h"
#include "bindings/callables.h"
#include "bindings/errors.h"
#include "bindings/option_values.h"
#include "bindings/py_router.h"
#include "bindings/server_options.h"
#include "proxy/api/server_option_table.h"
#include "proxy/control/services.h"
#include "proxy/picker/picker_service.h"

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

// `settings`: all that may change; `workers`: all URLs of the settings, None: as they are.
py::tuple Apply(
    Server& server, const py::dict& settings, const std::optional<std::vector<std::string>>& workers,
    double guard, double hold_secs, bool dry_run) {
  LiveSettings::Change change;
  const std::shared_ptr<const Settings> now = server.settings().Load();
  change.guard = {.share = guard, .hold_ns = static_cast<int64_t>(hold_secs * 1e9)};
  change.settings.body_rate_window_ms = now->body_rate_window_ms;      // of tests alone
  change.settings.hang_detection_min_ms = now->hang_detection_min_ms;  // likewise
  std::vector<std::string> names;
  SetGiven<Settings>(SettingsTable(), settings, &change.settings, &names);
  for (const auto& [key, value] : settings) {
    if (std::ranges::find(names, key.cast<std::string>()) == names.end())
      throw py::type_error(
          "the setting '" + key.cast<std::string>() + "' does not change while the server runs");
  }
  if (workers) {
    change.workers.emplace();
    for (const std::string& url : *workers) change.workers->push_back(ValueOrThrow(DeclareWorker(url)));
  }
  StatusOr<Difference> difference = absl::UnknownError("");
  {
    py::gil_scoped_release release;
    difference = server.settings().Apply(std::move(change), dry_run);
  }
  const Difference changes = ValueOrThrow(std::move(difference));
  return py::make_tuple(changes.joined, changes.left, changes.changed, changes.held);
}

}  // namespace

void BindServer(py::module_& module) {
  py::class_<Configuration, std::shared_ptr<Configuration>>(
      module, "Configuration", ClassDoc("Configuration"))
      .def(
          "next",
          [](Configuration& self, double timeout_secs) -> std::optional<std::tuple<uint64_t, bool, bool>> {
            const auto call = self.Next(static_cast<int64_t>(timeout_secs * 1000));
            if (!call) return std::nullopt;
            return std::tuple(call->number, call->dry_run, call->only_logs);
          },
          py::arg("timeout_secs"), py::call_guard<py::gil_scoped_release>())
      .def("finish", &Configuration::Finish, py::arg("number"), py::arg("status"), py::arg("body"))
      .def("request", &Configuration::Request, py::arg("only_logs") = false)
      .def("close", &Configuration::Close)
      .def_property_readonly("closed", &Configuration::closed)
      .def("describe", &Configuration::Describe, py::arg("body"))
      .def(
          "count",
          [](Configuration& self, const std::string& result, uint64_t generation) {
            self.Count(result, generation, static_cast<int64_t>(UnixSeconds()));
          },
          py::arg("result"), py::arg("generation"));

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
      .def_property_readonly("port", [](const Server& server) { return server.ports().port(); })
      .def_property_readonly("any_worker_answered", &Server::any_worker_responded)
      .def_property_readonly(
          "metrics_port", [](const Server& server) { return server.ports().metrics_port(); })
      .def_property_readonly(
          "tls", [](const Server& server) { return !server.options().tls_cert_path.empty(); })
      .def_property_readonly("host", [](const Server& server) { return server.options().host; })
      .def("metrics_text", &Server::MetricsText, py::call_guard<py::gil_scoped_release>())
      .def_property_readonly("admin_port", [](const Server& server) { return server.ports().admin_port(); })
      .def_property_readonly(
          "epp_port",
          [](const Server& server) -> std::optional<uint16_t> {
            const auto* const picker = server.services().Find<PickerService>();
            if (picker == nullptr) return std::nullopt;
            return picker->port();
          })
      .def_property_readonly(
          "epp_health_port",
          [](const Server& server) -> std::optional<uint16_t> {
            const auto* const picker = server.services().Find<PickerService>();
            if (picker == nullptr) return std::nullopt;
            return picker->health_port();
          })
      .def_property_readonly("configuration", &Server::configuration)
      .def_property_readonly(
          "has_something_to_reload", [](Server& server) { return !server.reloads().files().empty(); })
      .def(
          "apply", &Apply, py::arg("settings"), py::arg("workers"), py::arg("discovery_guard"),
          py::arg("discovery_hold_secs"), py::arg("dry_run"))
      .def(
          "reload", [](Server& server) { server.reloads().Reload(); },
          py::call_guard<py::gil_scoped_release>())
      .def(
          "reopen_logs", [](Server& server) { server.reloads().ReopenLogs(); },
          py::call_guard<py::gil_scoped_release>())
      .def("shutdown", &Server::Shutdown)
      .def(
          "wait",
          [](Server& server, double seconds) { return server.Wait(static_cast<int64_t>(seconds * 1000)); },
          py::arg("timeout_secs") = -1.0, py::call_guard<py::gil_scoped_release>())
      .def_property_readonly("leads_peers", &Server::leads_peers)
      .def(
          "host_uses",
          [](const Server& server) {
            std::vector<HostUse> uses;
            {
              py::gil_scoped_release release;
              uses = server.host_uses();
            }
            std::vector<std::tuple<std::string, int64_t, uint64_t>> rows;
            for (HostUse& use : uses) rows.emplace_back(std::move(use.url), use.requests, use.cached_tokens);
            return rows;
          })
      .def_property_readonly("exchanges_cut", &Server::exchanges_cut)
      // Of those, the ones that may change while it runs.
      .def_property_readonly_static(
          "live_option_names",
          [](const py::object&) {
            std::vector<std::string> names;
            for (const auto& spec : SettingsTable()) names.emplace_back(spec.name);
            return names;
          })
      .def_property_readonly_static("option_names", [](const py::object&) {
        std::vector<std::string> names;
        for (const auto& spec : FixedOptionTable()) names.emplace_back(spec.name);
        for (const auto& spec : SettingsTable()) names.emplace_back(spec.name);
        return names;
      });

  module.def(
      "set_log_level", [](const std::string& level) { SetLogLevel(LevelByName(level)); }, py::arg("level"));
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
  module.def(
      "flush_log", [](double timeout_secs) { return FlushLog(static_cast<int64_t>(timeout_secs * 1000)); },
      py::arg("timeout_secs") = 2.0, py::call_guard<py::gil_scoped_release>());
  module.def("reopen_log", &ReopenLog);
  // For descriptor 1 or 2, as if a Python stream had written there.
  module.def(
      "log_text",
      [](int descriptor, const std::string& lines) {
        LogText(descriptor == 1 ? LogDestination::kStdout : LogDestination::kStderr, lines);
      },
      py::arg("descriptor"), py::arg("lines"));
}

}  // namespace vllm_router
