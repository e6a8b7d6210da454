// ConditionWatch looks once a second for what is wrong with the fleet and the services, and logs what began and what is
// over, where nobody else does.
//
//   all threads' RecentOutcomes, the fleet's states  -->  FindConditions()  --.
//   Service::AddConditions of each service  ----------------------------------+-->  Report()  -->  GET /admin/status, metrics
//
// A condition is over once it has not been found for kOverNanos; one that is judged by responses begins when it was found
// for kBeginNanos, so that a burst of errors is none. That a worker is slow takes kSlowNanos: a few long prompts are not.
// On the control thread;
// Report() on any.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "conditions/condition_report.h"
#include "conditions/recent_outcomes.h"
#include "net/event_loop.h"
#include "net/task.h"
#include "proxy/control/service.h"
#include "worker/fleet_view.h"

namespace vllm_router {

class Services;
struct IoThread;

class ConditionWatch final : public Service, public ConditionReport {
 public:
  static constexpr int64_t kTickNanos = 1'000'000'000;
  static constexpr int64_t kBeginNanos = 3'000'000'000;
  static constexpr int64_t kSlowNanos = 60'000'000'000;
  static constexpr int64_t kOverNanos = 5'000'000'000;
  static std::atomic<int64_t> speed;  // of these; tests are faster

  // These outlive it.
  ConditionWatch(IoThread& control, std::vector<const RecentOutcomes*> outcomes, const Services& services);

  void Start() override;
  void Stop() override;
  bool ended() const override { return !runs_; }

  std::shared_ptr<const std::vector<ActiveCondition>> Report() const override;
  void Look() override { Tick(); }
  // Of the last minute, by worker; any thread.
  OutcomeSums Outcomes() const;
  void WriteMetrics(MetricsPage* page) const override;

 private:
  struct Seen {
    Condition condition;
    int64_t first_ns;
    int64_t last_ns;
    double since;
    bool is_active = false;
  };

  Task<void> Run();
  void Tick();
  std::vector<Condition> Find() const;
  void Follow(std::vector<Condition> found, int64_t now_ns);

  IoThread& thread_;
  const std::vector<const RecentOutcomes*> outcomes_;
  const Services& services_;
  Delay delay_;
  bool stopped_ = false;
  bool runs_ = false;
  std::vector<Seen> seen_;  // active ones and others

  mutable Mutex mutex_;
  std::shared_ptr<const std::vector<ActiveCondition>> report_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace vllm_router
