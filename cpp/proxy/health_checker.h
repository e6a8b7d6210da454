// HealthChecker: asks every host of the fleet, at an interval, whether it serves. Concurrently, each with its own
// deadline and the workers' key; ranks of one host are asked once; down or up, a host is asked for ever. When each is due
// is worker/health.h's affair. Changes of verdict go to the registry, hence into the next fleet snapshot.
//
// It also hears from requests: a worker that could not be reached is asked at once (Suspect), and one that came back
// gets its share of the load back over --slow-start-secs (Recovered). On the control lane; what other threads may call
// says so.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "net/task.h"
#include "proxy/lane.h"
#include "worker/circuit_breaker.h"
#include "worker/health.h"

namespace vllm_router {

class HealthChecker {
 public:
  explicit HealthChecker(Lane& lane);

  // `on_dead`: called on the control lane once a worker is down and cannot even be connected to, so that what it was
  // asked for goes elsewhere. Before Start().
  void set_on_dead(std::function<void(std::shared_ptr<const Worker>)> on_dead) {
    on_dead_ = std::move(on_dead);
  }

  void Start();
  // Ends in one of the loop's next turns, probes under way when they do.
  void Stop();
  bool ended() const { return open_ == 0; }

  // Any thread.
  void Suspect(const std::shared_ptr<Worker>& worker);
  void Recovered(const std::shared_ptr<Worker>& worker);
  bool checks() const { return lane_.options.health_check_interval_ms > 0; }
  bool anybody_answered() const { return anybody_answered_.load(std::memory_order_relaxed); }

 private:
  struct Warming {
    std::shared_ptr<Worker> worker;
    int64_t since_ns;
  };

  Task<void> Run();
  Task<void> Probe(WorkerUrl url);
  void FollowFleet(const FleetView& fleet);
  void TellBreakers(const std::string& base, bool answered);
  Task<void> WarmUp();

  Lane& lane_;
  Delay delay_;
  Delay warming_delay_;
  bool stopped_ = false;
  int open_ = 0;                                // coroutines of ours
  int asking_ = 0;                              // probes under way
  std::map<std::string, HealthWatch> watches_;  // by base URL
  std::map<std::string, WorkerUrl> hosts_;
  uint64_t membership_ = ~uint64_t{0};  // of the fleet that hosts_ is of
  std::set<std::string> dead_;          // by base URL: out of reach since its verdict, or before
  std::function<void(std::shared_ptr<const Worker>)> on_dead_;
  std::vector<Warming> warming_;
  bool warming_up_ = false;
  std::atomic<bool> anybody_answered_{false};
};

// Lets open breakers that are due admit a probe, and ends rests that are over. To be called before somebody is chosen, or
// waited for, from a fleet that is not steady. Any lane's thread.
void WorkersComeDue(Lane& lane, const FleetView& fleet);

// Panic mode: requests go to workers whose circuit breakers do not admit them, since no other does. Logged once when it
// begins and once when a closed breaker has been found again. Any lane's thread.
void BeginPanic(Lane& lane, const FleetView& fleet);
void EndPanic(Lane& lane, const Worker& found);

// Tells log and metrics, and the fleet's next snapshot, that a breaker has moved. Any lane's thread.
void BreakerMoved(
    Lane& lane, const std::shared_ptr<Worker>& worker, BreakerChange change, std::string_view why);

// Settles `pass` with a failure of `worker` that the request may have caused: a 5xx, a lost connection, a timeout after it
// was sent. So it opens a closed breaker only while MayEject(); what shows that the worker cannot be reached is not held to
// that. At the response's head (or instead of it), or at its end. Any lane's thread.
enum class FailedAt : uint8_t { kHead, kEnd };
void SettleFailure(
    Lane& lane, const std::shared_ptr<Worker>& worker, BreakerPass& pass, FailedAt at, std::string_view why);

}  // namespace vllm_router
