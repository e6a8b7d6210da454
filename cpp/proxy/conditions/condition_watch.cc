#include "proxy/conditions/condition_watch.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/text.h"
#include "proxy/control/services.h"
#include "proxy/telemetry/metrics_page.h"
#include "proxy/thread/io_thread.h"
#include "routing/router.h"

namespace vllm_router {
namespace {

// The others are logged by those who find them, or change by the fleet's own rules.
bool IsByResponses(ConditionKind kind) {
  switch (kind) {
    case ConditionKind::kAllReject:
    case ConditionKind::kWorkerRejects:
    case ConditionKind::kWorkerNotFound:
    case ConditionKind::kModelFails:
    case ConditionKind::kWorkerIsSlow:
      return true;
    default:
      return false;
  }
}

}  // namespace

std::atomic<int64_t> ConditionWatch::speed{1};

ConditionWatch::ConditionWatch(
    IoThread& control, std::vector<const RecentOutcomes*> outcomes, const Services& services)
    : thread_(control),
      outcomes_(std::move(outcomes)),
      services_(services),
      delay_(control.loop),
      report_(std::make_shared<const std::vector<ActiveCondition>>()) {}

void ConditionWatch::Start() { Spawn(Run()); }

void ConditionWatch::Stop() {
  stopped_ = true;
  delay_.Cancel();
}

Task<void> ConditionWatch::Run() {
  runs_ = true;
  while (!stopped_) {
    co_await delay_.For(kTickNanos / speed.load(std::memory_order_relaxed));
    if (!stopped_) Tick();
  }
  runs_ = false;
}

std::shared_ptr<const std::vector<ActiveCondition>> ConditionWatch::Report() const {
  const MutexLock lock(mutex_);
  return report_;
}

OutcomeSums ConditionWatch::Outcomes() const {
  OutcomeSums sums;
  const int64_t now = thread_.clock.NowNanos();
  for (const RecentOutcomes* const outcomes : outcomes_) outcomes->AddTo(&sums, now);
  return sums;
}

std::vector<Condition> ConditionWatch::Find() const {
  OutcomeSums sums = Outcomes();
  const std::shared_ptr<const FleetView> fleet = thread_.router->pool().fleet();
  std::vector<WorkerFacts> workers;
  workers.reserve(fleet->members().size());
  for (const FleetView::Member& member : fleet->members()) {
    const Worker& worker = *member.worker;
    workers.push_back(
        {.url = worker.url.url,
         .is_healthy = member.healthy,
         .is_ejected = worker.breaker.state() == BreakerState::kOpen,
         .is_in_doubt = member.in_doubt,
         .is_draining = member.draining,
         .models = std::move(sums[worker.id].models)});
  }
  std::vector<Condition> found = FindConditions(workers);
  services_.AddConditions([&found](std::string_view name, std::string_view worker, std::string text) {
    found.push_back(
        {.kind = ConditionKind::kService,
         .service = name,
         .worker = std::string(worker),
         .text = std::move(text)});
  });
  return found;
}

void ConditionWatch::Tick() { Follow(Find(), thread_.clock.NowNanos()); }

void ConditionWatch::Follow(std::vector<Condition> found, int64_t now_ns) {
  const auto begin_ns = [](ConditionKind kind) {
    const int64_t nanos = kind == ConditionKind::kWorkerIsSlow ? kSlowNanos : kBeginNanos;
    return nanos / speed.load(std::memory_order_relaxed);
  };
  const int64_t over_ns = kOverNanos / speed.load(std::memory_order_relaxed);
  std::vector<Seen> seen;
  seen.reserve(found.size() + seen_.size());
  for (Condition& condition : found) {
    const auto before = std::find_if(
        seen_.begin(), seen_.end(), [&](const Seen& each) { return each.condition.IsOf(condition); });
    const bool is_new = before == seen_.end();
    Seen next{
        .condition = std::move(condition),
        .first_ns = is_new ? now_ns : before->first_ns,
        .last_ns = now_ns,
        .since = is_new ? UnixSeconds() : before->since,
        .is_active = !is_new && before->is_active};
    if (!is_new) seen_.erase(before);
    const bool by_responses = IsByResponses(next.condition.kind);
    if (!next.is_active && (!by_responses || now_ns - next.first_ns >= begin_ns(next.condition.kind))) {
      next.is_active = true;
      if (by_responses) Log(LogLevel::kWarning, next.condition.text);
    }
    seen.push_back(std::move(next));
  }
  for (Seen& before : seen_) {
    const bool by_responses = IsByResponses(before.condition.kind);
    if (before.is_active && by_responses && now_ns - before.last_ns < over_ns) {
      seen.push_back(std::move(before));
    } else if (before.is_active && by_responses) {
      Log(LogLevel::kInfo, Concat("no longer so: ", before.condition.text));
    }
  }
  seen_ = std::move(seen);
  auto report = std::make_shared<std::vector<ActiveCondition>>();
  for (const Seen& each : seen_) {
    if (each.is_active) report->push_back({.condition = each.condition, .since = each.since});
  }
  const MutexLock lock(mutex_);
  report_ = std::move(report);
}

void ConditionWatch::WriteMetrics(MetricsPage* page) const {
  page->Gauge(
      "condition",
      "Always 1, for what is wrong now, as GET /admin/status: no_worker_serves, all_reject, worker_is_down, "
      "worker_hangs, worker_ejected, worker_rejects, worker_not_found, model_fails, worker_is_slow, "
      "kv_events, peer_sync, response_cache_redis. The labels worker and model are empty where it is not of "
      "one.");
  for (const ActiveCondition& active : *Report()) {
    const Condition& condition = active.condition;
    page->Add(1, {{"condition", condition.name()}, {"worker", condition.worker}, {"model", condition.model}});
  }
}

}  // namespace vllm_router
