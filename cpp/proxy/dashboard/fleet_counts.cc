#include "proxy/dashboard/fleet_counts.h"

#include "proxy/telemetry/telemetry.h"
#include "proxy/telemetry/telemetry_shard.h"

namespace vllm_router {
namespace {

template <size_t kSize, typename Histogram>
void AddBuckets(const Histogram& histogram, std::array<uint64_t, kSize>* sums) {
  for (size_t i = 0; i < kSize; ++i) (*sums)[i] += histogram.bucket(i);
}

void AddRoute(const Telemetry::Shard& shard, size_t route, FleetCounts* counts) {
  const auto ends = [&](ExchangeEnd end) { return shard.ends[route][static_cast<size_t>(end)].count(); };
  for (int end = 0; end < kExchangeEndCount; ++end) counts->requests += ends(static_cast<ExchangeEnd>(end));
  counts->retried += shard.retries[route].count();
  uint64_t errors = 0;  // 5xx
  if (const StatusCounters* const statuses = shard.statuses[route].Find()) {
    for (int status = 500; status < StatusCounters::kFirst + StatusCounters::kCount; ++status)
      errors += (*statuses)[status].count();
  }
  // A timeout before the head is a 504, and one behind it an end without one; no request counts twice.
  const uint64_t timeouts = ends(ExchangeEnd::kTimeout);
  counts->failed += ends(ExchangeEnd::kWorkerGone) + ends(ExchangeEnd::kWorkerError) +
                    ends(ExchangeEnd::kWorkerAborted) + timeouts +
                    (errors > timeouts ? errors - timeouts : 0);
}

}  // namespace

FleetCounts CountFleet(std::span<const Telemetry* const> telemetries) {
  FleetCounts counts;
  for (const Telemetry* const telemetry : telemetries) {
    const Telemetry::Shard& shard = telemetry->shard();
    for (size_t route = 0; route < kNamedRoutes; ++route) {
      if (!RouteOf(static_cast<Route>(route)).own) AddRoute(shard, route, &counts);
    }
    AddBuckets(shard.overhead, &counts.overheads);
    AddBuckets(shard.queue_waits, &counts.waits);
    const MutexLock lock(shard.workers.mutex);
    shard.workers.ForEach([&counts](const WorkerCounters& worker) {
      for (const Lazy<WorkerCounters::Times>& lazy : worker.times) {
        if (const WorkerCounters::Times* const times = lazy.Find())
          AddBuckets(times->first_token, &counts.first_tokens);
      }
    });
  }
  return counts;
}

}  // namespace vllm_router
