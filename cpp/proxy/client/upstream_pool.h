// UpstreamPool: idle connections to workers. One per thread, so no locks.
//
//   worker 3:  [oldest … newest]   Acquire() returns the newest, so that the oldest expire
//
// An idle connection keeps its wait for reading armed. A worker that closes it (uvicorn does after 5 s,
// without notice) or sends bytes unrequested removes it from the pool at once. The exchange handles the
// remaining race: it sends again on a fresh connection if a reused one ends before the first byte of a
// response.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "net/socket.h"
#include "net/timer_wheel.h"
#include "worker/worker.h"

namespace vllm_router {

class UpstreamPool;

// Connection counts, for a scrape to read from another thread. Null: not counted.
struct UpstreamGauges {
  std::atomic<int64_t>* open = nullptr;
  std::atomic<int64_t>* idle = nullptr;  // of these, the idle ones
};

struct UpstreamConnection {
  explicit UpstreamConnection(const UpstreamGauges& gauges);
  ~UpstreamConnection();
  UpstreamConnection(const UpstreamConnection&) = delete;
  UpstreamConnection& operator=(const UpstreamConnection&) = delete;

  Socket socket;
  WorkerId worker{};
  bool reused = false;  // has carried a whole exchange before

 private:
  friend class UpstreamPool;
  void SetIdle(bool idle);

  const UpstreamGauges gauges_;
  UpstreamPool* pool_ = nullptr;
  bool idle_ = false;
  Timer idle_timer_;
};

class UpstreamPool {
 public:
  using Lease = std::unique_ptr<UpstreamConnection>;

  // What `gauges` points to must outlive the pool and its leases.
  UpstreamPool(
      TimerWheel& timers, size_t most_per_worker, int64_t idle_ms, const UpstreamGauges& gauges = {});

  // The connection that became idle last, or null.
  Lease Acquire(WorkerId worker);
  // A new one.
  Lease Adopt(Socket socket, WorkerId worker);
  // REQUIRES: an exchange has ended exactly at the framed end of its response, and both sides keep the
  // connection.
  void Release(Lease lease);

  // For connections that become idle from now on.
  void SetLimits(size_t most_per_worker, int64_t idle_ms) {
    most_per_worker_ = most_per_worker;
    idle_ms_ = idle_ms;
  }

  void CloseWorker(WorkerId worker);
  void CloseAll() { idle_.clear(); }
  size_t idle() const;

 private:
  static void OnExpired(void* connection);
  void Drop(UpstreamConnection* connection);

  TimerWheel& timers_;
  size_t most_per_worker_;
  int64_t idle_ms_;
  const UpstreamGauges gauges_;
  std::unordered_map<uint32_t, std::vector<Lease>> idle_;  // by worker id; newest last
};

}  // namespace vllm_router
