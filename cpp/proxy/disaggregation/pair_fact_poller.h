// PairFactPoller: the common part of services that learn of workers what a pair has to know of them
// (worker/pair_state.h): which engine it is, and its id.
//
//   joins, is healthy again  --> at once                                     --.
//   Recheck()                --> at once, but at most each kRecheckNanos       +--> GET, time and size limited --> Learn()
//   each kIntervalNanos, +-10 %                                              --'                                                  `-> fleet
//   no response, or not all of it   after 0.25, 0.5, 1, 2, 4 and each further 5 s
//
// What is learned is published at once, or kPublishNanos after the last time, so that a fleet that starts is published a
// few times. Workers with one address are asked for once. kMaxHealthChecks requests are under way at most; those that
// have failed before come last, so that servers that accept and never respond keep no other from its turn. Unhealthy
// workers are not asked for. On the control thread, except where a comment says any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "net/event_loop.h"
#include "net/task.h"
#include "proxy/client/http_client.h"
#include "proxy/control/host_poller.h"
#include "worker/worker_url.h"

namespace vllm_router {

class PairFactPoller : public HostPoller {
 public:
  static constexpr int64_t kIntervalNanos = 30'000'000'000;
  static constexpr int64_t kRecheckNanos = 1'000'000'000;
  static constexpr int64_t kPublishNanos = 50'000'000;
  static constexpr int64_t kLookNanos = 100'000'000;  // between looks at the fleet
  static constexpr size_t kMaxReplyBytes = size_t{1} << 20;

  void Start() override { Begin(); }
  void FollowSettings() override;
  // What was known of the worker may not hold any more. Any thread; cheap.
  void Recheck(const std::shared_ptr<Worker>& worker);
  // The fleet has changed.
  void Look() { PassNow(); }

 protected:
  PairFactPoller(IoThread& thread, std::string target);

  // Whom to ask for this worker; nullopt: it has nothing to tell. Equal bases are asked once.
  virtual std::optional<WorkerUrl> AddressOf(const Worker& worker) const = 0;
  // What was responded, for those that have this address now. `doubted`: something has failed because of what was
  // known. Returns true if it has all been told.
  virtual bool Learn(
      const WorkerUrl& address, const Workers& workers, const StatusOr<HttpResponse>& response, bool doubted,
      int failures) = 0;
  // The worker is unhealthy. May be called repeatedly.
  virtual void IsDown(Worker& /*worker*/) {}
  // After PublishSoon().
  virtual void Published(const FleetView& /*fleet*/) {}

  // Something of a worker has changed.
  void PublishSoon();

 private:
  struct Host {
    WorkerUrl address;
    Workers workers;
    std::set<WorkerId> healthy;
    int64_t due_ns = 0;
    int64_t doubt_ns = INT64_MIN / 2;  // when it was last asked because of a doubt
    bool polling = false;
    bool doubted = false;
    int failures = 0;  // one after the other
  };

  int64_t Pass(const FleetView& fleet) override;
  void FollowFleet(const FleetView& fleet, int64_t now);
  int64_t StartPolls(int64_t now);
  Task<void> Poll(std::shared_ptr<Host> host);
  Task<void> PublishLater();

  const std::string target_;
  std::map<std::string, std::shared_ptr<Host>> hosts_;  // by the base of their address
  std::shared_ptr<const FleetView> followed_;           // that hosts_ reflects
  int polling_ = 0;
  Delay publish_delay_;
  bool publishing_ = false;  // soon
  int64_t published_ns_ = INT64_MIN / 2;
};

}  // namespace vllm_router
