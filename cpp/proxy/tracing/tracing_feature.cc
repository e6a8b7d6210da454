#include "proxy/tracing/tracing_feature.h"

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "hashing/keyed_hash.h"
#include "proxy/admin/feature.h"
#include "proxy/api/server_options.h"
#include "proxy/control/services.h"
#include "proxy/thread/io_thread.h"
#include "proxy/tracing/thread_tracer.h"
#include "proxy/tracing/trace_exporter.h"
#include "tracing/otlp_settings.h"

namespace vllm_router {
namespace {

StatusOr<OtlpSettings> SettingsOf(const ServerOptions& options) {
  return ReadOtlpSettings(options.otlp_traces_endpoint, options.otel_service_name, &ProcessEnvironment);
}

Status Check(const ServerOptions& options, const Router& /*router*/) {
  return options.enable_trace ? SettingsOf(options).status() : absl::OkStatus();
}

// The control thread serves admins and scrapes, which are not traced.
Status Add(const ServerParts& server) {
  const ServerOptions& options = server.options;
  if (!options.enable_trace) return absl::OkStatus();
  StatusOr<OtlpSettings> settings = SettingsOf(options);
  if (!settings.ok()) return settings.status();
  std::optional<KeyedHash::Key> key;
  if (settings->genai) {
    key = DrawKey();
    if (!key) return absl::UnavailableError("the system has no random numbers for names of conversations");
  }
  std::vector<ThreadTracer*> tracers;
  for (const std::unique_ptr<IoThread>& thread : server.threads.first(server.threads.size() - 1)) {
    tracers.push_back(thread->features.Own(
        std::make_unique<ThreadTracer>(options.otel_sampling_ratio, options.otel_excluded_paths, key)));
  }
  auto* const exporter = server.services.Add<TraceExporter>(*std::move(settings), tracers);
  EventLoop& control = server.threads.back()->loop;
  for (ThreadTracer* const tracer : tracers)
    tracer->export_soon = [exporter, &control] { control.Post([exporter] { exporter->ExportSoon(); }); };
  return absl::OkStatus();
}

}  // namespace

extern constexpr Feature kTracingFeature = {.name = "tracing", .check = &Check, .add = &Add};

}  // namespace vllm_router
