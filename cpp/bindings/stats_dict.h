// StatsDict: a pool's figures as the dicts of Router.stats(), one for each group. Takes the GIL's thread.
#pragma once

#include <pybind11/pybind11.h>

#include "policy/stats_writer.h"
#include "worker/fleet_view.h"

namespace vllm_router {

class StatsDict final : public StatsWriter {
 public:
  // Groups become members of `stats`; both must outlive this.
  StatsDict(const FleetView& fleet, pybind11::dict& stats) : fleet_(fleet), stats_(stats) {}

  void Group(std::string_view name) override;
  void Counter(const Stat& stat, uint64_t value) override;
  void Gauge(const Stat& stat, uint64_t value) override { Counter(stat, value); }
  void NamedCounters(const Stat& stat, std::span<const Named> values) override;
  void PerWorker(const Stat& stat, std::span<const uint64_t> values) override;
  void Histogram(
      const Stat& stat, std::span<const int64_t> bounds_nanos, std::span<const uint64_t> buckets,
      uint64_t sum_nanos) override;

 private:
  const FleetView& fleet_;
  pybind11::dict& stats_;
  pybind11::dict group_;  // the last one
};

}  // namespace vllm_router
