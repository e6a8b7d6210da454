// HangWatch takes workers out of rotation that accept requests, pass their health checks, and do not serve
// (worker/hang_detector.h), and brings them back.
//
//   every 500 ms    HangDetector::Observe     which workers are silent while others serve
//   of these        all data threads list the requests that wait there -> HangDetector::Judge
//   in doubt        the next fleet snapshot leaves the worker out; requests without a byte of a response move to
//                   others as they become overdue, once each, within attempts and the retry budget. If none that is
//                   overdue streams, long responses may be what takes so long, so they move only when a probe has
//                   waited for the limit as well
//   probe           one request goes there after 2 s, then after 4, up to 30; it moves as well if the worker stays
//                   silent. If for 30 s none came that can move, any may be the one
//   a byte of it    it is back, with a slow start
//   healthy again   after failed health checks: likewise back, since its process is another
//
// On the control thread; the lists are made on the data threads, and only of workers that are silent.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "net/event_loop.h"
#include "net/task.h"
#include "proxy/control/service.h"
#include "worker/fleet_view.h"
#include "worker/hang_detector.h"

namespace vllm_router {

struct IoThread;

class HangWatch final : public Service {
 public:
  // What the data threads do; results are delivered on the control thread.
  struct Threads {
    using Waits = std::vector<HangDetector::Wait>;
    // Lists the requests that wait at the worker; `done` is called once, with those of all threads.
    std::function<void(const std::shared_ptr<Worker>&, std::function<void(Waits)> done)> list;
    // Moves those that are overdue to other workers.
    std::function<void(const std::shared_ptr<Worker>&, const HangDetector::Doubt&)> move;
  };

  HangWatch(IoThread& control, Threads threads);

  void Start() override;
  void Stop() override;
  bool ended() const override { return !running_; }

 private:
  struct InDoubt {
    std::shared_ptr<Worker> worker;
    int64_t since_ns;
    int64_t last_byte_ns;  // before it
    HangDetector::Doubt doubt;
    bool moves;        // its requests, to other workers
    int64_t probe_ns;  // when the next one is due
    int64_t probe_pause_ns;
    int64_t due_ns = 0;    // since when one is; 0: none is
    int64_t taken_ns = 0;  // when the first one was; 0: none was
    bool healthy = true;   // at the last tick
  };

  Task<void> Run();
  int64_t TickNs() const;
  void Tick();
  void FollowDoubts(const FleetView& fleet, int64_t now_ns);
  void FollowProbe(Worker& worker, int64_t now_ns, InDoubt* doubt) const;
  void Judge(const std::shared_ptr<Worker>& worker, const Threads::Waits& waits);
  void Restore(const InDoubt& doubt, const std::string& why);

  IoThread& thread_;
  const Threads threads_;
  Delay delay_;
  bool stopped_ = false;
  bool running_ = false;
  HangDetector detector_;
  std::map<WorkerId, InDoubt> in_doubt_;
  std::set<WorkerId> listing_;  // their requests are being listed
};

}  // namespace vllm_router
