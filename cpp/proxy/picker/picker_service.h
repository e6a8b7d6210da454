// PickerService listens for data planes that have their workers picked here (--epp-port), on all threads that serve clients:
// the kernel spreads connections over them, and a connection stays where it is.
//
//   Open()    the ports          Start()   from now on they are served
//   Drain()   no new gateways    Stop()    the end of all, each by PickerConnection's function of the same name
//
// The health service has a port of its own (--epp-health-port), too, for probes that know no other. On the control thread, but
// for the metrics.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "grpc/health_check.h"
#include "net/listener.h"
#include "picker/ext_proc_stream.h"
#include "proxy/control/service.h"
#include "proxy/picker/picker_connection.h"
#include "proxy/picker/picker_counts.h"

namespace vllm_router {

class HealthChecker;
struct IoThread;

class PickerService final : public Service {
 public:
  // `threads`: those that serve clients; `health` outlives it.
  PickerService(
      IoThread& control, std::span<const std::unique_ptr<IoThread>> threads, const HealthChecker& health);
  ~PickerService() override;

  // FailedPrecondition: a port cannot be listened on.
  Status Open();
  // After Open().
  uint16_t port() const { return port_; }
  std::optional<uint16_t> health_port() const;

  void Start() override;
  void Drain() override;
  bool idle() const override;
  void Stop() override;
  bool ended() const override;
  void WriteMetrics(MetricsPage* page) const override;

 private:
  std::optional<ServingStatus> StateOf(IoThread& thread, std::string_view service) const;

  IoThread& control_;
  const HealthChecker& health_;
  const ExtProcOptions options_;
  PickerCounts counts_;
  std::vector<std::unique_ptr<PickerThread>> threads_;
  std::vector<std::unique_ptr<Listener>> listeners_;  // of each thread
  std::unique_ptr<Listener> health_listener_;         // of the first one
  std::atomic<size_t> drained_{0};                    // threads
  std::atomic<size_t> stopped_{0};                    // the same
  std::atomic<bool> stopping_{false};
  uint16_t port_ = 0;
};

}  // namespace vllm_router
