#include "proxy/admin/metrics.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <initializer_list>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include <prometheus/collectable.h>
#include <prometheus/text_serializer.h>

#include "base/log.h"
#include "base/mutex.h"
#include "base/text.h"
#include "base/version.h"
#include "proxy/admin/configuration.h"
#include "proxy/admin/page_renderer.h"
#include "proxy/client/redis_response_store.h"
#include "proxy/client/tls_files.h"
#include "proxy/control/pd_registration_service.h"
#include "proxy/control/peer_sync_report.h"
#include "proxy/control/scale_report.h"
#include "proxy/security/key_file.h"
#include "proxy/telemetry/telemetry_shard.h"
#include "redis/redis_pool.h"
#include "routing/token_cache.h"

namespace vllm_router {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;
using Labels = std::vector<ClientMetric::Label>;

ClientMetric::Label Label(std::string_view name, std::string_view value) {
  return {std::string(name), std::string(value)};
}

// Metrics whose names begin so have the whole name of another router, whose configuration asks for them.
constexpr std::string_view kContinuum = "continuum_";
constexpr std::string_view kDynamo = "router_shared_cache_";
constexpr size_t kMaxPeerNames = 64;

// The families of one scrape, in the order of docs/reference/metrics.md.
class Page {
 public:
  void Counter(std::string_view name, std::string_view help) { Begin(name, help, MetricType::Counter); }
  void Gauge(std::string_view name, std::string_view help) { Begin(name, help, MetricType::Gauge); }
  void Histogram(std::string_view name, std::string_view help) { Begin(name, help, MetricType::Histogram); }

  // A series of the family that was begun last.
  void Add(double value, Labels labels = {}) {
    ClientMetric& metric = AddSeries(std::move(labels));
    if (families_.back().type == MetricType::Counter) {
      metric.counter.value = value;
    } else {
      metric.gauge.value = value;
    }
  }
  void AddUnlessZero(uint64_t value, Labels labels) {
    if (value != 0) Add(static_cast<double>(value), std::move(labels));
  }
  ClientMetric& AddSeries(Labels labels) {
    ClientMetric& metric = families_.back().metric.emplace_back();
    metric.label = std::move(labels);
    return metric;
  }

  // A series of a histogram. `buckets`: counts, one more than `bounds`, for what exceeds the last. `one`: the
  // unit in which bounds and sum are, so many of which are one.
  void AddHistogram(
      std::span<const int64_t> bounds, std::span<const uint64_t> buckets, uint64_t sum, Labels labels = {},
      double one = 1e9) {
    auto& histogram = AddSeries(std::move(labels)).histogram;
    for (size_t i = 0; i < buckets.size(); ++i) {
      histogram.sample_count += buckets[i];
      const double bound =
          i < bounds.size() ? static_cast<double>(bounds[i]) / one : std::numeric_limits<double>::infinity();
      histogram.bucket.push_back({.cumulative_count = histogram.sample_count, .upper_bound = bound});
    }
    histogram.sample_sum = static_cast<double>(sum) / one;
  }

  // The same family once more, under its name in the previous release.
  void AddFormerName(std::string_view former) {
    MetricFamily family = families_.back();
    family.help = "Deprecated: use " + family.name + ".";
    family.name = Concat("vllm_router_", former);
    families_.push_back(std::move(family));
  }

  std::vector<MetricFamily> Take() { return std::move(families_); }

 private:
  void Begin(std::string_view name, std::string_view help, MetricType type) {
    const bool is_whole = name.starts_with(kContinuum) || name.starts_with(kDynamo);
    const std::string_view prefix = is_whole ? "" : "vllm_router_";
    families_.push_back(
        {.name = Concat(prefix, name), .help = std::string(help), .type = type, .metric = {}});
  }
  std::vector<MetricFamily> families_;
};

// What a pool reports, as families of a page.
class StatsPage final : public StatsWriter {
 public:
  StatsPage(const FleetView& fleet, Page* page) : fleet_(fleet), page_(page) {}

  void Group(std::string_view /*name*/) override {}
  void Counter(const Stat& stat, uint64_t value) override {
    if (stat.metric.empty()) return;
    page_->Counter(stat.metric, stat.help);
    page_->Add(static_cast<double>(value));
    AddFormerName(stat);
  }
  void Gauge(const Stat& stat, uint64_t value) override {
    if (stat.metric.empty()) return;
    page_->Gauge(stat.metric, stat.help);
    page_->Add(static_cast<double>(value));
    AddFormerName(stat);
  }
  void NamedCounters(const Stat& stat, std::span<const Named> values) override {
    if (stat.metric.empty()) return;
    page_->Counter(stat.metric, stat.help);
    for (const auto& [name, value] : values)
      page_->Add(static_cast<double>(value), {Label(stat.label, name)});
    AddFormerName(stat);
  }
  void PerWorker(const Stat& stat, std::span<const uint64_t> values) override {
    if (stat.metric.empty()) return;
    page_->Gauge(stat.metric, stat.help);
    const std::string_view label = stat.label.empty() ? "worker" : stat.label;
    for (size_t i = 0; i < values.size(); ++i) {
      const std::string& url = fleet_.worker(static_cast<uint32_t>(i)).url.url;
      page_->Add(static_cast<double>(values[i]), {Label(label, url)});
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
  Page* const page_;
};

// The sum of a histogram over several threads.
template <const auto& kBounds>
class TimeSum {
 public:
  void Add(const Histogram<kBounds>* tally) {
    if (tally == nullptr) return;
    for (size_t i = 0; i < buckets_.size(); ++i) {
      buckets_[i] += tally->bucket(i);
      count_ += tally->bucket(i);
    }
    nanos_ += tally->nanos();
  }
  uint64_t count() const { return count_; }

  void AddTo(Page* page, Labels labels = {}, double one = 1e9) const {
    page->AddHistogram(kBounds, buckets_, nanos_, std::move(labels), one);
  }

 private:
  std::array<uint64_t, Histogram<kBounds>::kBuckets> buckets_{};
  uint64_t count_ = 0;
  uint64_t nanos_ = 0;
};

// The sum of one worker's counters over several threads.
struct WorkerSum {
  uint64_t decisions = 0;
  uint64_t processed = 0;
  uint64_t failed_attempts = 0;
  uint64_t breaker_successes = 0;
  uint64_t breaker_failures = 0;
  std::array<uint64_t, kErrorBlameCount> server_errors{};
  std::array<std::array<uint64_t, kBreakerStateCount>, kBreakerStateCount> breaker_transitions{};
  std::array<uint64_t, kBootstrapResultCount> bootstrap_queries{};
  uint64_t prompt_tokens = 0;
  uint64_t completion_tokens = 0;
  uint64_t cached_tokens = 0;
  struct Times {
    TimeSum<buckets::kWorkerWait> first_token;
    TimeSum<buckets::kWorkerWait> head;
  };
  std::array<std::unique_ptr<Times>, kRouteCount> times;  // null: none. 25 KB of a worker would be zeros

  void Add(const WorkerCounters& tallies) {
    decisions += tallies.decisions.count();
    processed += tallies.processed.count();
    failed_attempts += tallies.failed_attempts.count();
    breaker_successes += tallies.breaker_successes.count();
    breaker_failures += tallies.breaker_failures.count();
    for (size_t blame = 0; blame < kErrorBlameCount; ++blame) {
      server_errors[blame] += tallies.server_errors[blame].count();
    }
    for (size_t i = 0; i < kBootstrapResultCount; ++i)
      bootstrap_queries[i] += tallies.bootstrap_queries[i].count();
    for (size_t from = 0; from < kBreakerStateCount; ++from) {
      for (size_t to = 0; to < kBreakerStateCount; ++to)
        breaker_transitions[from][to] += tallies.breaker_transitions[from][to].count();
    }
    prompt_tokens += tallies.prompt_tokens.count();
    completion_tokens += tallies.completion_tokens.count();
    cached_tokens += tallies.cached_tokens.count();
    for (size_t route = 0; route < kRouteCount; ++route) {
      const WorkerCounters::Times* const counted = tallies.times[route].Find();
      if (counted == nullptr) continue;
      if (times[route] == nullptr) times[route] = std::make_unique<Times>();
      times[route]->first_token.Add(&counted->first_token);
      times[route]->head.Add(&counted->head);
    }
  }
};

std::string_view RouteLabel(size_t route) { return RouteOf(static_cast<Route>(route)).label; }

double CpuSeconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// 0 without /proc.
double ResidentBytes() {
  unsigned long long size = 0, resident = 0;
  std::FILE* file = std::fopen("/proc/self/statm", "r");
  if (file == nullptr) return 0;
  const int read = std::fscanf(file, "%llu %llu", &size, &resident);
  std::fclose(file);
  return read == 2 ? static_cast<double>(resident) * static_cast<double>(::sysconf(_SC_PAGESIZE)) : 0;
}

}  // namespace

class Metrics::Collector : public prometheus::Collectable {
 public:
  Collector(
      std::shared_ptr<Router> router, std::vector<const Telemetry*> telemetries, const ServerLimits& limits,
      const Clock& clock, ServerFiles files)
      : router_(std::move(router)),
        telemetries_(std::move(telemetries)),
        limits_(limits),
        clock_(clock),
        files_(std::move(files)),
        started_(UnixSeconds()) {}

  std::vector<MetricFamily> Collect() const override {
    Page page;
    const std::shared_ptr<const FleetView> fleet = router_->fleet();
    WriteExchanges(&page);
    WriteRetries(&page);
    WriteTimes(&page);
    WriteWorkers(&page, *fleet);
    StatsPage stats(*fleet, &page);
    router_->pool().Report(*fleet, &stats);
    WriteTokenizing(&page);
    WriteSharedCache(&page);
    if (fleet->stages() != nullptr) WriteStages(&page, *fleet);
    WriteRemovedMembers(&page);
    WriteCacheControl(&page);
    WriteRegistrations(&page);
    WriteKvEvents(&page);
    WritePrefixEvents(&page);
    WriteRedis(&page);
    if (limits_.response_cache.enabled()) WriteResponseCache(&page);
    WritePeerSync(&page);
    WriteFleet(&page, *fleet);
    WriteDiscovery(&page);
    WriteModels(&page);
    WriteScale(&page);
    WriteAdmission(&page);
    WriteQuarantine(&page);
    WriteResponses(&page);
    WriteConnections(&page);
    WriteFiles(&page);
    WriteConfiguration(&page);
    WritePages(&page);
    WriteProcess(&page);
    return page.Take();
  }

  void set_kv_events(std::function<std::vector<KvSourceStatus>()> sources) {
    kv_sources_ = std::move(sources);
  }
  void set_prefix_events(std::function<std::vector<PrefixSourceStatus>()> sources) {
    prefix_sources_ = std::move(sources);
  }

