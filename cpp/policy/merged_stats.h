// MergedStats: the figures of two reports as one, so that two policies of one kind do not have each series twice.
//
//   first report     hits 3   tree_size [10, 20, 0]
//   second report    hits 4   tree_size [ 0,  0, 7]      of worker 2
//   written          hits 7   tree_size [10, 20, 7]
//
// Counters, gauges, named ones and histograms are sums. One by worker is the second report's for the workers that are
// its, if it has that figure. Order: the first report's; in each group, then, what only the second one has.
//
// Cost: O(figures^2) comparisons for the second report, a few dozen; a scrape, not a request. One thread.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "policy/stats_writer.h"

namespace vllm_router {

class MergedStats final : public StatsWriter {
 public:
  // The figures that follow are of the second report. `is_its`: by position, 1 for the workers that are its.
  void BeginSecond(std::span<const uint8_t> is_its);
  void WriteTo(StatsWriter* writer) const;

  void Group(std::string_view name) override { group_ = name; }
  void Counter(const Stat& stat, uint64_t value) override;
  void Gauge(const Stat& stat, uint64_t value) override;
  void NamedCounters(const Stat& stat, std::span<const Named> values) override;
  void PerWorker(const Stat& stat, std::span<const uint64_t> values) override;
  void Histogram(
      const Stat& stat, std::span<const int64_t> bounds_nanos, std::span<const uint64_t> buckets,
      uint64_t sum_nanos) override;

 private:
  enum class Kind : uint8_t { kCounter, kGauge, kNamed, kPerWorker, kHistogram };
  struct Figure {
    Kind kind;
    std::string_view group;
    Stat stat;
    std::vector<std::string_view> names;  // of kNamed
    std::vector<uint64_t> values;         // one; or by name, by position, by bucket
    std::vector<int64_t> bounds_nanos;
    uint64_t sum_nanos = 0;
  };

  void Add(Figure figure);

  std::vector<Figure> figures_;
  std::string_view group_;
  bool is_second_ = false;
  std::vector<uint8_t> is_its_;
};

}  // namespace vllm_router
