#include "proxy/picker/picker_feature.h"

#include <malloc.h>

#include "base/text.h"
#include "proxy/admin/feature.h"
#include "proxy/api/server_options.h"
#include "proxy/control/health_checker.h"
#include "proxy/control/services.h"
#include "proxy/picker/picker_service.h"
#include "proxy/thread/io_thread.h"
#include "routing/router.h"
#include "worker/fleet_view.h"

namespace vllm_router {
namespace {

Status CheckNamespace(std::string_view option, const std::string& value) {
  if (!value.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      Concat(option, " is empty; it is the namespace of metadata at the gateway, such as envoy.lb"));
}

// Of a router that picks nothing.
Status CheckWithout(const ServerOptions& options) {
  if (options.epp_health_port >= 0) {
    return absl::InvalidArgumentError(Concat(
        "epp_health_port is ", options.epp_health_port,
        " and there is no endpoint picker whose health it would tell; set epp_port"));
  }
  if (options.epp_tls) {
    return absl::InvalidArgumentError(
        "epp_tls is set and there is no port of an endpoint picker to serve by TLS; set epp_port");
  }
  if (options.epp_only) {
    return absl::InvalidArgumentError(
        "epp_only is set and there is no endpoint picker, so that the router would serve no request; set "
        "epp_port");
  }
  return absl::OkStatus();
}

Status Check(const ServerOptions& options, const Router& router) {
  if (options.epp_port < 0) return CheckWithout(options);
  if (options.epp_tls && options.tls_cert_path.empty()) {
    return absl::InvalidArgumentError(
        "epp_tls is set and there is no certificate to present to gateways; set tls_cert_path and "
        "tls_key_path");
  }
  ROUTER_RETURN_IF_ERROR(CheckNamespace("epp_metadata_namespace", options.epp_metadata_namespace));
  ROUTER_RETURN_IF_ERROR(CheckNamespace("epp_subset_namespace", options.epp_subset_namespace));
  if (router.is_staged()) {
    return absl::InvalidArgumentError(Concat(
        "epp_port is ", options.epp_port,
        " and the fleet has prefill and decode workers; the endpoint picker names one worker for a request, "
        "so use "
        "workers that do both"));
  }
  for (const FleetView::Member& member : router.fleet()->members()) {
    const WorkerUrl& url = member.worker->url;
    if (url.prefix.empty()) continue;
    return absl::InvalidArgumentError(Concat(
        "epp_port is ", options.epp_port, " and the worker ", Quoted(url.url),
        " has a path; a gateway is told an address and a port, so use a URL without a path"));
  }
  return absl::OkStatus();
}

// A body lives for a millisecond, in memory that would go back to the kernel each time; its pages would be cleared and mapped
// anew for the next one, which takes longer than to route it. glibc alone has these settings; they are the process's.
void KeepFreedMemory() {
#ifdef M_TRIM_THRESHOLD
  mallopt(M_MMAP_THRESHOLD, 1024 * 1024);      // smaller blocks are cut from an arena
  mallopt(M_TRIM_THRESHOLD, 4 * 1024 * 1024);  // what an arena keeps at its end
#endif
}

Status Add(const ServerParts& server) {
  if (server.options.epp_port < 0) return absl::OkStatus();
  KeepFreedMemory();
  server.services.Add<PickerService>(
      server.threads.first(server.threads.size() - 1), *server.services.Find<HealthChecker>());
  return absl::OkStatus();
}

Status Open(const Services& services) {
  auto* const picker = services.Find<PickerService>();
  return picker != nullptr ? picker->Open() : absl::OkStatus();
}

}  // namespace

extern constexpr Feature kPickerFeature = {.name = "picker", .check = &Check, .add = &Add, .open = &Open};

}  // namespace vllm_router