  void set_registrations(std::function<PdRegistrationReport()> report) { registrations_ = std::move(report); }
  void set_redis(const RedisPool* redis) { redis_ = redis; }
  void set_peer_sync(std::function<PeerSyncReport()> peers) { peers_ = std::move(peers); }
  void set_scale(std::function<std::shared_ptr<const ScaleReport>()> scale) { scale_ = std::move(scale); }
  void set_shared_responses(
      const RedisResponses* responses, std::function<std::optional<int64_t>()> entries) {
    shared_responses_ = responses;
    shared_entries_ = std::move(entries);
  }
  void set_pages(const PageRenderer* pages) { pages_ = pages; }
  void set_configuration(const Configuration* configuration) { configuration_ = configuration; }

 private:
  // What Metrics keeps of a worker, which keeps its counters alive as well (telemetry_shard.h).
  struct Shown {
    std::shared_ptr<const Worker> worker;
    int64_t gone_ns = kServes;  // first scrape without it
    static constexpr int64_t kServes = -1;
  };

  // The sum of pick(shard) or pick(telemetry) over the threads.
  template <typename Pick>
  uint64_t Sum(Pick pick) const {
    uint64_t sum = 0;
    for (const Telemetry* telemetry : telemetries_) sum += pick(telemetry->shard());
    return sum;
  }
  template <typename T>
  double Total(std::atomic<T> Telemetry::*member) const {
    T sum = 0;
    for (const Telemetry* telemetry : telemetries_)
      sum += (telemetry->*member).load(std::memory_order_relaxed);
    return static_cast<double>(sum);
  }
  template <typename Pick>
  std::map<std::string_view, uint64_t> SumNames(Pick pick) const {
    std::map<std::string_view, uint64_t> sums;
    for (const Telemetry* telemetry : telemetries_) {
      const LabeledCounters* names = pick(telemetry->shard());
      if (names != nullptr)
        names->ForEach([&sums](std::string_view name, uint64_t count) { sums[name] += count; });
    }
    return sums;
  }

  void WriteExchanges(Page* page) const;
  void WriteRetries(Page* page) const;
  void WriteTimes(Page* page) const;
  void WriteWorkers(Page* page, const FleetView& fleet) const;
  using TokenizeCounts = decltype(Telemetry::tokenize_calls);
  uint64_t CountTokenized(TokenizeCounts Telemetry::*calls, size_t end) const;
  void WriteTokenizing(Page* page) const;
  void WriteSharedCache(Page* page) const;
  void WriteStages(Page* page, const FleetView& fleet) const;
  void WriteStageWorkers(Page* page, const FleetView& fleet) const;
  void WriteRemovedMembers(Page* page) const;
  void WriteCacheControl(Page* page) const;
  void WriteRegistrations(Page* page) const;
  void WriteKvEvents(Page* page) const;
  void WritePrefixEvents(Page* page) const;
  void WriteRedis(Page* page) const;
  void WriteResponseCache(Page* page) const;
  void WritePeerSync(Page* page) const;
  void WriteFleet(Page* page, const FleetView& fleet) const;
  void WriteDiscovery(Page* page) const;
  void WriteModels(Page* page) const;
  void WriteScale(Page* page) const;
  void WriteAdmission(Page* page) const;
  void WriteQuarantine(Page* page) const;
  void WriteResponses(Page* page) const;
  void WritePrefixDecisions(Page* page) const;
  void WriteConnections(Page* page) const;
  void WriteFiles(Page* page) const;
  void WriteConfiguration(Page* page) const;
  void WritePages(Page* page) const;
  void WriteProcess(Page* page) const;

  std::vector<std::shared_ptr<const Worker>> WorkersToShow(const FleetView& fleet) const;

