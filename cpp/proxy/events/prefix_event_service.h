// PrefixEventService keeps a stream of events (SSE) open to each source of --kv-prefix-source and writes
// what it tells of prefixes to the pool's PrefixTable.
//
//   source  worker found ── GET … ──▶ connected ── ended, broken, silent for 300 s ──▶ wait ── GET … ──▶
//              │ left: cancelled         │ each event                                (reconnect_delay.h)
//              ▼                         ▼
//            idle                     PrefixTable
//
// A source of a worker that is not in the fleet waits for it. The service also sweeps the table, in slices.
// Events are applied as they are read, a slow reader slows its publisher, so none is dropped for want of
// room. What they change is also written to the Redis of several routers, if there is one
// (proxy/events/redis_prefix_index.h). On the control thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "events/prefix_source.h"
#include "events/reconnect_delay.h"
#include "events/sse_event.h"
#include "net/task.h"
#include "proxy/control/host_poller.h"

namespace vllm_router {

class CancelScope;
class PrefixTable;
class RedisPrefixIndex;

// One source, as of now.
struct PrefixSourceStatus {
  std::string name;
  bool connected = false;
  bool failed = false;  // the last attempt was rejected, or the stream was not one of events
  uint64_t reconnects = 0;
  uint64_t received = 0;  // events
  uint64_t processed = 0;
  uint64_t dropped = 0;                    // of those received: the others
  uint64_t created = 0;                    // of those processed: cache_created and cache_reloaded
  uint64_t evicted = 0;                    // the others
  std::optional<int64_t> last_event_secs;  // since 1970
};

class PrefixEventService final : public HostPoller {
 public:
  static constexpr int64_t kSilentMs = 300'000;
  static constexpr int64_t kLookNanos = 500'000'000;  // between looks at the fleet
  static constexpr size_t kSweptPerLook = 2'048;

  explicit PrefixEventService(IoThread& thread);

  void Start() override;
  void Stop() override;

  // Any thread; in the order of the options.
  std::vector<PrefixSourceStatus> Report() const;
  void WriteMetrics(MetricsPage* page) const override;

 private:
  struct Stream;
  class Sink;

  int64_t Pass(const FleetView& fleet) override;
  Task<void> Follow(std::shared_ptr<Stream> stream, std::shared_ptr<Worker> worker);
  void SetStatus(size_t number, const PrefixSourceStatus& status);
  // Writes what an event changed to the Redis of several routers, if there is one.
  void Share(
      const PrefixEvent& event, const std::string& source, WorkerId worker, std::vector<Digest256> forgotten);
  Task<void> Purge(std::string source, WorkerId worker, std::vector<Digest256> prefixes);

  PrefixTable* const table_;            // null: there is nothing to do
  RedisPrefixIndex* const shared_;      // null: no Redis has what events change
  std::optional<uint64_t> membership_;  // of the fleet at the last look
  std::vector<std::shared_ptr<Stream>> streams_;
  mutable Mutex mutex_;  // leaf
  std::vector<PrefixSourceStatus> report_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace vllm_router
