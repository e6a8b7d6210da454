// TrtllmPoller polls the workers that run TensorRT-LLM for the KV events since the last poll, with
// --kv-events-engine trtllm, since only one client may do so: an engine gives each event once.
//
//   POST /kv_cache_events   ->   [{"event_id": 7, …}, …]   ->   a thread of its own: decode and apply
//
//   every 50 ms while the worker has requests of this router, else every second; later where a response took
//   long, so that no worker has more than a tenth of the thread
//   after an error a second, doubling up to a minute; where there is no such endpoint, a minute
//   after a response that was too long always a second: its events are lost, and a long pause would make the next
//   one longer
//
// A version whose endpoint is read by GET gets that. Old versions hold a poll for two seconds when nothing has
// happened, so a poll may take five.
//
// KvEventService says which workers there are. On the control thread, but for Report().
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/mutex.h"
#include "events/kv_feed.h"
#include "events/kv_source.h"
#include "events/trtllm_receiver.h"
#include "net/task.h"
#include "proxy/control/host_poller.h"

namespace vllm_router {

class TrtllmPoller final : public HostPoller, public KvFeed {
 public:
  static constexpr int64_t kBusyNanos = 50'000'000;
  static constexpr int64_t kIdleNanos = 1'000'000'000;
  static constexpr int64_t kAbsentNanos = 60'000'000'000;
  static constexpr int64_t kTimeoutMs = 5'000;
  static constexpr size_t kMaxResponseBytes = size_t{32} << 20;
  static constexpr size_t kMaxPolls = 64;  // at once, and responses that are not applied yet
  // Of these, of workers whose last poll failed or took kSlowNanos: they may hold up one another only.
  static constexpr size_t kMaxSlowPolls = 32;
  static constexpr int64_t kSlowNanos = 1'000'000'000;
  static constexpr int kShare = 10;  // of the thread's time
  // Of responses without a failed poll before them, with numbers missing.
  static constexpr int kGapsOfAnotherClient = 3;

  explicit TrtllmPoller(IoThread& thread);
  ~TrtllmPoller() override;

  void Start() override;
  void Stop() override;

  bool Follow(const Sources& sources) override;
  void ReportOutage(WorkerId worker) override;
  bool Resync(std::string_view worker_url) override;
  // 50 ms old at most while events come, else a second.
  std::vector<KvSourceStatus> Report() const override;

  // Where `url`'s worker is polled.
  static std::string EndpointOf(const WorkerUrl& url);

 private:
  struct Host;
  class Applier;

  int64_t Pass(const FleetView& fleet) override;
  void SetSources(const std::vector<KvSource>& sources);
  void FindWorkers(const FleetView& fleet);
  Task<void> Poll(std::shared_ptr<Host> host);
  void HandOver(const std::shared_ptr<Host>& host, std::string response);
  void Digest(Host* host, int64_t now_ns);  // what became of its last response
  void Fail(Host* host, int64_t pause_ns, std::string_view why);
  void LogFailure(Host* host, std::string_view sentence);  // at most once a minute
  int64_t NextPause(Host* host);
  // For the applier's thread; any thread. Ignored without one.
  void Post(std::function<void(TrtllmReceiver&, int64_t now_ns)> job);

  std::map<std::string, std::shared_ptr<Host>> hosts_;        // by endpoint
  std::vector<KvSource> known_;                               // as Follow() had them last
  bool is_new_ = false;                                       // the workers of hosts_ are not found yet
  std::optional<uint64_t> membership_;                        // of the fleet when they were
  mutable Mutex mutex_;                                       // held while the applier is made, told or asked
  std::unique_ptr<Applier> applier_ ABSL_GUARDED_BY(mutex_);  // once there is a source
  std::vector<KvSource> sources_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace vllm_router
