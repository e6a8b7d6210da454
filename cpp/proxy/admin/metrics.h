// Metrics: everything the Recorders count, as Prometheus text. Lanes count in their own shards without locks; a scrape
// sums the shards, adds what the fleet says about its workers, and lets prometheus-cpp write the text.
//
// Labels come from small fixed sets, and `worker` from the fleet: series of a removed worker are shown for another
// kRemovedWorkerNanos after the first scrape without it, so that Prometheus sees how its counts ended, and then no
// more. When a worker comes back under the same URL, its series begin again at once. Every name with its meaning:
// docs/reference/metrics.md. Thread-safe.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "proxy/telemetry/telemetry.h"
#include "proxy/thread/server_limits.h"
#include "routing/router.h"

namespace vllm_router {

class KeyFile;
class TlsFiles;

// What is read from files, and read again while the server runs. Null: there is none.
struct ReloadedFiles {
  const KeyFile* client_keys = nullptr;
  const KeyFile* admin_keys = nullptr;
  const TlsFiles* tls = nullptr;
};

class Metrics {
 public:
  static constexpr int64_t kRemovedWorkerNanos = 60'000'000'000;

  // The telemetries, the limits, the clock, the record log (null: there is none) and the files must outlive this. The last
  // telemetry is the control thread's: its connections are not clients'.
  Metrics(
      std::shared_ptr<Router> router, std::vector<const Telemetry*> telemetries, const ServerLimits& limits,
      const Clock& clock, const TrafficLog* records = nullptr, const ReloadedFiles& files = {});
  ~Metrics();

  // Prometheus text format 0.0.4. Any thread.
  std::string Text() const;

 private:
  class Collector;
  std::shared_ptr<Collector> collector_;
};

}  // namespace vllm_router
