#include "proxy/shared_pool/shared_pool_service.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/log.h"
#include "base/text.h"
#include "policy/routing_key.h"
#include "proxy/admin/telemetry_sums.h"
#include "proxy/api/server_options.h"
#include "proxy/api/settings.h"
#include "proxy/client/http_client.h"
#include "proxy/client/kv_source_report.h"
#include "proxy/telemetry/metrics_page.h"
#include "proxy/thread/io_thread.h"
#include "routing/router.h"
#include "shared_pool/pool_report.h"

namespace vllm_router {
namespace {

constexpr int64_t kWarnOfHostAgainNanos = 60'000'000'000;
constexpr int kMaxDoublings = 6;  // of kSoonNanos: 64 s

bool IsLoopback(std::string_view host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

bool IsMissing(int status) { return status == 404 || status == 405 || status == 501; }

}  // namespace

void SharedPoolService::Start() {
  const FixedOptions& options = thread_.options;
  if (!Has(thread_.router->needs(), KeyParts::kSharedHits)) {
    Log(LogLevel::kWarning, Concat(
                                "shared cache: the policy ", thread_.router->policy().name(),
                                " does not read it, so it is not queried; use --policy kv_logit"));
    return;
  }
  // Server::Start has checked them.
  for (const std::string& text : options.shared_cache_urls) {
    StatusOr<WorkerUrl> url = ParseWorkerUrl(text);
    if (url.ok()) masters_.push_back(*std::move(url));
  }
  if (!options.shared_cache_layout.empty()) {
    StatusOr<PagePool> pool = PoolInLayout(options.shared_cache_layout);
    if (pool.ok()) given_ = *std::move(pool);
  }
  Begin();
}

int64_t SharedPoolService::Pass(const FleetView& fleet) {
  const int64_t now = thread_.clock.NowNanos();
  const Hosts healthy = HostsOf(fleet, Which::kHealthy);
  std::erase_if(hosts_, [&healthy](const auto& entry) { return !healthy.contains(entry.first); });
  for (const auto& [base, workers] : healthy) {
    std::shared_ptr<Host>& host = hosts_[base];
    if (host == nullptr) host = std::make_shared<Host>();
    if (host->polling || now < host->due_ns) continue;
    host->due_ns = now + kAgainNanos;
    host->polling = true;
    Spawn(Poll(host, workers.front()));
  }
  Configure(healthy);
  return kLookNanos;
}

Task<void> SharedPoolService::Poll(std::shared_ptr<Host> host, std::shared_ptr<Worker> worker) {
  const UnderWay under_way(*this);
  const int64_t timeout = thread_.settings.Get()->health_check_timeout_ms;
  bool conclusive = true;
  if (!given_) {
    const StatusOr<HttpResponse> response =
        co_await thread_.http.Get(nullptr, worker->url, "/server_info", timeout);
    conclusive = response.ok() && (response->status == 200 || IsMissing(response->status));
    if (conclusive) {
      StatusOr<std::optional<PagePool>> pool = std::optional<PagePool>();
      if (response->status == 200) pool = PoolInServerInfo(response->body);
      host->complaint = pool.ok() ? std::string() : std::string(pool.status().message());
      host->pool = pool.ok() ? *std::move(pool) : std::nullopt;
      if (host->pool && !masters_.empty()) host->pool->master_host.clear();  // it does not count
      if (host->pool && IsLoopback(host->pool->master_host)) host->pool->master_host = worker->url.host;
    }
  }
  if (conclusive && !stopped()) {
    const StatusOr<HttpResponse> response =
        co_await thread_.http.Get(nullptr, worker->url, "/v1/models", timeout);
    if (response.ok() && response->status == 200) host->models = BaseModelsIn(response->body);
    conclusive = !host->models.empty() || !thread_.options.kv_event_model.empty();
  }
  host->polling = false;
  host->polled |= conclusive;
  host->failures = conclusive ? 0 : std::min(host->failures + 1, kMaxDoublings);
  if (!conclusive) host->due_ns = thread_.clock.NowNanos() + (kSoonNanos << (host->failures - 1));
}

std::optional<PagePool> SharedPoolService::Describe(const Hosts& fleet, std::string* complaint) const {
  if (given_) return given_;
  const std::string* first = nullptr;
  bool all_polled = !fleet.empty();
  for (const auto& [base, workers] : fleet) {
    const Host& host = *hosts_.at(base);
    all_polled = all_polled && host.polled;
    if (!host.polled) continue;
    if (!host.complaint.empty()) {
      *complaint = Concat("HiCache of ", base, " cannot be used: ", host.complaint);
      return std::nullopt;
    }
    if (first == nullptr) first = &base;
    if (host.pool == hosts_.at(*first)->pool) continue;
    *complaint = Concat(
        "HiCache of ", *first, " and of ", base,
        " differ (GET /server_info), and a page must have the same keys everywhere; start all workers alike, "
        "or set --shared-cache-layout");
    return std::nullopt;
  }
  if (first == nullptr) return std::nullopt;
  std::optional<PagePool> pool = hosts_.at(*first)->pool;
  if (!pool && all_polled) {
    *complaint =
        "no workers have HiCache enabled; start them with --hicache-storage-backend mooncake, or set "
        "--shared-cache-layout";
  }
  return pool;
}

// As requests name them: of all hosts, and none if all have the same.
std::set<std::string, std::less<>> SharedPoolService::BaseModels() const {
  std::set<std::string, std::less<>> models;
  const std::vector<std::string>* first = nullptr;
  bool one_model = true;
  for (const auto& [base, host] : hosts_) {
    if (host->models.empty()) continue;
    if (first == nullptr) first = &host->models;
    one_model = one_model && host->models == *first;
    models.insert(host->models.begin(), host->models.end());
  }
  if (const std::string& model = thread_.options.kv_event_model; !model.empty()) models.insert(model);
  if (one_model && !models.empty()) models.insert("");
  return models;
}

SharedPoolService::Found SharedPoolService::Find(const Hosts& fleet) const {
  Found found{.models = BaseModels()};
  if (found.models.empty()) {
    const auto failed = [](const auto& entry) { return entry.second->failures > 0; };
    if (std::ranges::any_of(hosts_, failed)) {
      found.complaint = "no worker names its model (GET /v1/models); name it with --kv-event-model";
    }
    return found;
  }
  const std::optional<PagePool> pool = Describe(fleet, &found.complaint);
  if (!pool) return found;
  const uint32_t block = thread_.router->options().policy.block_size;
  const uint32_t page = pool->page_size;
  if (page % block != 0 && block % page != 0) {
    found.complaint = Concat(
        "HiCache page size mismatch: worker ", page, ", router ", block,
        "; set --block-size to a multiple of it, or to a number that divides it");
    return found;
  }
  found.masters = masters_;
  if (masters_.empty() && !pool->master_host.empty()) {
    const bool is_ipv6 = pool->master_host.find(':') != std::string::npos;
    const StatusOr<WorkerUrl> master = ParseWorkerUrl(Concat(
        "http://", is_ipv6 ? "[" : "", pool->master_host, is_ipv6 ? "]" : "", ":",
        pool->master_metrics_port));
    if (master.ok()) found.masters.push_back(*master);
  }
  if (found.masters.empty()) {
    found.complaint = "nothing names the Mooncake master; set --shared-cache-url";
    return found;
  }
  StatusOr<std::vector<PageLayout>> layouts = LayoutsOf(*pool);
  if (layouts.ok()) {
    found.layouts = *std::move(layouts);
  } else {
    found.complaint = std::string(layouts.status().message());
  }
  return found;
}

void SharedPoolService::Configure(const Hosts& fleet) {
  Found found = Find(fleet);
  if (!found.complaint.empty()) Warn(found.complaint);
  std::vector<std::string> urls;
  for (const WorkerUrl& master : found.masters) urls.push_back(master.url);
  PagedPrompts::Pages pages{.models = std::move(found.models)};
  if (!found.layouts.empty()) pages.form = found.layouts.front().form;
  if (found.layouts != layouts_ || urls != master_urls_) {
    layouts_ = found.layouts;
    master_urls_ = urls;
    if (!layouts_.empty()) {
      Log(LogLevel::kInfo, Concat(
                               "shared cache: the pool at ", urls.front(), " has pages of ",
                               layouts_.front().form.tokens, " tokens under ", layouts_.size(),
                               layouts_.size() == 1 ? " kind of key" : " possible kinds of key"));
    }
    pool_.Configure(std::move(found.layouts), std::move(found.masters));
  }
  if (pages.form != pages_.form || pages.models != pages_.models) {
    pages_ = pages;
    const bool awaited = thread_.router->options().policy.shared_cache_multiplier > 0;
    thread_.router->paged_prompts().Set(std::move(pages), awaited);
  }
}

void SharedPoolService::Warn(std::string_view complaint) {
  const int64_t now = thread_.clock.NowNanos();
  if (now < warn_again_ns_) return;
  warn_again_ns_ = now + kWarnOfHostAgainNanos;
  counts_.back()->Failed(SharedCacheError::kLayout);
  Log(LogLevel::kWarning, Concat("shared cache: ", complaint, "; routing without it"));
}

void SharedPoolService::WriteMetrics(MetricsPage* page) const {
  TimeSum<buckets::kShare> hit_rates;
  TimeSum<buckets::kBlocks> beyond;
  TimeSum<buckets::kOverhead> queries;
  std::array<uint64_t, kSharedCacheErrorCount> errors{};
  std::array<uint64_t, kSharedCacheKeyCount> keys{};
  for (const SharedPoolCounts* const counts : counts_) {
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
  page->Counter(
      "shared_cache_errors_total",
      "Failed queries of the shared pool: connect, timeout, http (not 200), json or not_leader (503: a "
      "standby); layout: at most once a minute while what workers report of the pool cannot be used.");
  for (size_t i = 0; i < errors.size(); ++i) {
    page->Add(errors[i], {{"reason", SharedCacheErrorName(static_cast<SharedCacheError>(i))}});
  }
  page->Counter(
      "shared_cache_keys_total",
      "Keys queried in the shared pool: found or missing; cached: pages known from a query a moment before.");
  for (size_t i = 0; i < keys.size(); ++i) {
    page->Add(keys[i], {{"result", SharedCacheKeyName(static_cast<SharedCacheKey>(i))}});
  }
}

}  // namespace vllm_router
