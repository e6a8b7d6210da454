// Metrics: everything that the Telemetry objects count, as Prometheus text. Threads count in their own
// shards without locks. A scrape sums the shards, adds the fleet's data about its workers, and lets
// prometheus-cpp write the text.
//
// Labels come from small fixed sets, and `worker` from the fleet. Series of a removed worker are shown
// for kRemovedWorkerNanos after the first scrape without it, so that Prometheus sees their final values,
// and then no more. When a worker comes back under the same URL, its series begin again at once. Names
// and meanings: docs/reference/metrics.md. Thread-safe.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "events/event_subscriber.h"
#include "proxy/control/prefix_event_service.h"
#include "proxy/telemetry/telemetry.h"
#include "proxy/thread/server_limits.h"
#include "routing/router.h"

namespace vllm_router {

class Configuration;
class PageRenderer;
struct PdRegistrationReport;
struct PeerSyncReport;
struct ScaleReport;
class RedisPool;
class RedisResponses;
class Reloadable;
class TlsFiles;

// The server's files. Null: none.
struct ServerFiles {
  const TrafficLog* records = nullptr;
  const TlsFiles* tls = nullptr;
  std::vector<Reloadable*> reloadables;  // these and the key files
};

class Metrics {
 public:
  static constexpr int64_t kRemovedWorkerNanos = 60'000'000'000;

  // The telemetries, the limits, the clock and the files must outlive this. The last telemetry is the
  // control thread's: its connections are not clients'.
  Metrics(
      std::shared_ptr<Router> router, std::vector<const Telemetry*> telemetries, const ServerLimits& limits,
      const Clock& clock, ServerFiles files = {});
  ~Metrics();

  // Before the threads run. `sources`: those of KV events; any thread.
  void set_kv_events(std::function<std::vector<KvSourceStatus>()> sources);
  // Likewise, those of events about prefixes.
  void set_prefix_events(std::function<std::vector<PrefixSourceStatus>()> sources);
  void set_registrations(std::function<PdRegistrationReport()> report);

  // Likewise, of other routers of the fleet; none unless it is called.
  void set_peer_sync(std::function<PeerSyncReport()> peers);

  // Likewise, what autoscalers are told.
  void set_scale(std::function<std::shared_ptr<const ScaleReport>()> scale);

  // Likewise; null: none. It outlives this.
  void set_redis(const RedisPool* redis);

  // Likewise, of responses in Redis, and how many there are.
  void set_shared_responses(const RedisResponses* responses, std::function<std::optional<int64_t>()> entries);

  // Likewise; it outlives this.
  void set_pages(const PageRenderer* pages);
  void set_configuration(const Configuration* configuration);

  // Prometheus text format 0.0.4. Any thread.
  std::string Text() const;

 private:
  class Collector;
  std::shared_ptr<Collector> collector_;
};

}  // namespace vllm_router
