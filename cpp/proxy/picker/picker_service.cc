#include "proxy/picker/picker_service.h"

#include <utility>

#include "base/log.h"
#include "base/text.h"
#include "proxy/api/server_options.h"
#include "proxy/control/health_checker.h"
#include "proxy/telemetry/metrics_page.h"
#include "proxy/thread/io_thread.h"
#include "worker/fleet_view.h"

namespace vllm_router {
namespace {

constexpr std::string_view kServiceName = "envoy.service.ext_proc.v3.ExternalProcessor";

}  // namespace

PickerService::PickerService(
    IoThread& control, std::span<const std::unique_ptr<IoThread>> threads, const HealthChecker& health)
    : control_(control),
      health_(health),
      options_{
          .metadata_namespace = control.options.epp_metadata_namespace,
          .subset_namespace = control.options.epp_subset_namespace} {
  for (const std::unique_ptr<IoThread>& thread : threads) {
    threads_.push_back(std::make_unique<PickerThread>(PickerThread{
        .thread = *thread,
        .options = options_,
        .counts = counts_,
        .state_of = [this, &thread = *thread](std::string_view service) {
          return StateOf(thread, service);
        }}));
  }
}

PickerService::~PickerService() = default;

Status PickerService::Open() {
  const FixedOptions& options = control_.options;
  port_ = static_cast<uint16_t>(options.epp_port);
  for (const std::unique_ptr<PickerThread>& picker : threads_) {
    const bool joins = !listeners_.empty() || options.reuse_port;
    StatusOr<std::unique_ptr<Listener>> opened = Listener::Open(
        picker->thread.loop, {.host = options.epp_host, .port = port_, .join = joins},
        [picker = picker.get()](Socket socket, Endpoint peer) {
          PickerConnection::Serve(*picker, std::move(socket), std::move(peer), /*picks=*/true);
        });
    if (!opened.ok()) return opened.status();
    listeners_.push_back(*std::move(opened));
    port_ = listeners_.back()->port();
  }
  Log(LogLevel::kInfo, Concat("the endpoint picker listens on port ", port_));
  if (options.epp_health_port < 0) return absl::OkStatus();
  PickerThread* const first = threads_.front().get();
  StatusOr<std::unique_ptr<Listener>> opened = Listener::Open(
      first->thread.loop,
      {.host = options.epp_host,
       .port = static_cast<uint16_t>(options.epp_health_port),
       .join = options.reuse_port},
      [first](Socket socket, Endpoint peer) {
        PickerConnection::Serve(*first, std::move(socket), std::move(peer), /*picks=*/false);
      });
  if (!opened.ok()) return opened.status();
  health_listener_ = *std::move(opened);
  return absl::OkStatus();
}

std::optional<uint16_t> PickerService::health_port() const {
  if (health_listener_ == nullptr) return std::nullopt;
  return health_listener_->port();
}

void PickerService::Start() {
  for (size_t i = 0; i < listeners_.size(); ++i) {
    threads_[i]->thread.loop.Post([this, i] {
      listeners_[i]->Start();
      if (i == 0 && health_listener_ != nullptr) health_listener_->Start();
    });
  }
}

void PickerService::Drain() {
  for (size_t i = 0; i < listeners_.size(); ++i) {
    threads_[i]->thread.loop.Post([this, i] {
      PickerThread& picker = *threads_[i];
      listeners_[i]->Stop();
      picker.draining = true;
      for (PickerConnection* const connection : picker.connections) connection->Drain();
      drained_.fetch_add(1, std::memory_order_release);
    });
  }
}

bool PickerService::idle() const {
  return drained_.load(std::memory_order_acquire) == listeners_.size() &&
         counts_.connections.load(std::memory_order_acquire) == 0;
}

void PickerService::Stop() {
  stopping_.store(true, std::memory_order_relaxed);
  for (size_t i = 0; i < listeners_.size(); ++i) {
    threads_[i]->thread.loop.Post([this, i] {
      PickerThread& picker = *threads_[i];
      listeners_[i]->Stop();
      if (i == 0 && health_listener_ != nullptr) health_listener_->Stop();
      picker.stopping = true;
      for (PickerConnection* const connection : picker.connections) connection->Stop();
      stopped_.fetch_add(1, std::memory_order_release);
    });
  }
}

bool PickerService::ended() const {
  return stopped_.load(std::memory_order_acquire) == listeners_.size() &&
         counts_.connections.load(std::memory_order_acquire) == 0 &&
         counts_.probes.load(std::memory_order_acquire) == 0;
}

// A name that probes do not know of is theirs to find out. The process lives as long as it responds at all.
std::optional<ServingStatus> PickerService::StateOf(IoThread& thread, std::string_view service) const {
  if (service == "liveness") return ServingStatus::kServing;
  const bool is_known = service.empty() || service == "readiness" || service == "inference-extension" ||
                        service == kServiceName;
  if (!is_known) return std::nullopt;
  const bool ends = thread.draining || stopping_.load(std::memory_order_relaxed);
  const bool checked = !health_.checks() || health_.any_responded();
  const bool serves = !ends && checked && thread.fleet.Get()->in_rotation() != 0;
  return serves ? ServingStatus::kServing : ServingStatus::kNotServing;
}

void PickerService::WriteMetrics(MetricsPage* page) const {
  page->Gauge("epp_connections", "Connections of data planes to the endpoint picker.");
  page->Add(counts_.connections.load(std::memory_order_relaxed));
  page->Counter(
      "epp_connections_refused_total",
      "Connections to the endpoint picker that were closed since a thread had 1024 of gateways, or 64 at "
      "--epp-health-port.");
  page->Add(counts_.refused.load(std::memory_order_relaxed));
  page->Gauge("epp_streams", "Requests at data planes whose streams to the endpoint picker are open.");
  page->Add(counts_.streams.load(std::memory_order_relaxed));
  page->Counter(
      "epp_picks_total",
      "Requests at data planes that the endpoint picker got: picked, subset_empty, shed (rate limit, queue, "
      "memory for bodies), no_workers, invalid, left (before the choice) or observed (in observability mode, "
      "without a choice).");
  for (size_t i = 0; i < kPickResultCount; ++i) {
    page->Add(
        counts_.picks[i].load(std::memory_order_relaxed),
        {{"result", PickResultName(static_cast<PickResult>(i))}});
  }
  page->Counter(
      "epp_served_elsewhere_total",
      "Requests at data planes that another worker served than the one that the endpoint picker chose.");
  page->Add(counts_.served_elsewhere.load(std::memory_order_relaxed));
  page->Counter(
      "epp_protocol_errors_total",
      "Connections and streams to the endpoint picker that ended since the data plane broke a rule of "
      "HTTP/2, gRPC or ext_proc, or streams stood still for a timeout.");
  page->Add(counts_.protocol_errors.load(std::memory_order_relaxed));
}

}  // namespace vllm_router
