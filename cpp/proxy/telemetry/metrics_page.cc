#include "proxy/telemetry/metrics_page.h"

#include <limits>
#include <utility>
#include <vector>

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include "base/text.h"

namespace vllm_router {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

// Metrics whose names begin so have the whole name of another router, whose configuration asks for them.
constexpr std::string_view kContinuum = "continuum_";
constexpr std::string_view kDynamo = "router_shared_cache_";

}  // namespace

struct MetricsPage::Families {
  void Begin(std::string_view name, std::string_view help, MetricType type) {
    const bool is_whole = name.starts_with(kContinuum) || name.starts_with(kDynamo);
    all.push_back(
        {.name = Concat(is_whole ? "" : "vllm_router_", name),
         .help = std::string(help),
         .type = type,
         .metric = {}});
  }
  ClientMetric& AddSeries(std::span<const Label> labels) {
    ClientMetric& metric = all.back().metric.emplace_back();
    metric.label.reserve(labels.size());
    for (const Label& label : labels)
      metric.label.push_back({std::string(label.name), std::string(label.value)});
    return metric;
  }

  std::vector<MetricFamily> all;
};

MetricsPage::MetricsPage() : families_(std::make_unique<Families>()) {}

MetricsPage::~MetricsPage() = default;

void MetricsPage::Counter(std::string_view name, std::string_view help) {
  families_->Begin(name, help, MetricType::Counter);
}

void MetricsPage::Gauge(std::string_view name, std::string_view help) {
  families_->Begin(name, help, MetricType::Gauge);
}

void MetricsPage::Histogram(std::string_view name, std::string_view help) {
  families_->Begin(name, help, MetricType::Histogram);
}

void MetricsPage::AddValue(double value, std::span<const Label> labels) {
  ClientMetric& metric = families_->AddSeries(labels);
  if (families_->all.back().type == MetricType::Counter) {
    metric.counter.value = value;
  } else {
    metric.gauge.value = value;
  }
}

void MetricsPage::AddHistogram(
    std::span<const int64_t> bounds, std::span<const uint64_t> buckets, uint64_t sum, Labels labels,
    double one) {
  auto& histogram = families_->AddSeries(std::span(labels.begin(), labels.size())).histogram;
  for (size_t i = 0; i < buckets.size(); ++i) {
    histogram.sample_count += buckets[i];
    const double bound =
        i < bounds.size() ? static_cast<double>(bounds[i]) / one : std::numeric_limits<double>::infinity();
    histogram.bucket.push_back({.cumulative_count = histogram.sample_count, .upper_bound = bound});
  }
  histogram.sample_sum = static_cast<double>(sum) / one;
}

void MetricsPage::AddFormerName(std::string_view former) {
  MetricFamily family = families_->all.back();
  family.help = "Deprecated: use " + family.name + ".";
  family.name = Concat("vllm_router_", former);
  families_->all.push_back(std::move(family));
}

std::string MetricsPage::Text() const { return prometheus::TextSerializer().Serialize(families_->all); }

}  // namespace vllm_router
