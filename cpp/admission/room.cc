#include "admission/room.h"

#include <algorithm>
#include <array>

namespace vllm_router {
namespace {

// One that counts.
const WorkerReport* ReportOf(const WorkerRoom& worker) {
  if (!worker.report) return nullptr;
  const bool is_doubtful = worker.open == 0 && worker.idle_ns >= kReportIgnoredAfterNs &&
                           (worker.report->kv_usage >= kHighestCeiling || worker.report->waiting != 0);
  return is_doubtful ? nullptr : &*worker.report;
}

}  // namespace

std::string_view ClosedByName(ClosedBy closed) {
  constexpr std::array<std::string_view, 6> kNames = {"none", "requests", "prefill", "waiting", "kv", "half"};
  return kNames[static_cast<size_t>(closed)];
}

std::optional<double> KvUsage(const WorkerRoom& worker) {
  const WorkerReport* const report = ReportOf(worker);
  if (worker.capacity == 0) return report != nullptr ? std::optional(report->kv_usage) : std::nullopt;
  const auto capacity = static_cast<double>(worker.capacity);
  const double own = static_cast<double>(worker.tokens) / capacity;
  if (report == nullptr) return own;
  return std::max(own, report->kv_usage + static_cast<double>(report->sent) / capacity);
}

ClosedBy RoomOf(const WorkerRoom& worker, const ClassRoom& of_class, const PoolRoom& pool) {
  if (pool.max_requests != 0 && worker.open >= pool.max_requests) return ClosedBy::kRequests;
  if (of_class.gate == ClassGate::kOpen) return ClosedBy::kNone;
  if (worker.queued_prefill >= kMaxQueuedPrefill) return ClosedBy::kPrefill;
  const WorkerReport* const report = ReportOf(worker);
  const uint64_t reported = report != nullptr ? report->waiting : 0;
  const bool idle_only = of_class.gate == ClassGate::kIdleOnly;
  const bool waits = idle_only ? worker.waiting != 0 || reported != 0 : reported > worker.waiting;
  if (waits) return ClosedBy::kWaiting;
  const bool is_bounded = !idle_only || pool.higher_class_active;
  if (KvUsage(worker).value_or(0) >= (is_bounded ? of_class.kv_ceiling : kHighestCeiling))
    return ClosedBy::kKv;
  if (idle_only && is_bounded && pool.idle_only_prefills >= std::max<uint64_t>(1, pool.workers / 2))
    return ClosedBy::kHalf;
  return ClosedBy::kNone;
}

}  // namespace vllm_router