  const std::shared_ptr<Router> router_;
  const std::vector<const Telemetry*> telemetries_;
  const ServerLimits& limits_;
  const Clock& clock_;
  const ServerFiles files_;
  std::function<std::vector<KvSourceStatus>()> kv_sources_ = [] { return std::vector<KvSourceStatus>(); };
  std::function<PdRegistrationReport()> registrations_;  // null: workers do not register
  std::function<std::vector<PrefixSourceStatus>()> prefix_sources_ = [] {
    return std::vector<PrefixSourceStatus>();
  };
  const RedisPool* redis_ = nullptr;
  const RedisResponses* shared_responses_ = nullptr;
  std::function<std::optional<int64_t>()> shared_entries_;  // of these
  std::function<PeerSyncReport()> peers_;
  std::function<std::shared_ptr<const ScaleReport>()> scale_;
  const Configuration* configuration_ = nullptr;
  const PageRenderer* pages_ = nullptr;
  const double started_;  // Unix time
  mutable Mutex mutex_;   // leaf
  mutable std::vector<Shown> shown_ ABSL_GUARDED_BY(mutex_);
};

void Metrics::Collector::WriteExchanges(Page* page) const {
  page->Counter("requests_total", "Requests to workers that got a complete 2xx response.");
  for (size_t route = 0; route < kRouteCount; ++route) {
    page->AddUnlessZero(
        Sum([route](const Telemetry::Shard& shard) { return shard.successes[route].count(); }),
        {Label("route", RouteLabel(route))});
  }

  page->Counter(
      "request_errors_total", "Requests to workers that got no complete 2xx response, by error type.");
  for (size_t route = 0; route < kRouteCount; ++route) {
    for (const auto& [name, count] :
         SumNames([route](const Telemetry::Shard& shard) { return shard.errors[route].Find(); })) {
      page->AddUnlessZero(count, {Label("route", RouteLabel(route)), Label("error_type", name)});
    }
  }

  // Summed first, since the embeddings' errors are read from it too.
  std::vector<std::array<uint64_t, StatusCounters::kCount>> statuses(kRouteCount);
  for (const Telemetry* telemetry : telemetries_) {
    for (size_t route = 0; route < kRouteCount; ++route) {
      const StatusCounters* tallies = telemetry->shard().statuses[route].Find();
      if (tallies == nullptr) continue;
      for (int i = 0; i < StatusCounters::kCount; ++i) {
        statuses[route][static_cast<size_t>(i)] += (*tallies)[StatusCounters::kFirst + i].count();
      }
    }
  }
  page->Counter("http_responses_total", "Responses to clients, including the router's own, by status code.");
  for (size_t route = 0; route < kRouteCount; ++route) {
    for (int i = 0; i < StatusCounters::kCount; ++i) {
      page->AddUnlessZero(
          statuses[route][static_cast<size_t>(i)],
          {Label("route", RouteLabel(route)), Label("code", std::to_string(StatusCounters::kFirst + i))});
    }
  }

  page->Counter(
      "exchange_end_total",
      "Exchanges (a request with its response) by how they ended; each is counted once.");
  for (size_t route = 0; route < kRouteCount; ++route) {
    for (size_t end = 0; end < kExchangeEndCount; ++end) {
      page->AddUnlessZero(
          Sum([route, end](const Telemetry::Shard& shard) { return shard.ends[route][end].count(); }),
          {Label("route", RouteLabel(route)), Label("end", ExchangeEndName(static_cast<ExchangeEnd>(end)))});
    }
  }

  page->Counter(
      "bad_requests_total", "Requests rejected because their head violates a rule of HTTP, by rule.");
  for (const auto& [name, count] :
       SumNames([](const Telemetry::Shard& shard) { return &shard.bad_requests; })) {
    page->AddUnlessZero(count, {Label("reason", name)});
  }

  constexpr auto kEmbeddings = static_cast<size_t>(Route::kEmbeddings);
  page->Counter("embeddings_total", "Embeddings requests that got a complete 2xx response.");
  page->Add(static_cast<double>(
      Sum([](const Telemetry::Shard& shard) { return shard.successes[kEmbeddings].count(); })));
  page->Counter(
      "embeddings_errors_total",
      "Embeddings requests that got no complete 2xx response, by status or by how they ended.");
  for (int i = 0; i < StatusCounters::kCount; ++i) {
    const int status = StatusCounters::kFirst + i;
    if (status >= 200 && status < 300) continue;
    page->AddUnlessZero(
        statuses[kEmbeddings][static_cast<size_t>(i)],
        {Label("error_type", "http_" + std::to_string(status))});
  }
  for (size_t end = 0; end < kExchangeEndCount; ++end) {
    page->AddUnlessZero(
        Sum([end](const Telemetry::Shard& shard) { return shard.embeddings_cut[end].count(); }),
        {Label("error_type", ExchangeEndName(static_cast<ExchangeEnd>(end)))});
  }
}

void Metrics::Collector::WriteRetries(Page* page) const {
  const auto by_route = [this, page](std::array<Counter, kRouteCount> Telemetry::Shard::*tallies) {
    for (size_t route = 0; route < kRouteCount; ++route) {
      page->AddUnlessZero(
          Sum([route, tallies](const Telemetry::Shard& shard) { return (shard.*tallies)[route].count(); }),
          {Label("route", RouteLabel(route))});
    }
  };
  page->Counter("retries_total", "Retries of requests after a failed attempt.");
  by_route(&Telemetry::Shard::retries);
  page->Counter("retries_exhausted_total", "Requests whose last allowed attempt failed.");
  by_route(&Telemetry::Shard::retries_exhausted);
  page->Histogram("retry_backoff_duration_seconds", "Back-off before a retry, by the number of the retry.");
  for (size_t i = 0; i < Telemetry::Shard::kBackoffs; ++i) {
    TimeSum<buckets::kDuration> sum;
    for (const Telemetry* telemetry : telemetries_) sum.Add(telemetry->shard().backoffs[i].Find());
    if (sum.count() == 0) continue;
    sum.AddTo(page, {Label("attempt", std::to_string(i + 1))});
  }
}

void Metrics::Collector::WriteTimes(Page* page) const {
  page->Histogram(
      "request_duration_seconds",
      "Time from a request's head to the end of its exchange, of all requests to workers.");
  for (size_t route = 0; route < kRouteCount; ++route) {
    TimeSum<buckets::kDuration> sum;
    for (const Telemetry* telemetry : telemetries_) sum.Add(telemetry->shard().durations[route].Find());
    if (sum.count() != 0) sum.AddTo(page, {Label("route", RouteLabel(route))});
  }

  const auto plain = [this, page](auto Telemetry::Shard::*member) {
    const auto total = [ this, member ]<const auto & kBounds>(const Histogram<kBounds>&) {
      TimeSum<kBounds> sum;
      for (const Telemetry* telemetry : telemetries_) sum.Add(&(telemetry->shard().*member));
      return sum;
    };
    total(telemetries_.front()->shard().*member).AddTo(page);
  };
  page->Histogram(
      "generate_duration_seconds",
      "Time from a request's head to the end of its exchange, of successful requests on routes that generate "
      "text.");
  plain(&Telemetry::Shard::generate_durations);
  page->Histogram(
      "embeddings_duration_seconds",
      "Time from a request's head to the end of its exchange, of successful requests to /v1/embeddings.");
  plain(&Telemetry::Shard::embeddings_durations);
  page->Histogram(
      "overhead_seconds",
      "Time that the router adds: from the complete request body to its first byte written to the worker.");
  plain(&Telemetry::Shard::overhead);
}

// Members of the fleet, then recently removed workers whose URL is not back.
std::vector<std::shared_ptr<const Worker>> Metrics::Collector::WorkersToShow(const FleetView& fleet) const {
  std::set<const Worker*> members;
  std::set<std::string_view> urls;
  std::vector<std::shared_ptr<const Worker>> workers;
  for (const FleetView::Member& member : fleet.members()) {
    members.insert(member.worker.get());
    urls.insert(member.worker->url.url);
    workers.push_back(member.worker);
  }
  const int64_t now = clock_.NowNanos();
  MutexLock lock(mutex_);
  for (Shown& shown : shown_) {
    if (members.erase(shown.worker.get()) == 0 && shown.gone_ns == Shown::kServes) shown.gone_ns = now;
  }
  std::erase_if(shown_, [now, &urls](const Shown& shown) {
    return shown.gone_ns != Shown::kServes &&
           (now - shown.gone_ns >= kRemovedWorkerNanos || urls.contains(shown.worker->url.url));
  });
  for (const Shown& shown : shown_) {
    if (shown.gone_ns != Shown::kServes) workers.push_back(shown.worker);
  }
  for (const FleetView::Member& member : fleet.members()) {
    if (members.contains(member.worker.get())) shown_.push_back({.worker = member.worker});
  }
  return workers;
}

void Metrics::Collector::WriteWorkers(Page* page, const FleetView& fleet) const {
  const std::vector<std::shared_ptr<const Worker>> workers = WorkersToShow(fleet);
  std::vector<WorkerSum> sums(workers.size());
  for (const Telemetry* telemetry : telemetries_) {
    const Telemetry::Shard& shard = telemetry->shard();
    MutexLock lock(shard.mutex);
    for (size_t i = 0; i < workers.size(); ++i) {
      if (const WorkerCounters* tallies = shard.Find(workers[i]->id)) sums[i].Add(*tallies);
    }
  }
  // Zeros are shown, so that a rate starts when the worker does.
  const auto each = [&](uint64_t WorkerSum::*count, const Labels& more = {}) {
    for (size_t i = 0; i < workers.size(); ++i) {
      Labels labels = more;
      labels.push_back(Label("worker", workers[i]->url.url));
      page->Add(static_cast<double>(sums[i].*count), std::move(labels));
    }
  };
  page->Counter("policy_decisions_total", "Policy decisions that chose the worker.");
  for (size_t i = 0; i < workers.size(); ++i) {
    page->Add(
        static_cast<double>(sums[i].decisions),
        {Label("policy", router_->policy_of(workers[i]->stage).name()),
         Label("worker", workers[i]->url.url)});
  }
  page->Counter("decision_reasons_total", "Policy decisions by reason.");
  for (size_t reason = 0; reason < kReasonCount; ++reason) {
    page->AddUnlessZero(
        Sum([reason](const Telemetry::Shard& shard) { return shard.reasons[reason].count(); }),
        {Label("policy", router_->policy().name()),
         Label("reason", ReasonName(static_cast<Reason>(reason)))});
  }
  WritePrefixDecisions(page);
  router_->ExpireTickets();
  page->Counter("tickets_expired_total", "Tickets of the embedding program whose lease expired.");
  page->Add(static_cast<double>(router_->leases()->expired()));
  page->Counter("processed_requests_total", "Exchanges whose request was sent to the worker.");
  each(&WorkerSum::processed);
  page->Counter("failed_attempts_total", "Failed attempts at the worker that were followed by a retry.");
  each(&WorkerSum::failed_attempts);
  page->AddFormerName("failed_tries_total");
  page->Counter("cb_outcomes_total", "Outcomes recorded by the worker's circuit breaker.");
  each(&WorkerSum::breaker_successes, {Label("outcome", "success")});
  each(&WorkerSum::breaker_failures, {Label("outcome", "failure")});
  page->Counter("server_errors_total", "5xx responses of the worker, by what they were attributed to.");
  for (size_t i = 0; i < workers.size(); ++i) {
    for (size_t blame = 0; blame < kErrorBlameCount; ++blame) {
      page->Add(
          static_cast<double>(sums[i].server_errors[blame]),
          {Label("blame", ErrorBlameName(static_cast<ErrorBlame>(blame))),
           Label("worker", workers[i]->url.url)});
    }
  }
  if (fleet.stages() != nullptr) {
    page->Counter(
        "pd_bootstrap_queries_total",
        "Queries of a Mooncake prefill worker's bootstrap server for the worker's engine id, by result.");
    for (size_t i = 0; i < workers.size(); ++i) {
      for (size_t result = 0; result < kBootstrapResultCount; ++result) {
        page->AddUnlessZero(
            sums[i].bootstrap_queries[result],
            {Label("result", BootstrapResultName(static_cast<BootstrapResult>(result))),
             Label("worker", workers[i]->url.url)});
      }
    }
  }
  page->Counter("cb_state_transitions_total", "State transitions of the worker's circuit breaker.");
  for (size_t i = 0; i < workers.size(); ++i) {
    for (size_t from = 0; from < kBreakerStateCount; ++from) {
      for (size_t to = 0; to < kBreakerStateCount; ++to) {
        page->AddUnlessZero(
            sums[i].breaker_transitions[from][to],
            {Label("worker", workers[i]->url.url),
             Label("from", BreakerStateName(static_cast<BreakerState>(from))),
             Label("to", BreakerStateName(static_cast<BreakerState>(to)))});
      }
    }
  }
  page->Gauge("cb_state", "The worker's circuit breaker: 0 closed, 1 open, 2 half-open.");
  for (const FleetView::Member& member : fleet.members()) {
    page->Add(static_cast<double>(member.worker->breaker.state()), {Label("worker", member.worker->url.url)});
  }
  page->Counter(
      "outlier_ejections_overflow_total",
      "Failures (5xx, lost connections, timeouts) that opened no circuit breaker because half of all "
      "workers' breakers were open.");
  page->Add(Total(&Telemetry::ejections_overflow));
  page->Counter(
      "panic_requests_total",
      "Attempts sent in panic mode, when no worker's circuit breaker admitted requests.");
  page->Add(Total(&Telemetry::panic_requests));
  page->Gauge(
      "worker_in_doubt",
      "1 while the worker gets no new requests because it accepts requests and does not serve them, else 0.");
  for (const FleetView::Member& member : fleet.members()) {
    page->Add(member.in_doubt ? 1 : 0, {Label("worker", member.worker->url.url)});
  }
  page->Counter("worker_doubts_total", "Times that the worker came into doubt (worker_in_doubt).");
  for (const FleetView::Member& member : fleet.members()) {
    page->Add(
        static_cast<double>(member.worker->doubts.load(std::memory_order_relaxed)),
        {Label("worker", member.worker->url.url)});
  }
  page->Counter(
      "moved_requests_total",
      "Requests without a byte of a response that were sent to another worker since theirs was in doubt.");
  page->Add(Total(&Telemetry::requests_moved));
  page->Gauge(
      "worker_overloaded",
      "1 while the worker is passed over because its load poll exceeds --exclude-waiting-above or "
      "--exclude-kv-above, else 0.");
  for (const FleetView::Member& member : fleet.members()) {
    page->Add(member.overloaded ? 1 : 0, {Label("worker", member.worker->url.url)});
  }
  page->Gauge(
      "worker_backoff",
      "1 while the worker is in back-off because it sent Retry-After, so that other workers are preferred; "
      "else 0.");
  for (const FleetView::Member& member : fleet.members()) {
    const bool rests = member.worker->backoff.ActiveAt(clock_.NowNanos());
    page->Add(rests ? 1 : 0, {Label("worker", member.worker->url.url)});
  }
  page->AddFormerName("worker_rests");
  page->Gauge(
      "worker_slow_start_factor", "Share of its weight that the worker has: below 1 during its slow start.");
  for (const FleetView::Member& member : fleet.members()) {
    page->Add(
        static_cast<double>(member.worker->slow_start_factor.load(std::memory_order_relaxed)) / kWeightOne,
        {Label("worker", member.worker->url.url)});
  }
  page->AddFormerName("worker_warmth");
  page->Counter("prompt_tokens_total", "Prompt tokens, as reported in the worker's responses.");
  each(&WorkerSum::prompt_tokens);
  page->Counter("completion_tokens_total", "Generated tokens, as reported in the worker's responses.");
  each(&WorkerSum::completion_tokens);
  page->Counter(
      "cached_tokens_total", "Prompt tokens found in the worker's cache, as reported in its responses.");
  each(&WorkerSum::cached_tokens);

  const auto times = [&](TimeSum<buckets::kWorkerWait> WorkerSum::Times::*member) {
    for (size_t route = 0; route < kRouteCount; ++route) {
      for (size_t i = 0; i < workers.size(); ++i) {
        if (sums[i].times[route] == nullptr) continue;
        const TimeSum<buckets::kWorkerWait>& sum = *sums[i].times[route].*member;
        if (sum.count() == 0) continue;
        sum.AddTo(page, {Label("route", RouteLabel(route)), Label("worker", workers[i]->url.url)});
      }
    }
  };
  page->Histogram(
      "ttft_seconds",
      "Time to first token: from a request's head to the first byte of the worker's event stream.");
  times(&WorkerSum::Times::first_token);
  page->Histogram(
      "upstream_head_seconds",
      "Time from the first byte sent to the worker to the complete head of its response.");
  times(&WorkerSum::Times::head);
}

uint64_t Metrics::Collector::CountTokenized(TokenizeCounts Telemetry::*calls, size_t end) const {
  uint64_t sum = 0;
  for (const Telemetry* telemetry : telemetries_) {
    sum += (telemetry->*calls)[end].load(std::memory_order_relaxed);
  }
  return sum;
}

void Metrics::Collector::WriteSharedCache(Page* page) const {
  if (limits_.shared_pool == nullptr) return;
  using Counts = Telemetry::Shard::SharedCache;
  TimeSum<buckets::kShare> hit_rates;
  TimeSum<buckets::kBlocks> beyond;
  TimeSum<buckets::kOverhead> queries;
  std::array<uint64_t, kSharedCacheErrorCount> errors{};
  std::array<uint64_t, kSharedCacheKeyCount> keys{};
  for (const Telemetry* telemetry : telemetries_) {
    const Counts* const counts = telemetry->shard().shared_cache.Find();
    if (counts == nullptr) continue;
    hit_rates.Add(&counts->hit_rates);
    beyond.Add(&counts->beyond_blocks);
    queries.Add(&counts->queries);
    for (size_t i = 0; i < errors.size(); ++i) errors[i] += counts->errors[i].count();
    for (size_t i = 0; i < keys.size(); ++i) keys[i] += counts->keys[i].count();
  }
  page->Histogram(
      "router_shared_cache_hit_rate",
      "Share of a prompt's blocks that the shared pool holds, of prompts that it was queried for.");
  hit_rates.AddTo(page, {}, static_cast<double>(buckets::kShareOne));
  page->Histogram(
      "router_shared_cache_beyond_blocks",
      "Blocks of a prompt that the shared pool holds beyond those on the chosen worker's GPU, of decisions "
      "that waited for the pool.");
  beyond.AddTo(page, {}, 1);
  page->Histogram("shared_cache_query_seconds", "Time of a prompt's queries of the shared pool.");
  queries.AddTo(page);
  page->Counter("shared_cache_errors_total", "Failed queries of the shared pool, by reason.");
  for (size_t i = 0; i < errors.size(); ++i) {
    page->Add(
        static_cast<double>(errors[i]),
        {Label("reason", SharedCacheErrorName(static_cast<SharedCacheError>(i)))});
  }
  page->Counter(
      "shared_cache_keys_total",
      "Keys queried in the shared pool, by result; cached: pages known from a query a moment before.");
  for (size_t i = 0; i < keys.size(); ++i) {
    page->Add(
        static_cast<double>(keys[i]), {Label("result", SharedCacheKeyName(static_cast<SharedCacheKey>(i)))});
  }
}

void Metrics::Collector::WriteStages(Page* page, const FleetView& fleet) const {
  using Counts = Telemetry::Shard::Pd;
  TimeSum<buckets::kWorkerWait> prefills;
  TimeSum<buckets::kOverhead> handoffs;
  uint64_t saved_tokens = 0;
  using Labels = LabeledCounters Counts::*;
  const auto add_all = [&](Labels labels, std::string_view label) {
    std::map<std::string_view, uint64_t> sums;
    for (const Telemetry* telemetry : telemetries_) {
      const Counts* const counts = telemetry->shard().pd.Find();
      if (counts == nullptr) continue;
      (counts->*labels).ForEach([&sums](std::string_view name, uint64_t count) { sums[name] += count; });
    }
    for (const auto& [name, count] : sums) page->Add(static_cast<double>(count), {Label(label, name)});
  };
  for (const Telemetry* telemetry : telemetries_) {
    const Counts* const counts = telemetry->shard().pd.Find();
    if (counts == nullptr) continue;
    saved_tokens += counts->bypass_saved_tokens.count();
    prefills.Add(&counts->prefills);
    handoffs.Add(&counts->handoffs);
  }
  page->Counter(
      "pd_plan_total",
      "Requests by how they are served: by two stages, by decode alone (local), by prefill (single).");
  add_all(&Counts::plans, "kind");
  page->Counter("pd_local_total", "Requests that decode served alone, by reason.");
  add_all(&Counts::local, "reason");
  page->Counter(
      "pd_bypass_saved_tokens_total",
      "Prompt tokens of requests that bypassed prefill, which decode was expected to have in its cache.");
  page->Add(static_cast<double>(saved_tokens));
  page->Counter("pd_claims_total", "Requests whose KV blocks a prefill worker held, by how that ended.");
  add_all(&Counts::claims, "end");
  page->Histogram("pd_prefill_seconds", "Time from a request to prefill until its response has been read.");
  prefills.AddTo(page);
  page->Histogram(
      "pd_handoff_seconds", "Time from the end of prefill's response to the first byte of decode's.");
  handoffs.AddTo(page);
  page->Counter("pd_requests_total", "Requests that a prefill and a decode worker were chosen for.");
  for (size_t route = 0; route < kRouteCount; ++route) {
    const uint64_t requests = Sum([route](const Telemetry::Shard& shard) {
      const Counts* const counts = shard.pd.Find();
      return counts == nullptr ? 0 : counts->requests[route].count();
    });
    page->AddUnlessZero(requests, {Label("route", RouteLabel(route))});
  }
  page->Histogram("pd_request_duration_seconds", "Duration of those requests, from their head to the end.");
  for (size_t route = 0; route < kRouteCount; ++route) {
    TimeSum<buckets::kDuration> durations;
    for (const Telemetry* telemetry : telemetries_) {
      const Counts* const counts = telemetry->shard().pd.Find();
      const DurationHistogram* const times = counts == nullptr ? nullptr : counts->durations[route].Find();
      if (times == nullptr) continue;
      durations.Add(times);
    }
    if (durations.count() != 0) durations.AddTo(page, {Label("route", RouteLabel(route))});
  }
  page->Counter(
      "pd_errors_total",
      "Requests to a fleet with stages that got no complete 2xx response, by error type; server_selection: "
      "no "
      "worker of a stage could be chosen.");
  add_all(&Counts::errors, "error_type");
  page->Counter(
      "pd_retries_total", "Further attempts of requests that two workers serve, by what had failed.");
  add_all(&Counts::retries, "failed");
  page->Counter(
      "pd_cancelled_total",
      "Requests that two workers serve and that were cancelled, mostly by their clients, by what was under "
      "way.");
  add_all(&Counts::cancelled, "state");
  WriteStageWorkers(page, fleet);
}

// A worker has one stage, so it is in the families of one.
void Metrics::Collector::WriteStageWorkers(Page* page, const FleetView& fleet) const {
  const std::vector<std::shared_ptr<const Worker>> workers = WorkersToShow(fleet);
  using Pair = WorkerCounters::Pair;
  struct Sums {
    uint64_t requests = 0;
    uint64_t errors = 0;
    uint64_t stream_errors = 0;
  };
  std::vector<Sums> sums(workers.size());
  for (const Telemetry* telemetry : telemetries_) {
    const Telemetry::Shard& shard = telemetry->shard();
    MutexLock lock(shard.mutex);
    for (size_t i = 0; i < workers.size(); ++i) {
      const WorkerCounters* const counters = shard.Find(workers[i]->id);
      const Pair* const pair = counters == nullptr ? nullptr : counters->pair.Find();
      if (pair == nullptr) continue;
      sums[i].requests += pair->requests.count();
      sums[i].errors += pair->errors.count();
      sums[i].stream_errors += pair->stream_errors.count();
    }
  }
  const auto add = [&](Stage stage, uint64_t Sums::*count) {
    for (size_t i = 0; i < workers.size(); ++i) {
      if (workers[i]->stage != stage) continue;
      page->Add(static_cast<double>(sums[i].*count), {Label("worker", workers[i]->url.url)});
    }
  };
  page->Counter("pd_prefill_requests_total", "Requests for a prompt's KV blocks that the worker was sent.");
  add(Stage::kPrefill, &Sums::requests);
  page->Counter("pd_decode_requests_total", "Requests of pairs that the decode worker was sent.");
  add(Stage::kDecode, &Sums::requests);
  page->Counter(
      "pd_prefill_errors_total", "Those requests that failed or were rejected at the prefill worker.");
  add(Stage::kPrefill, &Sums::errors);
  page->Counter(
      "pd_decode_errors_total",
      "Those requests that failed or were rejected at the decode worker before a byte for the client.");
  add(Stage::kDecode, &Sums::errors);
  page->Counter(
      "pd_stream_errors_total", "Responses of the decode worker that failed behind their first byte.");
  add(Stage::kDecode, &Sums::stream_errors);
}

void Metrics::Collector::WriteRemovedMembers(Page* page) const {
  page->Counter(
      "pd_removed_members_total",
      "Members of clients' requests that steer transfers of KV blocks and were removed, by name.");
  const auto sums = SumNames([](const Telemetry::Shard& shard) { return shard.removed_members.Find(); });
  for (const auto& [name, count] : sums) page->Add(static_cast<double>(count), {Label("name", name)});
}

void Metrics::Collector::WriteCacheControl(Page* page) const {
  page->Counter(
      "cache_control_total",
      "Requests to /v1/messages that were to get a cache_control marker, by result: added, or why not.");
  const auto sums = SumNames([](const Telemetry::Shard& shard) { return shard.cache_control.Find(); });
  for (const auto& [result, count] : sums) page->Add(static_cast<double>(count), {Label("result", result)});
}

void Metrics::Collector::WriteRegistrations(Page* page) const {
  if (!registrations_) return;
  const PdRegistrationReport report = registrations_();
  page->Gauge("pd_registrations", "Workers that have registered and are not silent, by type.");
  for (const PdRole role : {PdRole::kPrefill, PdRole::kDecode}) {
    const auto count = std::ranges::count_if(
        report.instances, [role](const auto& one) { return one.told.role == role && !one.silent; });
    page->Add(static_cast<double>(count), {Label("type", PdRoleName(role))});
  }
  page->Counter(
      "pd_registration_messages_total", "Messages of workers that register, by what became of them.");
  for (size_t i = 0; i < kPdReceivedKinds; ++i) {
    page->Add(
        static_cast<double>(report.messages[i]),
        {Label("result", PdReceivedName(static_cast<PdReceived>(i)))});
  }
}

void Metrics::Collector::WriteKvEvents(Page* page) const {
  const std::vector<KvSourceStatus> sources = kv_sources_();
  if (sources.empty()) return;
  const auto labels = [](const KvSourceStatus& status) {
    return Labels{Label("worker", status.source.url), Label("rank", std::to_string(status.source.rank))};
  };
  const auto each = [&](auto value) {
    for (const KvSourceStatus& status : sources)
      page->Add(static_cast<double>(value(status)), labels(status));
  };
  const auto by_label = [&](std::string_view label, auto counts) {
    for (const KvSourceStatus& status : sources) {
      for (const auto& [name, count] : counts(status)) {
        Labels all = labels(status);
        all.push_back(Label(label, name));
        page->Add(static_cast<double>(count), std::move(all));
      }
    }
  };
  using Status = KvSourceStatus;
  page->Gauge("kv_trust", "How far a source of KV events is trusted: 1 for its state, 0 for the others.");
  for (const Status& status : sources) {
    for (int state = 0; state < kKvTrustCount; ++state) {
      const auto trust = static_cast<KvTrust>(state);
      Labels all = labels(status);
      all.push_back(Label("state", KvTrustName(trust)));
      page->Add(status.trust == trust ? 1 : 0, std::move(all));
    }
  }
  page->Gauge("kv_source_connected", "1 while the router is connected to a publisher of KV events.");
  each([](const Status& status) { return status.connected ? 1 : 0; });
  page->Counter("kv_source_reconnects_total", "Connections to a publisher of KV events after the first.");
  each([](const Status& status) { return status.reconnects; });
  page->Counter("kv_batches_received_total", "Batches of KV events received, live and replayed.");
  each([](const Status& status) { return status.received_batches; });
  page->Counter("kv_batches_applied_total", "Batches of KV events applied to the index.");
  each([](const Status& status) { return status.applied_batches; });
  page->Counter("kv_batches_lost_total", "Batches of KV events that were published and never received.");
  each([](const Status& status) { return status.lost_batches; });
  page->Counter("kv_events_dropped_total", "KV events and batches of them that were not used, by reason.");
  by_label("reason", [](const Status& status) -> const Status::Counts& { return status.dropped; });
  page->Counter("kv_replays_total", "Replays of KV events requested from a publisher, by result.");
  by_label("result", [](const Status& status) -> const Status::Counts& { return status.replays; });
  page->Counter(
      "kv_incarnations_total", "Times that everything known of a worker's cache was dropped, by cause.");
  by_label("cause", [](const Status& status) -> const Status::Counts& { return status.incarnations; });
  page->Counter("kv_index_blocks_total", "Blocks of the engine that KV events named, by operation.");
  by_label("op", [](const Status& status) {
    return Status::Counts{
        {"stored", status.stored_blocks},
        {"removed", status.removed_blocks},
        {"unknown_removed", status.unknown_removed_blocks}};
  });
  page->Gauge(
      "kv_index_pairs",
      "Blocks of --block-size tokens that a worker's cache holds by its KV events, by tier.");
  by_label("tier", [](const Status& status) {
    return Status::Counts{
        {"gpu", status.blocks[0]}, {"host", status.blocks[1]}, {"external", status.blocks[2]}};
  });
  page->Gauge(
      "kv_coverage_ratio",
      "Blocks known by KV events to be in a worker's GPU cache, relative to those that it can hold.");
  each([](const Status& status) { return status.coverage; });
  page->Gauge("kv_orphan_blocks", "Blocks of the engine whose parent is not known yet.");
  each([](const Status& status) { return status.orphan_blocks; });
  page->Gauge("kv_held_bytes", "Memory of batches that wait for a replay to end.");
  each([](const Status& status) { return status.held_bytes; });
  page->Gauge("kv_memory_bytes", "Memory of the map from the engine's block hashes to the index.");
  each([](const Status& status) { return status.bytes; });
  page->Gauge(
      "kv_event_lag_seconds",
      "Time from the engine's clock to the router's for the last batch of KV events.");
  each([](const Status& status) { return status.lag_seconds; });
}

void Metrics::Collector::WriteTokenizing(Page* page) const {
  const TokenCache* cache = router_->token_cache();
  if (cache == nullptr || !router_->tokenizes()) return;
  page->Counter(
      "tokenize_calls_total", "Requests to workers for the token ids of a text (POST /tokenize), by result.");
  for (size_t end = 0; end < kTokenizeEndCount; ++end) {
    page->Add(
        static_cast<double>(CountTokenized(&Telemetry::tokenize_calls, end)),
        {Label("result", TokenizeEndName(static_cast<TokenizeEnd>(end)))});
  }
  // vllm-project/router's name for it.
  page->Counter(
      "kv_routing_inputs_total", "Prompts whose token ids were requested from a worker, by result.");
  for (size_t end = 0; end < kTokenizeEndCount; ++end) {
    const auto ended = static_cast<TokenizeEnd>(end);
    page->Add(
        static_cast<double>(CountTokenized(&Telemetry::tokenize_calls, end)),
        {Label("transport", "http"),
         Label("result", ended == TokenizeEnd::kOk ? "prepared" : TokenizeEndName(ended))});
  }
  page->Counter(
      "background_tokenize_calls_total",
      "Requests to workers for the token ids of the next turn's prompt, sent in the background of a "
      "response, by result.");
  for (size_t end = 0; end < kTokenizeEndCount; ++end) {
    const auto ended = static_cast<TokenizeEnd>(end);
    if (ended == TokenizeEnd::kGone) continue;  // no client waits for it
    page->Add(
        static_cast<double>(CountTokenized(&Telemetry::background_tokenize_calls, end)),
        {Label("result", ended == TokenizeEnd::kNobody ? "dropped" : TokenizeEndName(ended))});
  }
  page->Counter("tokenize_wait_seconds_total", "Time that requests waited for token ids from a worker.");
  page->Add(Total(&Telemetry::tokenize_nanos) / 1e9);
  const TokenCache::Stats stats = cache->stats();
  page->Counter(
      "token_cache_lookups_total", "Lookups in the token cache, by how much of the text was found.");
  page->Add(static_cast<double>(stats.whole), {Label("known", "whole")});
  page->Add(static_cast<double>(stats.partial), {Label("known", "part")});
  page->Add(static_cast<double>(stats.unknown), {Label("known", "nothing")});
  page->Counter("token_cache_evicted_total", "Texts evicted from the token cache because it was full.");
  page->Add(static_cast<double>(stats.evicted));
  page->Gauge("token_cache_entries", "Texts in the token cache.");
  page->Add(static_cast<double>(stats.entries));
  page->Gauge("token_cache_bytes", "Memory of the token ids in the token cache; at most 64 MiB.");
  page->Add(static_cast<double>(stats.bytes));
}

void Metrics::Collector::WritePrefixEvents(Page* page) const {
  const KvIndex* const index = router_->pool().index();
  const PrefixTable* const table = index != nullptr ? index->prefixes() : nullptr;
  if (table == nullptr) return;
  using Status = PrefixSourceStatus;
  const std::vector<Status> sources = prefix_sources_();
  const auto each = [&](auto value) {
    for (const Status& status : sources)
      page->Add(static_cast<double>(value(status)), {Label("backend", status.name)});
  };
  const auto both = [&](std::string_view label, std::string_view word, const Status& status, uint64_t value) {
    page->Add(static_cast<double>(value), {Label("backend", status.name), Label(label, word)});
  };
  page->Counter("continuum_kv_event_received_total", "Events about prefixes received from the source.");
  each([](const Status& status) { return status.received; });
  page->Counter(
      "continuum_kv_event_processed_total",
      "Events about prefixes from the source that were applied to the prefix index.");
  each([](const Status& status) { return status.processed; });
  page->Counter(
      "continuum_kv_event_dropped_total",
      "Events about prefixes from the source that could not be used; the log has the reason.");
  each([](const Status& status) { return status.dropped; });
  page->Gauge("continuum_kv_consumer_connected", "1 while the router reads the source's stream of events.");
  each([](const Status& status) { return status.connected ? 1 : 0; });
  page->Counter(
      "continuum_kv_consumer_reconnects_total",
      "Attempts to connect to the source of events about prefixes after the first one.");
  each([](const Status& status) { return status.reconnects; });
  page->Gauge("continuum_kv_index_entries", "Entries of the prefix index, one for each worker of a prefix.");
  page->Add(static_cast<double>(table->stats().entries));
  page->Counter(
      "continuum_kv_index_events_total",
      "Changes of the prefix index by events: a prefix came to a GPU (created), or left it (evicted).");
  for (const Status& status : sources) {
    both("type", "created", status, status.created);
    both("type", "evicted", status, status.evicted);
  }
  page->Gauge(
      "continuum_kv_index_event_source_status",
      "State of the source of events about prefixes: 1 for its state, 0 for the others.");
  for (const Status& status : sources) {
    both("status", "connected", status, status.connected ? 1 : 0);
    both("status", "disconnected", status, !status.connected && !status.failed ? 1 : 0);
    both("status", "error", status, status.failed ? 1 : 0);
  }
}

void Metrics::Collector::WriteRedis(Page* page) const {
  if (redis_ == nullptr) return;
  const RedisPool::Stats stats = redis_->stats();
  page->Gauge(
      "continuum_cache_fallback_active",
      "1 while Redis is down or cannot be used, and this router's memory is used instead, else 0.");
  const bool refused = shared_responses_ != nullptr && shared_responses_->refused();
  page->Add(stats.fallback || refused ? 1 : 0);
  page->Gauge("continuum_cache_redis_connections_active", "Connections to Redis that wait for a reply.");
  page->Add(static_cast<double>(stats.active));
  page->Gauge("continuum_cache_redis_connections_idle", "Open connections to Redis that wait for no reply.");
  page->Add(static_cast<double>(stats.idle));
  page->Histogram("continuum_cache_redis_latency_seconds", "Time from a command to Redis until its reply.");
  if (shared_responses_ == nullptr) {
    page->AddHistogram(RedisPool::kLatencyBounds, stats.latency, stats.latency_nanos);
  } else {
    const RedisResponses::Stats responses = shared_responses_->stats();
    for (size_t i = 0; i < RedisResponses::kOperations; ++i) {
      const RedisResponses::Latency& latency = responses.latency[i];
      page->AddHistogram(
          RedisPool::kLatencyBounds, latency.counts, latency.nanos,
          {Label("operation", RedisResponses::kNames[i])});
    }
  }
  page->Counter("continuum_cache_redis_errors_total", "Failed commands and connections to Redis, by type.");
  for (size_t i = 0; i < stats.errors.size(); ++i) {
    page->Add(static_cast<double>(stats.errors[i]), {Label("type", NameOf(static_cast<RedisErrorType>(i)))});
  }
  page->Counter(
      "redis_dropped_writes_total",
      "Writes of the prefix index that Redis did not get, since it was down or slow.");
  page->Add(static_cast<double>(stats.dropped));
}

void Metrics::Collector::WriteResponseCache(Page* page) const {
  const ResponseCache& cache = limits_.response_cache;
  const ResponseCache::Counts& counts = cache.counts;
  const MemoryStore::Stats memory = cache.memory.stats();
  const FlightTable::Stats flights = cache.flights.stats();
  const auto of = [](const std::atomic<uint64_t>& count) { return count.load(std::memory_order_relaxed); };
  constexpr std::array<std::string_view, ResponseCache::kResults> kResults = {"hit", "miss", "skip"};

  page->Gauge("continuum_cache_backend_type", "1 for where responses are kept.");
  page->Add(1, {Label("backend", cache.fixed().redis ? "redis" : "memory")});
  page->Counter(
      "continuum_response_cache_requests_total",
      "Requests for inference by what the response cache did: skip for those that it may not serve.");
  for (size_t i = 0; i < kResults.size(); ++i)
    page->Add(static_cast<double>(of(counts.results[i])), {Label("result", kResults[i])});
  page->Gauge(
      "continuum_response_cache_entries", "Responses that are kept: in Redis, or in this router's memory.");
  page->Add(
      shared_responses_ != nullptr ? static_cast<double>(shared_entries_().value_or(0))
                                   : static_cast<double>(memory.entries));
  page->Gauge("continuum_response_cache_size_bytes", "Memory that these take.");
  page->Add(static_cast<double>(memory.bytes));
  page->Counter("continuum_response_cache_evictions_total", "Responses that left memory for want of room.");
  page->Add(static_cast<double>(memory.evicted));
  page->Gauge(
      "continuum_response_cache_hit_rate", "Hits among the lookups of the last 300 seconds, from 0 to 1.");
  page->Add(cache.hit_rate.Of(clock_.NowNanos()));

  page->Counter("response_cache_bypass_total", "Requests that the response cache may not serve, by reason.");
  for (size_t i = 1; i < kCacheBypasses; ++i) {
    page->Add(
        static_cast<double>(of(counts.bypasses[i])),
        {Label("reason", CacheBypassName(static_cast<CacheBypass>(i)))});
  }
  page->Counter(
      "response_cache_not_stored_total",
      "Responses to requests that may be cached that were not, by reason.");
  for (size_t i = 1; i < kNotStoredReasons; ++i) {
    page->Add(
        static_cast<double>(of(counts.not_stored[i])),
        {Label("reason", NotStoredName(static_cast<NotStored>(i)))});
  }
  page->Counter(
      "response_cache_coalesced_total", "Requests that got the response to an equal one under way.");
  page->Add(static_cast<double>(flights.shared));
  page->Counter(
      "response_cache_promotions_total", "Requests that took the place of an equal one that had failed.");
  page->Add(static_cast<double>(flights.promoted));
  page->Gauge("response_cache_followers", "Requests that wait for the response to an equal one.");
  page->Add(static_cast<double>(flights.followers));
  page->Counter(
      "response_cache_evicted_bytes_total", "Bytes of responses that left memory for want of room.");
  page->Add(static_cast<double>(memory.evicted_bytes));
  page->Counter("response_cache_expired_total", "Responses in memory whose time was over.");
  page->Add(static_cast<double>(memory.expired));
  page->Counter(
      "response_cache_corrupt_total", "Stored responses that were damaged or not a router's, and not used.");
  page->Add(static_cast<double>(of(counts.corrupt)));
  if (shared_responses_ != nullptr) {
    const RedisResponses::Stats shared = shared_responses_->stats();
    page->Counter(
        "response_cache_late_total", "Look-ups in Redis that took longer than their request waited.");
    page->Add(static_cast<double>(shared.late));
    page->Counter(
        "response_cache_store_dropped_total", "Responses that Redis did not get, since it was slow or down.");
    page->Add(static_cast<double>(shared.dropped));
  }
  page->Gauge("response_cache_capture_bytes", "Memory for responses that are on their way to the cache.");
  page->Add(static_cast<double>(cache.captured_bytes()));
  page->Gauge(
      "response_cache_generation", "A number that changes whenever all stored responses are invalidated.");
  page->Add(static_cast<double>(cache.generations.Of("")));
  page->Counter("response_cache_saved_tokens_total", "Tokens of stored responses that were sent, by kind.");
  page->Add(static_cast<double>(of(counts.saved_prompt_tokens)), {Label("kind", "prompt")});
  page->Add(static_cast<double>(of(counts.saved_completion_tokens)), {Label("kind", "completion")});
  page->Histogram("response_cache_lookup_seconds", "Time to find a stored response, or none.");
  for (const ResponseCache::Result result : {ResponseCache::Result::kHit, ResponseCache::Result::kMiss}) {
    const auto at = static_cast<size_t>(result);
    std::array<uint64_t, std::tuple_size_v<ResponseCache::Lookups>> buckets;
    std::ranges::transform(counts.lookups[at], buckets.begin(), of);
    page->AddHistogram(
        ResponseCache::kLookupBounds, buckets, of(counts.lookup_nanos[at]), {Label("result", kResults[at])});
  }
}

void Metrics::Collector::WritePeerSync(Page* page) const {
  if (!peers_) return;
  const PeerSyncReport report = peers_();
  page->Gauge("peer_sync_up", "1 while this router and the others hear each other through Redis, else 0.");
  page->Add(report.up ? 1 : 0);
  page->Gauge(
      "peer_sync_alone",
      "1 while this router has not heard others for 5 s and polls the workers' loads instead, else 0.");
  page->Add(report.alone ? 1 : 0);
  page->Counter("peer_sync_outage_seconds_total", "Time without a connection to the other routers.");
  page->Add(static_cast<double>(report.outage_ms) / 1000);

  const auto each =
      [page](std::string_view label, std::initializer_list<std::pair<std::string_view, uint64_t>> rows) {
        for (const auto& [value, count] : rows) page->Add(static_cast<double>(count), {Label(label, value)});
      };
  std::array<uint64_t, 3> states{};
  for (const PeerSyncReport::Member& member : report.members) ++states[static_cast<size_t>(member.state)];
  page->Gauge(
      "peer_sync_peers",
      "Other routers of the fleet: live, late for 2 s, or gone for 10 s or since they stopped.");
  each("state", {{"live", states[0]}, {"late", states[1]}, {"gone", states[2]}});

  // Names may repeat; series must not.
  std::map<std::string, std::pair<double, uint64_t>> by_name;
  for (const PeerSyncReport::Member& member : report.members) {
    if (member.state == PeerTable::State::kGone || by_name.size() >= kMaxPeerNames) continue;
    auto& [heard, gaps] = by_name[member.name];
    heard = std::max(heard, static_cast<double>(member.heard_ms) / 1000);
    gaps += member.gaps;
  }
  page->Gauge("peer_sync_heard_seconds", "Time since the last frame of the router with this name was read.");
  for (const auto& [name, seen] : by_name) page->Add(seen.first, {Label("peer", name)});
  page->Gauge("peer_sync_missed_frames", "Frames of the router with this name that were never read.");
  for (const auto& [name, seen] : by_name) page->Add(static_cast<double>(seen.second), {Label("peer", name)});

  const PeerSyncCounts& counts = report.counts;
  page->Counter("peer_sync_frames_sent_total", "Frames that this router wrote for the others.");
  page->Add(static_cast<double>(counts.frames_sent));
  page->Counter(
      "peer_sync_frames_read_total",
      "Frames of other routers, by result: bad_seal is one that was not sealed with this router's secret, "
      "too_many one of more than 256 routers.");
  each(
      "result", {{"ok", counts.frames_read},
                 {"repeated", counts.frames_repeated},
                 {"malformed", counts.frames_malformed},
                 {"bad_seal", counts.frames_refused},
                 {"too_many", counts.frames_not_heard}});
  page->Counter("peer_sync_bytes_total", "Bytes sent to and read from Redis for other routers.");
  each("direction", {{"out", report.bytes_sent}, {"in", report.bytes_read}});
  page->Counter(
      "peer_sync_decisions_total",
      "Decisions, by what became of them: those sent, those of other routers that were applied, those "
      "dropped "
      "since too many waited (buffer_full) or --peer-sync-max-mbps was reached (budget), and those of other "
      "routers with another fingerprint or of workers that this router does not have.");
  each(
      "result", {{"sent", counts.decisions_sent},
                 {"applied", counts.decisions_applied},
                 {"buffer_full", report.decisions_dropped},
                 {"budget", counts.decisions_over_budget},
                 {"fingerprint", counts.decisions_foreign},
                 {"unknown_worker", counts.decisions_unknown_worker}});
  page->Counter("peer_sync_rounds_total", "Pipelines of commands sent to Redis for peer sync, by result.");
  each("result", {{"ok", report.rounds - report.rounds_failed}, {"failed", report.rounds_failed}});
  page->Histogram(
      "peer_sync_round_seconds", "Time from a pipeline of commands to Redis until its last reply.");
  page->AddHistogram(RedisPool::kLatencyBounds, report.redis.latency, report.redis.latency_nanos);
  page->Gauge("peer_sync_snapshot_bytes", "Size of the last snapshot that was written or read.");
  page->Add(static_cast<double>(report.snapshot_bytes));
  page->Counter("peer_sync_snapshots_total", "Snapshots for routers that start.");
  each("direction", {{"written", report.snapshots_written}, {"read", report.snapshots_read}});
  page->Gauge(
      "coarse_index_strides", "Strides that workers are expected to hold by the decisions of all routers.");
  page->Add(static_cast<double>(report.strides));
  page->Gauge("coarse_index_bytes", "Memory of the index of strides.");
  page->Add(static_cast<double>(report.stride_bytes));
  page->Counter(
      "rate_limit_leases_total", "Leases of the rate limit that all routers share, by what they got.");
  each(
      "result", {{"ok", report.lease.leases - report.lease.empty},
                 {"empty", report.lease.empty},
                 {"failed", report.lease.failed}});
  page->Gauge(
      "rate_limit_fallback",
      "1 while leases of the rate limit that all routers share have failed for a second, so that this router "
      "has "
      "a fixed part of it, else 0.");
  page->Add(report.lease.fallback ? 1 : 0);
}

void Metrics::Collector::WriteFleet(Page* page, const FleetView& fleet) const {
  page->Gauge("active_workers", "Workers in the fleet.");
  page->Add(static_cast<double>(fleet.members().size()));
  page->Gauge(
      "eligible_workers",
      "Workers that may be chosen now: healthy, not draining, circuit breaker not open, not in "
      "doubt.");
  page->Add(static_cast<double>(fleet.eligible().size()));

  const auto each = [&](const auto& value) {
    for (const FleetView::Member& member : fleet.members()) {
      page->Add(static_cast<double>(value(member)), {Label("worker", member.worker->url.url)});
    }
  };
  const auto load = [](const FleetView::Member& member) { return member.worker->load.open_requests(); };
  page->Gauge("worker_info", "Always 1; worker_type has the worker's stage: regular, prefill or decode.");
  for (const FleetView::Member& member : fleet.members()) {
    page->Add(
        1, {Label("worker", member.worker->url.url), Label("worker_type", StageName(member.worker->stage))});
  }
  page->Gauge("worker_health", "1 while the worker is healthy, else 0.");
  each([](const FleetView::Member& member) { return member.healthy ? 1 : 0; });
  page->Gauge(
      "worker_load", "Load of the worker as policies compare it: its requests divided by its weight.");
  each([](const FleetView::Member& member) {
    return static_cast<double>(member.worker->load.requests()) * kWeightOne / member.worker->weight;
  });
  page->Gauge("running_requests", "Open requests of the worker through this router.");
  each(load);
  page->Gauge(
      "waiting_requests", "Open requests of the worker through this router that have no first token yet.");
  each([](const FleetView::Member& member) { return member.worker->load.own_waiting(); });
  page->Gauge(
      "remote_requests",
      "Requests of the worker that came through others, as reported at its last load poll.");
  each([](const FleetView::Member& member) { return member.worker->load.remote_requests(); });
  page->Gauge(
      "remote_waiting_requests",
      "Waiting requests of the worker that came through others, where its load polls report waiting "
      "requests.");
  each([](const FleetView::Member& member) { return member.worker->load.remote_waiting(); });
  page->Gauge(
      "worker_bytes_per_token", "Bytes of a prompt per token, as learned from the worker's responses.");
  each([](const FleetView::Member& member) { return member.worker->bytes_per_token.value(); });
  page->Counter("load_polls_total", "Load polls sent to workers, by result.");
  page->Add(Total(&Telemetry::load_polls_ok), {Label("result", "ok")});
  page->Add(Total(&Telemetry::load_polls_failed), {Label("result", "failed")});

  int64_t maximum = 0, minimum = 0;
  bool first = true;
  for (const uint32_t position : fleet.eligible()) {
    const int64_t open = fleet.worker(position).load.open_requests();
    maximum = first ? open : std::max(maximum, open);
    minimum = first ? open : std::min(minimum, open);
    first = false;
  }
  page->Gauge("max_load", "Largest number of open requests of an eligible worker.");
  page->Add(static_cast<double>(maximum));
  page->Gauge("min_load", "Smallest number of open requests of an eligible worker.");
  page->Add(static_cast<double>(minimum));
}

void Metrics::Collector::WriteDiscovery(Page* page) const {
  const WorkerRegistry& registry = router_->pool().registry();
  const std::vector<SourceReport> sources = registry.Sources();
  if (sources.empty()) return;
  std::map<std::pair<std::string, std::string_view>, uint64_t> states;
  for (const SourceReport& source : sources) {
    for (const std::string_view state : {"pending", "serving", "resting", "draining", "held", "left"})
      states[{source.name, state}] = 0;
  }
  for (const DeclaredFleet::Row& row : registry.Rows()) {
    const std::string owner = row.owners.empty() ? "none" : row.owners.front();
    ++states[{owner, DeclaredFleet::StateName(row)}];
  }
  const auto each = [&](auto value) {
    for (const SourceReport& source : sources)
      page->Add(static_cast<double>(value(source)), {Label("source", source.name)});
  };
  page->Gauge(
      "discovery_workers",
      "Workers by the source that declares them (none: they are not declared any more, and drain) and their "
      "state.");
  for (const auto& [of, count] : states)
    page->Add(static_cast<double>(count), {Label("source", of.first), Label("state", of.second)});
  page->Counter("discovery_syncs_total", "Lists of workers that were taken from the source.");
  each([](const SourceReport& source) { return source.syncs; });
  page->Counter("discovery_errors_total", "Failed looks at the source, by kind.");
  for (const SourceReport& source : sources) {
    for (const auto& [kind, count] : source.errors)
      page->Add(static_cast<double>(count), {Label("source", source.name), Label("kind", kind)});
  }
  page->Gauge(
      "discovery_last_success_timestamp_seconds",
      "Unix time of the last list that was taken from the source; 0: none yet.");
  const int64_t now = clock_.NowNanos();
  each([&](const SourceReport& source) {
    if (!source.last_list_ns) return 0.0;
    return UnixSeconds() - static_cast<double>(now - *source.last_list_ns) / 1e9;
  });
  page->Gauge(
      "discovery_held",
      "Workers that the source's list leaves out and that are kept for now (--discovery-guard, "
      "--discovery-hold-secs).");
  each([](const SourceReport& source) { return source.held; });
  page->Counter("fleet_changes_total", "Changes of the fleet by the lists of the source.");
  for (const SourceReport& source : sources) {
    const auto add = [&](std::string_view change, uint64_t count) {
      page->Add(static_cast<double>(count), {Label("source", source.name), Label("change", change)});
    };
    add("joined", source.joined);
    add("left", source.left);
    add("changed", source.changed);
  }
}

// By model for the first names, and for all others together.
void Metrics::Collector::WriteModels(Page* page) const {
  const std::shared_ptr<const FleetView> fleet = router_->fleet();
  const ModelPools& pools = *fleet->models();
  constexpr std::array<std::string_view, 4> kStates = {"serving", "resting", "draining", "unhealthy"};
  using Counts = std::array<uint64_t, kStates.size()>;
  std::map<std::string_view, Counts> workers;
  struct Demand {
    uint64_t served = 0;
    uint64_t asleep = 0;
    uint64_t unknown = 0;
    int64_t waiting = 0;
  };
  std::map<std::string_view, Demand> demand;
  uint64_t listed = 0;
  const auto add_demand = [&demand](std::string_view label, const ModelDemand& counted) {
    Demand& sum = demand[label];
    sum.served += counted.served.load(std::memory_order_relaxed);
    sum.asleep += counted.asleep.load(std::memory_order_relaxed);
    sum.unknown += counted.unknown.load(std::memory_order_relaxed);
    sum.waiting += counted.waiting.load(std::memory_order_relaxed);
  };
  for (const std::string& id : pools.names->order) {
    const ModelPools::Name& name = *pools.Find(id);
    const std::string_view label = name.is_label ? std::string_view(id) : "other";
    if (name.is_label) add_demand(label, *name.demand);
    if (!name.is_listed()) continue;
    ++listed;
    Counts& counts = workers[label];
    for (const uint32_t position : name.workers) {
      const FleetView::Member& member = fleet->members()[position];
      ++counts[!member.healthy ? 3 : member.draining ? 2 : member.resting ? 1 : 0];
    }
  }
  add_demand("other", *pools.names->other);
  page->Gauge("models", "Models that workers of the fleet list, adapters among them.");
  page->Add(static_cast<double>(listed));
  page->Gauge(
      "model_workers",
      "Workers that list the model, by state; model is other for names beyond the first 256.");
  for (const auto& [model, counts] : workers) {
    for (size_t i = 0; i < kStates.size(); ++i)
      page->Add(static_cast<double>(counts[i]), {Label("model", model), Label("state", kStates[i])});
  }
  page->Counter(
      "model_demand_total",
      "Requests by model where their workers depend on it, by whether it has workers (served), had some "
      "before "
      "(asleep), or never (unknown; model is then other).");
  for (const auto& [model, counts] : demand) {
    const auto add = [&, model = model](std::string_view result, uint64_t count) {
      page->Add(static_cast<double>(count), {Label("model", model), Label("result", result)});
    };
    add("served", counts.served);
    add("asleep", counts.asleep);
    if (model == "other") add("unknown", counts.unknown);
  }
  page->Gauge(
      "model_waiting_requests",
      "Requests that wait for a worker of their model (--model-wait-secs); model is other for names beyond "
      "the "
      "first 256.");
  for (const auto& [model, counts] : demand)
    page->Add(static_cast<double>(counts.waiting), {Label("model", model)});
}

// Of the fleet, from all routers: these are not summed over routers.
void Metrics::Collector::WriteScale(Page* page) const {
  if (scale_ == nullptr) return;
  const std::shared_ptr<const ScaleReport> report = scale_();
  using Model = ScaleReport::Model;
  const auto each = [&](std::string_view name, std::string_view help, auto value_of) {
    page->Gauge(name, help);
    for (const Model& model : report->models) {
      if (const std::optional<double> value = value_of(model))
        page->Add(*value, {Label("model", model.name)});
    }
  };
  using Value = std::optional<double>;
  each(
      "scale_requests_fleet", "Requests under way at workers that serve the model, from all routers.",
      [](const Model& model) -> Value { return static_cast<double>(model.requests); });
  each(
      "scale_queued_fleet", "Of them, those without a first token; and those in the queue of this router.",
      [](const Model& model) -> Value { return static_cast<double>(model.queued); });
  each(
      "scale_prefill_seconds_fleet",
      "Time that the ready workers need for the prompts that wait, by the rate that was learned.",
      [](const Model& model) -> Value { return model.prefill_seconds; });
  each(
      "scale_saturation_fleet", "Load of the ready workers, mean of 30 s; 1: all that they can take.",
      [](const Model& model) -> Value { return model.reading.saturation; });
  each(
      "scale_desired_replicas", "Replicas that the load wants, between --scale-min and --scale-max.",
      [](const Model& model) -> Value { return model.reading.desired; });
  each(
      "scale_stale", "1 while the number of desired replicas is an old one, since something is not known.",
      [](const Model& model) -> Value { return model.reading.stale ? 1 : 0; });
}

void Metrics::Collector::WriteAdmission(Page* page) const {
  page->Gauge("concurrent_requests", "Requests that have been admitted to a worker and have not ended.");
  page->Add(static_cast<double>(limits_.concurrency.in_use()));
  page->AddFormerName("seats_taken");
  page->Gauge(
      "concurrent_requests_limit",
      "Maximum of concurrent_requests: --max-concurrent-requests, or what the limit of open files allows.");
  page->Add(static_cast<double>(limits_.concurrency.permits()));
  page->AddFormerName("seats");
  page->Gauge("queue_depth", "Requests waiting in the queue.");
  page->Add(limits_.concurrency.waiting());
  page->Histogram("queue_wait_seconds", "Time that requests waited in the queue, of those that had to wait.");
  TimeSum<buckets::kWorkerWait> waits;
  for (const Telemetry* telemetry : telemetries_) waits.Add(&telemetry->shard().queue_waits);
  waits.AddTo(page);
  page->Counter(
      "queue_requeues_total",
      "Times that a request was put back at its place in the queue because all workers had "
      "--max-worker-requests.");
  page->Add(Total(&Telemetry::steps_back));
  page->AddFormerName("queue_steps_back_total");
  page->Gauge("body_memory_bytes", "Memory reserved for buffered request bodies.");
  page->Add(static_cast<double>(limits_.body_memory.in_use()));
  page->Gauge("body_memory_limit_bytes", "Maximum of body_memory_bytes (--body-memory-mb).");
  page->Add(static_cast<double>(limits_.body_memory.total()));
  page->Gauge(
      "key_validations_waiting",
      "Requests waiting for the validation of their key by --api-key-validation-urls.");
  page->Add(Total(&Telemetry::key_validations_waiting));
  page->Counter(
      "key_validations_rejected_total",
      "Requests rejected because too many were waiting for the validation of a key, by reason.");
  page->Add(Total(&Telemetry::key_validations_full), {Label("reason", "queue_full")});
  page->Add(Total(&Telemetry::key_validations_share), {Label("reason", "address_share")});
  page->Counter("admission_rejected_total", "Requests that were not admitted, by reason.");
  for (const auto& [name, count] : SumNames([](const Telemetry::Shard& shard) { return &shard.refusals; })) {
    page->AddUnlessZero(count, {Label("reason", name)});
  }
}

void Metrics::Collector::WriteQuarantine(Page* page) const {
  const RequestQuarantine::Counts counts = limits_.quarantine.CountAll(clock_.NowNanos());
  page->Counter(
      "lost_requests_total",
      "Attempts whose connection was lost after the request, or a part of it, was sent.");
  page->Add(static_cast<double>(counts.losses));
  page->Counter("quarantines_total", "Requests quarantined because two workers died while serving them.");
  page->Add(static_cast<double>(counts.quarantines));
  page->Counter(
      "quarantines_lifted_total", "Quarantines that ended early because a worker served an equal request.");
  page->Add(static_cast<double>(counts.lifted));
  page->Gauge("quarantined_requests", "Requests that are quarantined now, and so rejected.");
  page->Add(static_cast<double>(counts.quarantined));
  page->Gauge(
      "restricted_clients",
      "Clients that are restricted because workers died with their requests more often than chance "
      "explains.");
  page->Add(static_cast<double>(counts.restricted));
}

// Prefix decisions by vllm-project/router's names; our reasons are more detailed.
void Metrics::Collector::WritePrefixDecisions(Page* page) const {
  struct Outcome {
    Reason reason;
    std::string_view name;
  };
  static constexpr Outcome kOutcomes[] = {
      {Reason::kPrefixHit, "prefix_hit"},       {Reason::kPrefixHash, "prefix_hit"},
      {Reason::kPrefixMiss, "prefix_miss"},     {Reason::kPrefixSpread, "prefix_miss"},
      {Reason::kLoadBalance, "load_imbalance"}, {Reason::kOverflow, "load_imbalance"},
      {Reason::kLowestCost, "prefix_cost"},     {Reason::kFallback, "missing_tokens"},
  };
  page->Counter("prefix_routing_decisions_total", "Decisions of policies that match prompts, by outcome.");
  constexpr KeyParts kPromptParts = KeyParts::kBlocks | KeyParts::kPrompt | KeyParts::kPrefixDigest;
  if (!Has(router_->policy().Needs(), kPromptParts)) return;
  std::map<std::string_view, uint64_t> sums;
  for (const auto& [reason, name] : kOutcomes) {
    const auto index = static_cast<size_t>(reason);
    sums[name] += Sum([index](const Telemetry::Shard& shard) { return shard.reasons[index].count(); });
  }
  for (const auto& [name, sum] : sums) {
    page->Add(
        static_cast<double>(sum),
        {Label("policy", router_->policy().name()), Label("stage", "regular"), Label("outcome", name)});
  }
}

void Metrics::Collector::WriteResponses(Page* page) const {
  page->Gauge("sessions", "Sessions whose worker the policy remembers.");
  page->Add(static_cast<double>(router_->policy().sessions().value_or(0)));
  const ResponseOwners& responses = limits_.responses;
  page->Counter(
      "response_lookups_total", "Requests that named a stored response, by how its worker was found.");
  for (int i = 0; i < kResponseLookupCount; ++i) {
    page->Add(
        static_cast<double>(responses.lookups[i].load(std::memory_order_relaxed)),
        {Label("result", ResponseLookupName(static_cast<ResponseLookup>(i)))});
  }
  page->Gauge("known_responses", "Stored responses whose worker is known.");
  page->Add(static_cast<double>(responses.workers.size()));
}

void Metrics::Collector::WriteConnections(Page* page) const {
  using Shard = Telemetry::Shard;
  const auto sum = [this](Counter Shard::*member) {
    return static_cast<double>(Sum([member](const Shard& shard) { return (shard.*member).count(); }));
  };

  page->Gauge(
      "in_flight",
      "Exchanges with workers in progress, including those whose request body is still arriving.");
  page->Add(Total(&Telemetry::in_flight));

  page->Gauge("client_connections", "Open connections from clients.");
  page->Add(
      Total(&Telemetry::client_connections) -
      static_cast<double>(telemetries_.back()->client_connections.load(std::memory_order_relaxed)));
  page->Counter(
      "client_connections_rejected_total",
      "Client connections closed before they carried a request, by reason.");
  page->Add(Total(&Telemetry::connections_rejected), {Label("reason", "max_connections")});
  page->Add(Total(&Telemetry::tls_failures), {Label("reason", "tls_handshake")});
  page->Add(Total(&Telemetry::requests_never_begun), {Label("reason", "no_request")});
  page->Counter(
      "client_connections_evicted_total",
      "Idle client connections closed at --max-connections to admit new ones.");
  page->Add(Total(&Telemetry::connections_evicted));

  const double idle = Total(&Telemetry::upstream_idle);
  page->Gauge("upstream_connections", "Open connections to workers, by state.");
  page->Add(std::max(0.0, Total(&Telemetry::upstream_open) - idle), {Label("state", "active")});
  page->Add(idle, {Label("state", "idle")});
  page->Counter("upstream_connects_total", "Attempts to connect to a worker, by result.");
  page->Add(Total(&Telemetry::connects_ok), {Label("result", "ok")});
  page->Add(Total(&Telemetry::connects_failed), {Label("result", "failed")});
  page->Counter(
      "upstream_stale_retries_total",
      "Requests sent again because the worker had closed the idle connection they were sent on.");
  page->Add(sum(&Shard::stale_retries));

  page->Counter("bytes_total", "Bytes of request and response bodies, by side and direction.");
  page->Add(sum(&Shard::client_bytes_in), {Label("side", "client"), Label("direction", "in")});
  page->Add(sum(&Shard::client_bytes_out), {Label("side", "client"), Label("direction", "out")});
  page->Add(sum(&Shard::worker_bytes_in), {Label("side", "worker"), Label("direction", "in")});
  page->Add(sum(&Shard::worker_bytes_out), {Label("side", "worker"), Label("direction", "out")});
  page->Counter(
      "relay_stalls_total", "Times that relaying waited for the slower side to accept more bytes, by side.");
  page->Add(sum(&Shard::client_stalls), {Label("side", "client")});
  page->Add(sum(&Shard::worker_stalls), {Label("side", "worker")});
  page->Counter(
      "sse_keepalives_total",
      "Comments sent to clients that waited for the first event of a stream (--sse-keepalive-secs).");
  page->Add(sum(&Shard::sse_keepalives));
}

void Metrics::Collector::WriteConfiguration(Page* page) const {
  if (configuration_ == nullptr) return;
  page->Counter("config_reloads_total", "Reloads of the file of settings, by result.");
  for (size_t result = 0; result < Configuration::kResults.size(); ++result) {
    page->Add(
        static_cast<double>(configuration_->count(result)),
        {Label("result", Configuration::kResults[result])});
  }
  page->Gauge(
      "config_last_success_timestamp_seconds",
      "Unix time at which the settings in force were last found to be those of the file; at first the "
      "start.");
  page->Add(static_cast<double>(configuration_->last_success_s()));
  page->Gauge(
      "config_generation", "Number of the settings in force: 1 at the start, 1 more with each change.");
  page->Add(static_cast<double>(configuration_->generation()));
}

void Metrics::Collector::WriteFiles(Page* page) const {
  page->Counter("reloads_total", "Reloads of key files, certificates and the record log, by result.");
  for (const Reloadable* const file : files_.reloadables) {
    const auto add = [&](const Counter& reloads, const char* result) {
      page->Add(static_cast<double>(reloads.count()), {Label("file", file->name()), Label("result", result)});
    };
    add(file->reloads_done(), "ok");
    add(file->reloads_failed(), "failed");
  }

  page->Gauge("certificate_seconds_left", "Seconds until the certificate presented to this side expires.");
  if (files_.tls == nullptr) return;
  const double now = UnixSeconds();
  for (const auto& [side, ends] :
       {std::pair("client", files_.tls->clients_certificate_ends()),
        std::pair("worker", files_.tls->workers_certificate_ends())}) {
    if (ends) page->Add(static_cast<double>(*ends) - now, {Label("side", side)});
  }
}

void Metrics::Collector::WritePages(Page* page) const {
  if (pages_ == nullptr) return;
  const PageRenderer::Stats stats = pages_->stats();
  page->Counter(
      "page_renders_total",
      "Renders of the router's own pages, each of which all requests share that waited for it, by route.");
  for (size_t route = 0; route < kRouteCount; ++route)
    page->AddUnlessZero(stats.by_route[route].renders, {Label("route", RouteLabel(route))});
  page->Counter("page_render_seconds_total", "Time of these renders, on a thread of their own.");
  for (size_t route = 0; route < kRouteCount; ++route) {
    const PageRenderer::Count& count = stats.by_route[route];
    if (count.renders == 0) continue;
    page->Add(static_cast<double>(count.nanos) / 1e9, {Label("route", RouteLabel(route))});
  }
  page->Counter(
      "pages_cut_total",
      "Pages whose readers were cut, since clients that read slowly kept too many old pages in memory.");
  page->Add(static_cast<double>(stats.cut));
}

void Metrics::Collector::WriteProcess(Page* page) const {
  page->Counter(
      "access_log_dropped_total",
      "Access log lines that standard output did not get, because too many waited or it could not be "
      "written.");
  page->Add(static_cast<double>(LogDropped(LogDestination::kStdout) + Sum([](const Telemetry::Shard& shard) {
                                  return shard.access_lines_dropped.count();
                                })));
  page->Counter(
      "log_lines_dropped_total",
      "Lines of the log that a destination did not get, because too many waited or it could not be written.");
  for (const auto& [destination, name] :
       {std::pair(LogDestination::kStderr, "stderr"), std::pair(LogDestination::kStdout, "stdout"),
        std::pair(LogDestination::kFile, "file")}) {
    page->Add(static_cast<double>(LogDropped(destination)), {Label("destination", name)});
  }
  if (files_.records != nullptr) {
    const uint64_t dropped =
        Sum([](const Telemetry::Shard& shard) { return shard.record_lines_dropped.count(); });
    page->Counter("record_log_lines_total", "Requests for the record log, by result.");
    page->Add(static_cast<double>(files_.records->written()), {Label("result", "written")});
    page->Add(static_cast<double>(files_.records->lost() + dropped), {Label("result", "lost")});
  }
  page->Gauge("build_info", "Always 1; the label has the version.");
  page->Add(1, {Label("version", Version())});
  page->Gauge("start_time_seconds", "Start time of the server, in seconds since the Unix epoch.");
  page->Add(started_);
  page->Counter("process_cpu_seconds_total", "CPU time used by the process.");
  page->Add(CpuSeconds());
  page->Gauge("process_resident_memory_bytes", "Resident memory of the process.");
  page->Add(ResidentBytes());
}

Metrics::Metrics(
    std::shared_ptr<Router> router, std::vector<const Telemetry*> telemetries, const ServerLimits& limits,
    const Clock& clock, ServerFiles files)
    : collector_(std::make_shared<Collector>(
          std::move(router), std::move(telemetries), limits, clock, std::move(files))) {}

Metrics::~Metrics() = default;

void Metrics::set_kv_events(std::function<std::vector<KvSourceStatus>()> sources) {
  collector_->set_kv_events(std::move(sources));
}

void Metrics::set_prefix_events(std::function<std::vector<PrefixSourceStatus>()> sources) {
  collector_->set_prefix_events(std::move(sources));
}

void Metrics::set_registrations(std::function<PdRegistrationReport()> report) {
  collector_->set_registrations(std::move(report));
}

void Metrics::set_redis(const RedisPool* redis) { collector_->set_redis(redis); }
void Metrics::set_shared_responses(
    const RedisResponses* responses, std::function<std::optional<int64_t>()> entries) {
  collector_->set_shared_responses(responses, std::move(entries));
}

void Metrics::set_scale(std::function<std::shared_ptr<const ScaleReport>()> scale) {
  collector_->set_scale(std::move(scale));
}

void Metrics::set_peer_sync(std::function<PeerSyncReport()> peers) {
  collector_->set_peer_sync(std::move(peers));
}

void Metrics::set_pages(const PageRenderer* pages) { collector_->set_pages(pages); }

void Metrics::set_configuration(const Configuration* configuration) {
  collector_->set_configuration(configuration);
}

std::string Metrics::Text() const { return prometheus::TextSerializer().Serialize(collector_->Collect()); }

}  // namespace vllm_router
