#include "policy/merged_stats.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace vllm_router {

void MergedStats::BeginSecond(std::span<const uint8_t> is_its) {
  is_second_ = true;
  is_its_.assign(is_its.begin(), is_its.end());
}

void MergedStats::Counter(const Stat& stat, uint64_t value) {
  Add({.kind = Kind::kCounter, .group = group_, .stat = stat, .values = {value}});
}

void MergedStats::Gauge(const Stat& stat, uint64_t value) {
  Add({.kind = Kind::kGauge, .group = group_, .stat = stat, .values = {value}});
}

void MergedStats::NamedCounters(const Stat& stat, std::span<const Named> values) {
  Figure figure{.kind = Kind::kNamed, .group = group_, .stat = stat};
  for (const auto& [name, value] : values) {
    figure.names.push_back(name);
    figure.values.push_back(value);
  }
  Add(std::move(figure));
}

void MergedStats::PerWorker(const Stat& stat, std::span<const uint64_t> values) {
  Add(
      {.kind = Kind::kPerWorker,
       .group = group_,
       .stat = stat,
       .values = std::vector<uint64_t>(values.begin(), values.end())});
}

void MergedStats::Histogram(
    const Stat& stat, std::span<const int64_t> bounds_nanos, std::span<const uint64_t> buckets,
    uint64_t sum_nanos) {
  Add(
      {.kind = Kind::kHistogram,
       .group = group_,
       .stat = stat,
       .values = std::vector<uint64_t>(buckets.begin(), buckets.end()),
       .bounds_nanos = std::vector<int64_t>(bounds_nanos.begin(), bounds_nanos.end()),
       .sum_nanos = sum_nanos});
}

void MergedStats::Add(Figure figure) {
  const auto same = [&figure](const Figure& one) {
    return one.kind == figure.kind && one.group == figure.group && one.stat.key == figure.stat.key &&
           one.stat.metric == figure.stat.metric;
  };
  const auto known = is_second_ ? std::ranges::find_if(figures_, same) : figures_.end();
  if (known == figures_.end()) {  // behind those of its group, which a reader is told of once
    auto place = figures_.end();
    while (place != figures_.begin() && std::prev(place)->group != figure.group) --place;
    figures_.insert(place != figures_.begin() ? place : figures_.end(), std::move(figure));
    return;
  }
  known->values.resize(std::max(known->values.size(), figure.values.size()));
  known->sum_nanos += figure.sum_nanos;
  for (size_t i = 0; i < figure.values.size(); ++i) {
    if (known->kind == Kind::kPerWorker) {
      if (i < is_its_.size() && is_its_[i] != 0) known->values[i] = figure.values[i];
      continue;
    }
    if (known->kind == Kind::kNamed && i >= known->names.size()) known->names.push_back(figure.names[i]);
    known->values[i] += figure.values[i];
  }
}

void MergedStats::WriteTo(StatsWriter* writer) const {
  const Figure* last = nullptr;
  for (const Figure& figure : figures_) {
    if (last == nullptr || last->group != figure.group) writer->Group(figure.group);
    last = &figure;
    switch (figure.kind) {
      case Kind::kCounter:
        writer->Counter(figure.stat, figure.values.front());
        break;
      case Kind::kGauge:
        writer->Gauge(figure.stat, figure.values.front());
        break;
      case Kind::kNamed: {
        std::vector<Named> named;
        for (size_t i = 0; i < figure.names.size(); ++i) named.push_back({figure.names[i], figure.values[i]});
        writer->NamedCounters(figure.stat, named);
        break;
      }
      case Kind::kPerWorker:
        writer->PerWorker(figure.stat, figure.values);
        break;
      case Kind::kHistogram:
        writer->Histogram(figure.stat, figure.bounds_nanos, figure.values, figure.sum_nanos);
        break;
    }
  }
}

}  // namespace vllm_router
