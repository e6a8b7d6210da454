// ModelService asks each host of the fleet which models it serves (GET /v1/models), so that a request goes only to
// workers that serve its model (worker/model_catalog.h).
//
//   joins (FleetManager), or the server starts --.
//   each --model-refresh-secs, +-10 %            +--> GET /v1/models --> registry: pools
//   a 404 for a model that it should have -------'    no response: what it said last; at first, what all others list
//
// A host that responds without a list (404, 405, 501) has none to give: it may serve anything, unless it gave one
// before. Lists that differ from what was known are published at once, or kPublishNanos after the last ones: a fleet
// of a thousand workers that starts is published a few times and not a thousand. After a 404 a host is asked at most
// each kRecheckNanos. Ranks of one host are asked once. On the control thread, except where a comment says any thread.
//
// A host that wants a key (401, 403) where the router has none for it lists its models to its own clients only
// (GuardedHosts).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/mutex.h"
#include "net/event_loop.h"
#include "net/task.h"
#include "proxy/control/host_poller.h"
#include "worker/model_catalog.h"
#include "worker/worker_url.h"

namespace vllm_router {

// Hosts that list their models to clients with a key of theirs, not to the router, and what such clients were shown.
//
// Clients may be shown different lists, so what one was shown adds to what others were: a list never hides a model
// that another client may use. It is kept until a worker says that it does not have a model that it listed, and a host
// of which nothing is known may serve anything. What was learnt decides where requests go, and is shown to nobody
// (ServerLimits::models_are_private): a client gets the lists that its own key opens. Thread-safe.
class GuardedHosts {
 public:
  // False: the host has responded to the router; what was learnt of it is dropped.
  void Set(std::string_view base, bool guarded);
  bool Contains(std::string_view base) const;
  bool any() const;
  bool HasLearnt(std::string_view base) const;
  // All that clients were shown, these cards included; none of a host that is not guarded.
  std::vector<ModelCard> Learn(std::string_view base, std::span<const ModelCard> cards);
  void Unlearn(std::string_view base);
  // Drops all others.
  void KeepOnly(const std::function<bool(const std::string& base)>& is_kept);

 private:
  mutable Mutex mutex_;  // leaf
  std::map<std::string, std::vector<ModelCard>, std::less<>> hosts_ ABSL_GUARDED_BY(mutex_);
};

class ModelService final : public HostPoller {
 public:
  static constexpr int64_t kRecheckNanos = 2'000'000'000;
  static constexpr int64_t kPublishNanos = 50'000'000;  // lists that come within it are published together

  explicit ModelService(IoThread& thread);

  void Start() override { Begin(); }
  void FollowSettings() override;

  GuardedHosts& guarded() { return guarded_; }  // any thread

  // False with --model-refresh-secs 0: no worker is asked, and each may serve anything.
  bool asks() const;
  // The worker responded 404 to a request for a model that it lists. Any thread.
  void ReportMissing(const std::shared_ptr<Worker>& worker);
  // All are asked soon. Any thread.
  void PollAll();
  // Asks a host, which need not be in the fleet yet. `joins`: what a worker on this address said before does not
  // count. False: it has not responded.
  Task<bool> Fetch(WorkerUrl url, bool joins);

 private:
  struct Host {
    int64_t due_ns = 0;
    int64_t asked_ns = INT64_MIN / 2;
    bool polling = false;
    bool again = false;  // once the poll has ended
    bool warned = false;
    bool was_empty = false;
    bool doubted = false;  // since it was asked last
    bool is_open = false;  // it has listed its models to everybody
    int failures = 0;
    std::string failure = {};
  };

  int64_t Pass(const FleetView& fleet) override;
  Task<void> Poll(std::shared_ptr<Host> host, WorkerUrl url);
  void PublishSoon();
  Task<void> PublishLater();

  GuardedHosts guarded_;
  std::map<std::string, std::shared_ptr<Host>> hosts_;  // by base URL
  int polling_ = 0;
  Delay publish_delay_;
  bool publishing_ = false;  // soon
  int64_t published_ns_ = INT64_MIN / 2;
};

}  // namespace vllm_router
