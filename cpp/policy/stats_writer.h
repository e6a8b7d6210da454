// StatsWriter: where a policy or an index reports its figures. Each is named once, by its owner, for all
// readers: the metrics, Router.stats() and the admin endpoints. A new figure is one line in a Report().
//
//   writer->Group("cache_routing");
//   writer->Counter({"hits", "cache_hits_total", "Decisions of cache_aware for ..."}, hits);
//   writer->PerWorker({"workers", "tree_size", "Bytes of prompts that ..."}, bytes);    // by position
//
// One thread at a time.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace vllm_router {

// The texts live for ever.
struct Stat {
  std::string_view key;                 // in Router.stats(), within the group; empty: not there
  std::string_view metric;              // without vllm_router_; empty: not a metric
  std::string_view help;                // of the metric
  std::string_view former_metric = {};  // its name in the previous release, exported as well
  std::string_view label = {};          // of series by worker or by name; empty: "worker"
};

class StatsWriter {
 public:
  struct Named {
    std::string_view name;  // the label's value
    uint64_t value;
  };

  virtual ~StatsWriter() = default;

  // Of the figures that follow; in Router.stats() a dict of this name.
  virtual void Group(std::string_view name) = 0;
  virtual void Counter(const Stat& stat, uint64_t value) = 0;
  virtual void Gauge(const Stat& stat, uint64_t value) = 0;
  // A series for each name; in Router.stats() each name is a key, in a dict under `stat.key` if there is one.
  virtual void NamedCounters(const Stat& stat, std::span<const Named> values) = 0;
  // A gauge for each worker, by position in the fleet that the report is about.
  virtual void PerWorker(const Stat& stat, std::span<const uint64_t> values) = 0;
  // `buckets`: counts, one more than `bounds_nanos`, for what exceeds the last bound. In Router.stats()
  // (upper bound in seconds, count) under `key`_times and the sum in seconds under `key`_seconds.
  virtual void Histogram(
      const Stat& stat, std::span<const int64_t> bounds_nanos, std::span<const uint64_t> buckets,
      uint64_t sum_nanos) = 0;
};

}  // namespace vllm_router
