// StatsTable: the figures of one group by key, for responses that have a form of their own.
//
//   StatsTable table("cache_routing");
//   router.pool().Report(*fleet, &table);
//   table.Value("hits");            // 0 if nothing reports it
//   table.OfWorker("workers", 2);   // of the worker at position 2
//
// One thread.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string_view>
#include <vector>

#include "policy/stats_writer.h"

namespace vllm_router {

class StatsTable final : public StatsWriter {
 public:
  explicit StatsTable(std::string_view group) : group_(group) {}

  bool found() const { return found_; }  // the group is reported
  uint64_t Value(std::string_view key) const {
    const auto found = values_.find(key);
    return found != values_.end() ? found->second : 0;
  }
  uint64_t OfWorker(std::string_view key, size_t position) const {
    const auto found = workers_.find(key);
    return found != workers_.end() && position < found->second.size() ? found->second[position] : 0;
  }

  void Group(std::string_view name) override {
    inside_ = name == group_;
    found_ = found_ || inside_;
  }
  void Counter(const Stat& stat, uint64_t value) override { Set(stat.key, value); }
  void Gauge(const Stat& stat, uint64_t value) override { Set(stat.key, value); }
  void NamedCounters(const Stat& /*stat*/, std::span<const Named> values) override {
    for (const auto& [name, value] : values) Set(name, value);
  }
  void PerWorker(const Stat& stat, std::span<const uint64_t> values) override {
    if (inside_) workers_[stat.key].assign(values.begin(), values.end());
  }
  void Histogram(
      const Stat& /*stat*/, std::span<const int64_t> /*bounds_nanos*/, std::span<const uint64_t> /*buckets*/,
      uint64_t /*sum_nanos*/) override {}

 private:
  void Set(std::string_view key, uint64_t value) {
    if (inside_) values_[key] = value;
  }

  const std::string_view group_;
  bool inside_ = false;  // the figures that come now are the group's
  bool found_ = false;
  std::map<std::string_view, uint64_t> values_;
  std::map<std::string_view, std::vector<uint64_t>> workers_;
};

}  // namespace vllm_router
