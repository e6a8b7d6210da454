#include "proxy/admin/metrics.h"

#include <span>
#include <string_view>
#include <utility>

#include "proxy/admin/exchange_metrics.h"
#include "proxy/admin/fleet_metrics.h"
#include "proxy/admin/stage_metrics.h"
#include "proxy/telemetry/metrics_page.h"
#include "proxy/thread/server_limits.h"
#include "routing/router.h"

namespace vllm_router {
namespace {

// What a pool reports, as families of a page.
class StatsPage final : public StatsWriter {
 public:
  StatsPage(const FleetView& fleet, MetricsPage* page) : fleet_(fleet), page_(page) {}

  void Group(std::string_view /*name*/) override {}
  void Counter(const Stat& stat, uint64_t value) override {
    if (stat.metric.empty()) return;
    page_->Counter(stat.metric, stat.help);
    page_->Add(value);
    AddFormerName(stat);
  }
  void Gauge(const Stat& stat, uint64_t value) override {
    if (stat.metric.empty()) return;
    page_->Gauge(stat.metric, stat.help);
    page_->Add(value);
    AddFormerName(stat);
  }
  void NamedCounters(const Stat& stat, std::span<const Named> values) override {
    if (stat.metric.empty()) return;
    page_->Counter(stat.metric, stat.help);
    for (const auto& [name, value] : values) page_->Add(value, {{stat.label, name}});
    AddFormerName(stat);
  }
  void PerWorker(const Stat& stat, std::span<const uint64_t> values) override {
    if (stat.metric.empty()) return;
    page_->Gauge(stat.metric, stat.help);
    const std::string_view label = stat.label.empty() ? "worker" : stat.label;
    for (size_t i = 0; i < values.size(); ++i) {
      const std::string& url = fleet_.worker(static_cast<uint32_t>(i)).url.url;
      page_->Add(values[i], {{label, url}});
    }
    AddFormerName(stat);
  }
  void Histogram(
      const Stat& stat, std::span<const int64_t> bounds_nanos, std::span<const uint64_t> buckets,
      uint64_t sum_nanos) override {
    if (stat.metric.empty()) return;
    page_->Histogram(stat.metric, stat.help);
    page_->AddHistogram(bounds_nanos, buckets, sum_nanos);
    AddFormerName(stat);
  }

 private:
  void AddFormerName(const Stat& stat) {
    if (!stat.former_metric.empty()) page_->AddFormerName(stat.former_metric);
  }

  const FleetView& fleet_;
  MetricsPage* const page_;
};

}  // namespace

Metrics::Metrics(
    std::shared_ptr<Router> router, std::vector<const Telemetry*> telemetries, const ServerLimits& limits,
    const Clock& clock, ServerFiles files)
    : router_(std::move(router)),
      threads_(std::move(telemetries)),
      limits_(limits),
      clock_(clock),
      files_(std::move(files)),
      started_(UnixSeconds()) {}

Metrics::~Metrics() = default;

std::string Metrics::Text() const {
  MetricsPage page;
  const std::shared_ptr<const FleetView> fleet = router_->fleet();
  const int64_t now_ns = clock_.NowNanos();
  const std::vector<std::shared_ptr<const Worker>> workers = shown_workers_.Of(*fleet, now_ns);
  WriteExchanges(threads_, &page);
  WriteRetries(threads_, &page);
  WriteTimes(threads_, &page);
  WriteWorkers(threads_, *router_, *fleet, workers, now_ns, &page);
  StatsPage stats(*fleet, &page);
  router_->pool().Report(*fleet, &stats);
  WriteTokenizing(threads_, *router_, &page);
  if (fleet->stages() != nullptr) WriteStages(threads_, workers, &page);
  WriteRemovedMembers(threads_, &page);
  WriteCacheControl(threads_, &page);
  for (const Write& write : more_) write(&page);
  WriteFleet(threads_, *fleet, &page);
  WriteDiscovery(router_->pool().registry(), now_ns, &page);
  WriteModels(*fleet, &page);
  WriteAdmission(threads_, limits_, &page);
  WriteQuarantine(limits_, now_ns, &page);
  WriteResponses(*router_, limits_, &page);
  WriteConnections(threads_, &page);
  WriteFiles(files_, &page);
  WriteProcess(threads_, files_, started_, &page);
  return page.Text();
}

}  // namespace vllm_router
