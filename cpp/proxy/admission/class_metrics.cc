#include "proxy/admission/class_metrics.h"

#include <array>
#include <memory>

#include "base/clock.h"
#include "proxy/admin/telemetry_sums.h"
#include "proxy/admission/class_pools.h"
#include "proxy/telemetry/metrics_page.h"

namespace vllm_router {
namespace {

std::string_view LabelOf(size_t of_class) { return PriorityClassName(static_cast<PriorityClass>(of_class)); }

}  // namespace

void ClassMetrics::Write(MetricsPage* page) const {
  std::array<uint64_t, kPriorityClasses> waiting{};
  const int64_t now = SteadyClock().NowNanos();
  for (const std::shared_ptr<ClassPool>& pool : pools_.All()) {
    const ClassPool::Report report = pool->Read(now);
    for (size_t i = 0; i < waiting.size(); ++i) waiting[i] += report.waiting[i];
  }
  page->Gauge(
      "class_queue_depth",
      "Requests waiting for a worker with room for their priority class: interactive, default or batch.");
  for (size_t i = 0; i < waiting.size(); ++i) page->Add(waiting[i], {{"class", LabelOf(i)}});

  page->Histogram(
      "class_queue_wait_seconds",
      "Time that requests waited for a worker with room for their priority class, however that ended, of "
      "those that had to wait.");
  for (size_t i = 0; i < waiting.size(); ++i) {
    TimeSum<buckets::kWorkerWait> sum;
    for (const ThreadClasses* const thread : threads_) sum.Add(&thread->waits[i]);
    sum.AddTo(page, {{"class", LabelOf(i)}});
  }

  page->Counter(
      "class_dispatched_total",
      "Requests that got a place at a worker, by priority class and how: direct, queued, or aged (from the "
      "queue, as one "
      "of the class above).");
  for (size_t i = 0; i < waiting.size(); ++i) {
    for (size_t kind = 0; kind < size_t{kDispatchKinds}; ++kind) {
      uint64_t count = 0;
      for (const ThreadClasses* const thread : threads_) count += thread->dispatched[i][kind].count();
      page->Add(count, {{"class", LabelOf(i)}, {"how", DispatchKindName(static_cast<DispatchKind>(kind))}});
    }
  }

  page->Counter(
      "class_rejected_total",
      "Requests that were rejected while they waited for a place at a worker, by priority class: queue_full, "
      "displaced or queue_timeout (of evicted ones, too).");
  for (size_t i = 0; i < waiting.size(); ++i) {
    for (size_t reason = 0; reason < ThreadClasses::kRejections; ++reason) {
      uint64_t count = 0;
      for (const ThreadClasses* const thread : threads_) count += thread->rejected[i][reason].count();
      page->Add(count, {{"class", LabelOf(i)}, {"reason", ThreadClasses::kRejectionNames[reason]}});
    }
  }

  page->Counter(
      "evicted_requests_total",
      "Requests that were ended at their worker before its response began, so that one of a higher priority "
      "class need not wait for their prompts, and that wait for a worker again.");
  for (size_t i = 0; i < waiting.size(); ++i) {
    uint64_t count = 0;
    for (const ThreadClasses* const thread : threads_) count += thread->evicted[i].count();
    page->Add(count, {{"class", LabelOf(i)}});
  }

  page->Counter(
      "class_closed_seconds_total",
      "Time in which requests of a priority class waited and no worker of their pool had room, by the reason "
      "that more of its workers had than any other: requests (--max-worker-requests), prefill (2,048 prompt "
      "tokens wait there), waiting (requests wait in the engine), kv (the class's ceiling) or half (half of "
      "the workers have a prompt of such a class).");
  for (size_t i = 0; i < waiting.size(); ++i) {
    for (size_t reason = 1; reason < OpenWorkers::kReasons; ++reason) {
      const auto closed = static_cast<ClosedBy>(reason);
      page->Add(
          static_cast<double>(pools_.closed_ns(i, closed)) / 1e9,
          {{"class", LabelOf(i)}, {"why", ClosedByName(closed)}});
    }
  }
}

}  // namespace vllm_router
