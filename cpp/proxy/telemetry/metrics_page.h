// MetricsPage: the metric families of one scrape. What counts something writes its own families here, with name, HELP
// text and series beside the code that counts (Service::WriteMetrics, proxy/admin/*_metrics.cc).
//
//   page->Counter("kv_replays_total", "Replays of KV events requested from a publisher, by result.");
//   page->Add(done, {{"worker", url}, {"result", "ok"}});
//
// Text() is Prometheus text format 0.0.4, by prometheus-cpp. Labels are copied, so their texts need not outlive the call.
// One thread.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

namespace vllm_router {

class MetricsPage {
 public:
  struct Label {
    std::string_view name;
    std::string_view value;
  };
  using Labels = std::initializer_list<Label>;

  MetricsPage();
  ~MetricsPage();
  MetricsPage(const MetricsPage&) = delete;
  MetricsPage& operator=(const MetricsPage&) = delete;

  // Begin a family. The page writes `vllm_router_` before the name, but for names that another router's users know.
  void Counter(std::string_view name, std::string_view help);
  void Gauge(std::string_view name, std::string_view help);
  void Histogram(std::string_view name, std::string_view help);

  // A series of the counter or gauge that was begun last.
  template <typename Number>
  requires std::is_arithmetic_v<Number>
  void Add(Number value, Labels labels = {}) {
    AddValue(static_cast<double>(value), std::span(labels.begin(), labels.size()));
  }
  template <typename Number>
  requires std::is_arithmetic_v<Number>
  void Add(Number value, std::span<const Label> labels) { AddValue(static_cast<double>(value), labels); }
  void AddUnlessZero(uint64_t value, Labels labels) {
    if (value != 0) Add(value, labels);
  }

  // A series of the histogram that was begun last. `buckets`: counts, one more than `bounds`, for what exceeds the last.
  // `one`: how many units of bounds and sum are one, by default nanoseconds.
  void AddHistogram(
      std::span<const int64_t> bounds, std::span<const uint64_t> buckets, uint64_t sum, Labels labels = {},
      double one = 1e9);

  // The same family once more, under its name in the previous release.
  void AddFormerName(std::string_view former);

  std::string Text() const;

 private:
  struct Families;
  void AddValue(double value, std::span<const Label> labels);

  const std::unique_ptr<Families> families_;
};

}  // namespace vllm_router
