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
// each kDoubtNanos. Ranks of one host are asked once. On the control thread, except where a comment says any thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "net/event_loop.h"
#include "net/task.h"
#include "proxy/control/host_poller.h"
#include "worker/worker_url.h"

namespace vllm_router {

class ModelService final : public HostPoller {
 public:
  static constexpr int64_t kDoubtNanos = 2'000'000'000;
  static constexpr int64_t kPublishNanos = 50'000'000;  // lists that come within it are published together

  explicit ModelService(IoThread& thread);

  void Start() override { Begin(); }
  void FollowSettings() override;

  // False with --model-refresh-secs 0: no worker is asked, and each may serve anything.
  bool asks() const;
  // The worker responded 404 to a request for a model that it lists. Any thread.
  void Doubt(const std::shared_ptr<Worker>& worker);
  // All are asked soon. Any thread.
  void AskAll();
  // Asks a host, which need not be in the fleet yet. `joins`: what a worker on this address said before does not
  // count. False: it has not responded.
  Task<bool> Ask(WorkerUrl url, bool joins);

 private:
  struct Host {
    int64_t due_ns = 0;
    int64_t asked_ns = INT64_MIN / 2;
    bool polling = false;
    bool again = false;  // once the poll has ended
    bool warned = false;
    bool was_empty = false;
    int failures = 0;
  };

  int64_t Pass(const FleetView& fleet) override;
  Task<void> Poll(std::shared_ptr<Host> host, WorkerUrl url);
  void PublishSoon();
  Task<void> PublishLater();

  std::map<std::string, std::shared_ptr<Host>> hosts_;  // by base URL
  int polling_ = 0;
  Delay publish_delay_;
  bool publishing_ = false;  // soon
  int64_t published_ns_ = INT64_MIN / 2;
};

}  // namespace vllm_router
