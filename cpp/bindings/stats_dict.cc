#include "bindings/stats_dict.h"

#include <limits>
#include <string>

namespace vllm_router {

namespace py = pybind11;

void StatsDict::Group(std::string_view name) {
  group_ = py::dict();
  stats_[py::str(name)] = group_;
}

void StatsDict::Counter(const Stat& stat, uint64_t value) {
  if (!stat.key.empty()) group_[py::str(stat.key)] = value;
}

void StatsDict::NamedCounters(const Stat& stat, std::span<const Named> values) {
  py::dict named = stat.key.empty() ? group_ : py::dict();
  for (const auto& [name, value] : values) named[py::str(name)] = value;
  if (!stat.key.empty()) group_[py::str(stat.key)] = named;
}

void StatsDict::PerWorker(const Stat& stat, std::span<const uint64_t> values) {
  if (stat.key.empty()) return;
  py::dict workers;
  for (size_t i = 0; i < values.size(); ++i) {
    workers[py::str(fleet_.worker(static_cast<uint32_t>(i)).url.url)] = values[i];
  }
  group_[py::str(stat.key)] = workers;
}

void StatsDict::Histogram(
    const Stat& stat, std::span<const int64_t> bounds_nanos, std::span<const uint64_t> buckets,
    uint64_t sum_nanos) {
  py::list times;
  for (size_t i = 0; i < buckets.size(); ++i) {
    const double bound = i < bounds_nanos.size() ? static_cast<double>(bounds_nanos[i]) / 1e9
                                                 : std::numeric_limits<double>::infinity();
    times.append(py::make_tuple(bound, buckets[i]));
  }
  const std::string key(stat.key);
  group_[py::str(key + "_times")] = times;
  group_[py::str(key + "_seconds")] = static_cast<double>(sum_nanos) / 1e9;
}

}  // namespace vllm_router
