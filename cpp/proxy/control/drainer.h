// Drainer takes workers out of the fleet without cutting requests short. A draining worker gets no new
// requests. It is removed when its last request has ended; at the timeout, the rest are cut and it is
// removed. With --continue-drain-secs, streams that another worker can finish are handed over before.
//
//   Begin --> draining --> drained            the last request ended
//                 |------> cut                the timeout passed
//                 |------> removed            by another call meanwhile
//                 `------> (no row any more)  Cancel(): it serves again
//
// Rows() shows all draining workers and the last kMostEnded that ended. What ended is forgotten once a worker of that
// URL is in the fleet again, so a row always says what became of the worker that is there, or was there last. Begin,
// Cancel, Rows and ForgetReturned from any thread; the watching runs on the control thread.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"
#include "net/event_loop.h"
#include "net/task.h"
#include "proxy/control/service.h"
#include "routing/router.h"

namespace vllm_router {

struct IoThread;

class Drainer final : public Service {
 public:
  static constexpr size_t kMostEnded = 100;

  enum class State : uint8_t { kDraining, kDrained, kCut, kRemoved };
  static std::string_view StateName(State state);

  struct Row {
    std::string url;
    State state = State::kDraining;
    int64_t open_requests = 0;  // now, or when it ended
    int64_t begun_ns = 0;       // by the thread's clock
    int64_t ended_ns = 0;
    int64_t timeout_ms = 0;
  };

  using OfWorker = std::function<void(std::shared_ptr<const Worker>)>;
  // `cut`: ends all exchanges with a worker, soon. `hand_over`: begins to hand its streams over; called again while there
  // are some. Both are called on the control thread.
  Drainer(IoThread& control, OfWorker cut, OfWorker hand_over);

  // Drains by an admin's wish. A URL without @rank drains all ranks. A repeated call restarts the timeout.
  // NotFound names the nearest known URL.
  Status Begin(std::string_view url, int64_t timeout_ms);
  Status Cancel(std::string_view url);
  // Watches one that drains because of its sources. On the control thread; nothing if it is watched.
  void Watch(const std::shared_ptr<Worker>& worker, int64_t timeout_ms);
  // Of one worker, or of all ranks of a host; without a URL, of all.
  std::vector<Row> Rows(std::string_view url = {});
  // After workers have joined.
  void ForgetReturned();
  int64_t Now() const;

  void Start() override {}  // with the first Begin()
  void Stop() override;
  bool ended() const override { return !running_; }

 private:
  struct Draining {
    Row row;
    std::shared_ptr<Worker> worker;
  };

  struct Ended {
    Row row;
    WorkerUrl url;
  };

  void ForgetReturnedLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Insert(const std::shared_ptr<Worker>& worker, int64_t timeout_ms)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);  // false if it is there already
  void Shorten(const std::shared_ptr<Worker>& worker, int64_t timeout_ms)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void WatchAll();
  Task<void> Run();
  bool IsHandOverDue(const Row& row) const;
  bool Look();  // false if no worker drains any more
  void End(Draining&& draining, State state) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  IoThread& thread_;
  const OfWorker cut_;
  const OfWorker hand_over_;
  Delay delay_;
  bool stopped_ = false;
  bool running_ = false;

  mutable Mutex mutex_;  // the registry's is taken under it, never the other way round
  std::vector<Draining> draining_ ABSL_GUARDED_BY(mutex_);
  std::deque<Ended> ended_ ABSL_GUARDED_BY(mutex_);
  uint64_t membership_version_ ABSL_GUARDED_BY(mutex_) = 0;  // of the fleet that ended_ was compared with
};

}  // namespace vllm_router
