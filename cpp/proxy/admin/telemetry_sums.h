// TelemetrySums: what the threads' Telemetry objects counted, summed for a scrape. The threads count meanwhile and take no
// lock; a sum has what each had counted when it was read. Any thread.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "proxy/api/routes.h"
#include "proxy/telemetry/counters.h"
#include "proxy/telemetry/metrics_page.h"
#include "proxy/telemetry/telemetry.h"
#include "proxy/telemetry/telemetry_shard.h"

namespace vllm_router {

class TelemetrySums {
 public:
  // These outlive it. The last one is the control thread's: its connections are not clients'.
  explicit TelemetrySums(std::vector<const Telemetry*> all) : all_(std::move(all)) {}

  const std::vector<const Telemetry*>& all() const { return all_; }

  // Of pick(shard) over the threads.
  template <typename Pick>
  uint64_t Sum(Pick pick) const {
    uint64_t sum = 0;
    for (const Telemetry* telemetry : all_) sum += pick(telemetry->shard());
    return sum;
  }
  // Of an atomic number: the member of a Telemetry that has it, or the way there, member by member.
  template <typename... Members>
  double Total(Members... members) const {
    decltype((*all_.front().*....*members).load()) sum = 0;
    for (const Telemetry* telemetry : all_) sum += (*telemetry.*....*members).load(std::memory_order_relaxed);
    return static_cast<double>(sum);
  }
  // By name; pick(shard) may be null.
  template <typename Pick>
  std::map<std::string_view, uint64_t> SumNames(Pick pick) const {
    std::map<std::string_view, uint64_t> sums;
    for (const Telemetry* telemetry : all_) {
      const LabeledCounters* const names = pick(telemetry->shard());
      if (names != nullptr)
        names->ForEach([&sums](std::string_view name, uint64_t count) { sums[name] += count; });
    }
    return sums;
  }

 private:
  std::vector<const Telemetry*> all_;
};

// The sum of a histogram over several threads.
template <const auto& kBounds>
class TimeSum {
 public:
  void Add(const Histogram<kBounds>* counted) {
    if (counted == nullptr) return;
    for (size_t i = 0; i < buckets_.size(); ++i) {
      buckets_[i] += counted->bucket(i);
      count_ += counted->bucket(i);
    }
    nanos_ += counted->nanos();
  }
  uint64_t count() const { return count_; }

  void AddTo(MetricsPage* page, MetricsPage::Labels labels = {}, double one = 1e9) const {
    page->AddHistogram(kBounds, buckets_, nanos_, labels, one);
  }

 private:
  std::array<uint64_t, Histogram<kBounds>::kBuckets> buckets_{};
  uint64_t count_ = 0;
  uint64_t nanos_ = 0;
};

inline std::string_view RouteLabel(size_t route) { return RouteOf(static_cast<Route>(route)).label; }

}  // namespace vllm_router
