// KvEventPublisher: publishes what happens in the cache of a simulated engine over ZeroMQ, in the shape of
// vLLM 0.32, and replays what it has published.
//
//   LiveEngine    step 7: stored a b, removed c      one batch for each step that changed something
//   PUB           ["", 7 (u64, big-endian), payload]
//   ROUTER        ["", 5] -> ["", "", 5, payload] ["", "", 6, payload] ["", "", 7, payload] ["", "", 2^64 - 1, ""]
//
//   payload       MessagePack: [seconds, [{"type": "BlockRemoved", …}, {"type": "BlockStored", …}], 0]
//
// Its thread advances the engine to the end of each step, so events do not wait for the next request; it
// holds no lock while it sends. The last buffer_steps batches are kept: for replays, and while publishing
// is stalled. All methods may be called from any thread.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/file_descriptor.h"
#include "base/mutex.h"
#include "base/status.h"
#include "net/zmq_socket.h"
#include "simulation/live_engine.h"

namespace vllm_router {

// As the faults of the same names of simulated_worker.h.
struct KvEventFaults {
  uint64_t drop_batches = 0;
  uint64_t garbage_batches = 0;
  bool stall = false;
};

struct KvEventOptions {
  std::string host = "127.0.0.1";
  int port = 0;          // 0: any free port
  int replay_port = -1;  // -1: no replays
  size_t buffer_steps = 10'000;
  KvEventFaults faults;
};

class KvEventPublisher {
 public:
  // FailedPrecondition or InvalidArgument, with the endpoint, when it cannot listen. REQUIRES: engine and
  // clock outlive it, and the clock is the engine's; buffer_steps above 0.
  static StatusOr<std::unique_ptr<KvEventPublisher>> Start(
      const KvEventOptions& options, LiveEngine& engine, const Clock& clock);
  ~KvEventPublisher();  // Stop()

  uint16_t port() const { return port_; }
  uint16_t replay_port() const { return replay_port_; }  // 0: no replays
  std::string SourcesJson() const;                       // as of /kv_event_sources

  // The engine's next event may have come nearer.
  void Wake();
  void SetFaults(const KvEventFaults& faults);
  // Forgets the engine's cache and the batches kept, and numbers from 0. Returns when that is done.
  void Restart();
  // Closes the ports.
  void Stop();

 private:
  struct Control {
    KvEventFaults faults;
    uint64_t faults_set = 0;
    uint64_t restarts = 0;
    bool stop = false;
  };

  KvEventPublisher(const KvEventOptions& options, LiveEngine& engine, const Clock& clock);
  Status Open();
  void Run();
  void Obey(const Control& control);
  void StartAnew();
  void Append(const LiveEngine::CacheStep& step);
  void Publish();
  void ReceiveRequests();
  void ServeReplays();
  void WaitUntil(int64_t time);

  const KvEventOptions options_;
  LiveEngine& engine_;
  const Clock& clock_;
  const FileDescriptor wake_;
  uint16_t port_ = 0;
  uint16_t replay_port_ = 0;

  Mutex mutex_;  // leaf
  Control control_ ABSL_GUARDED_BY(mutex_);
  uint64_t restarted_ ABSL_GUARDED_BY(mutex_) = 0;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  std::condition_variable changed_;
  Mutex joining_;  // held while waiting for the thread's end

  // Its thread's.
  std::optional<ZmqContext> context_{std::in_place};
  std::vector<ZmqSocket> sockets_;  // PUB, then ROUTER if there are replays
  std::vector<LiveEngine::CacheStep> steps_;
  std::deque<std::string> batches_;  // payloads
  uint64_t first_ = 0;               // the number of the first of them
  uint64_t next_ = 0;                // to publish
  KvEventFaults left_;               // of the faults
  uint64_t faults_set_ = 0;
  uint64_t restarts_ = 0;
  struct Replay {
    std::string peer;
    uint64_t from;
  };
  std::vector<Replay> replays_;  // that are due
  std::vector<std::string> request_;

  std::thread thread_;
};

}  // namespace vllm_router
