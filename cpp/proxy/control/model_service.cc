#include "proxy/control/model_service.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "base/limits.h"
#include "base/log.h"
#include "base/text.h"
#include "base/time_units.h"
#include "proxy/api/settings.h"
#include "proxy/client/http_client.h"
#include "proxy/client/model_report.h"
#include "proxy/client/probe_failure.h"
#include "proxy/thread/io_thread.h"
#include "routing/router.h"
#include "worker/worker_registry.h"

namespace vllm_router {
namespace {

constexpr int64_t kLongestQueryPauseNs = 1'000 * kNanosPerMs;
constexpr int64_t kFirstRetryNs = 500 * kNanosPerMs;
constexpr int kMostDoublings = 6;
constexpr int kWarnedQueryFailures = 3;

// It has no such endpoint.
bool IsAbsent(int status) { return status == 404 || status == 405 || status == 501; }

}  // namespace

void GuardedHosts::Set(std::string_view base, bool guarded) {
  const MutexLock lock(mutex_);
  if (guarded) {
    hosts_.try_emplace(std::string(base));
  } else if (const auto found = hosts_.find(base); found != hosts_.end()) {
    hosts_.erase(found);
  }
}

bool GuardedHosts::Contains(std::string_view base) const {
  const MutexLock lock(mutex_);
  return hosts_.contains(base);
}

bool GuardedHosts::any() const {
  const MutexLock lock(mutex_);
  return !hosts_.empty();
}

bool GuardedHosts::HasLearnt(std::string_view base) const {
  const MutexLock lock(mutex_);
  const auto found = hosts_.find(base);
  return found != hosts_.end() && !found->second.empty();
}

std::vector<ModelCard> GuardedHosts::Learn(std::string_view base, std::span<const ModelCard> cards) {
  const MutexLock lock(mutex_);
  const auto found = hosts_.find(base);
  if (found == hosts_.end()) return {};
  std::vector<ModelCard>& known = found->second;
  for (const ModelCard& card : cards) {
    const auto same = std::ranges::find(known, card.id, &ModelCard::id);
    if (same != known.end()) {
      *same = card;
    } else if (known.size() < kMaxModelsPerWorker) {
      known.push_back(card);
    }
  }
  return known;
}

void GuardedHosts::Unlearn(std::string_view base) {
  const MutexLock lock(mutex_);
  if (const auto found = hosts_.find(base); found != hosts_.end()) found->second.clear();
}

void GuardedHosts::KeepOnly(const std::function<bool(const std::string& base)>& is_kept) {
  const MutexLock lock(mutex_);
  std::erase_if(hosts_, [&](const auto& entry) { return !is_kept(entry.first); });
}

ModelService::ModelService(IoThread& thread) : HostPoller(thread), publish_delay_(thread.loop) {}

bool ModelService::asks() const { return thread_.settings.Get()->model_refresh_ms > 0; }

void ModelService::FollowSettings() {
  if (!asks()) {
    WorkerRegistry& registry = thread_.router->pool().registry();
    for (const auto& [base, host] : hosts_) registry.ForgetModels(base);
    registry.PublishModels();
    hosts_.clear();
  }
  PassNow();
}

int64_t ModelService::Pass(const FleetView& fleet) {
  const Hosts hosts = HostsOf(fleet);
  guarded_.KeepOnly([&hosts](const std::string& base) { return hosts.contains(base); });
  if (!asks()) return kLongestQueryPauseNs;
  std::erase_if(hosts_, [&](const auto& entry) { return !hosts.contains(entry.first); });
  const int64_t now = thread_.clock.NowNanos();
  int64_t next = now + kLongestQueryPauseNs;
  for (const auto& [base, workers] : hosts) {
    std::shared_ptr<Host>& host = hosts_[base];
    if (host == nullptr) host = std::make_shared<Host>();
    if (host->polling) continue;
    if (now < host->due_ns) {
      next = std::min(next, host->due_ns);
    } else if (polling_ < kMaxHealthChecks) {  // the end of another poll starts a new pass
      host->polling = true;
      host->asked_ns = now;
      ++polling_;
      Spawn(Poll(host, workers.front()->url));
    }
  }
  return std::max(next - now, kNanosPerMs);
}

Task<void> ModelService::Poll(std::shared_ptr<Host> host, WorkerUrl url) {
  const UnderWay under_way(*this);
  const bool responded = co_await Fetch(url, /*joins=*/false);
  host->polling = false;
  if (polling_-- == kMaxHealthChecks) PassNow();
  if (stopped()) co_return;
  host->failures = responded ? 0 : std::min(host->failures + 1, kMostDoublings);
  if (host->failures == kWarnedQueryFailures && !std::exchange(host->warned, true)) {
    Log(LogLevel::kWarning,
        Concat(
            "models: worker ", url.base, " ", host->failure,
            "; what it listed before holds, and if that is nothing, it gets requests only while "
            "all others list the same"));
  }
  const int64_t refresh = Jittered(thread_.settings.Get()->model_refresh_ms * kNanosPerMs);
  const int64_t pause = responded ? refresh : std::min(refresh, kFirstRetryNs << host->failures);
  host->due_ns = std::exchange(host->again, false) ? 0 : thread_.clock.NowNanos() + pause;
  if (host->due_ns == 0) PassNow();
}

Task<bool> ModelService::Fetch(WorkerUrl url, bool joins) {
  const UnderWay under_way(*this);
  if (!asks()) co_return true;
  const int64_t timeout = thread_.settings.Get()->health_check_timeout_ms;
  const StatusOr<HttpResponse> response =
      co_await thread_.http.Get(nullptr, url, "/v1/models", timeout, kMaxModelReportBytes);
  if (stopped() || !asks()) co_return true;
  WorkerRegistry& registry = thread_.router->pool().registry();
  const auto found = hosts_.find(url.base);
  Host* const host = found != hosts_.end() ? found->second.get() : nullptr;
  const auto warn = [&](std::string_view what) {
    if (host == nullptr || std::exchange(host->warned, true)) return;
    Log(LogLevel::kWarning, Concat("models: worker ", url.base, " ", what));
  };
  const HttpClient::KeyUse key = thread_.http.KeyUseFor(url);
  const bool is_guarded = IsRefusal(response) && key != HttpClient::KeyUse::kSent;
  const bool is_clear = response.ok() && (response->status == 200 || IsAbsent(response->status));
  if (host != nullptr) host->failure = ProbeFailure(url, "/v1/models", response, key);
  // One that has listed its models to everybody may refuse by mistake, as what is in front of it does for a moment.
  if (is_guarded && !joins && host != nullptr && host->is_open && host->failures + 1 < kWarnedQueryFailures)
    co_return false;
  if (is_clear || is_guarded) guarded_.Set(url.base, is_guarded);
  if (host != nullptr && (is_clear || is_guarded)) host->is_open = is_clear && response->status == 200;
  const bool was_doubted = host != nullptr && std::exchange(host->doubted, false);
  if (is_guarded) {
    if (joins || was_doubted) guarded_.Unlearn(url.base);
    if (!guarded_.HasLearnt(url.base) && registry.ForgetModels(url.base)) PublishSoon();
    if (host != nullptr) {
      warn(Concat(
          host->failure,
          "; until a client with a key of it has requested GET /v1/models, it may get requests for any "
          "model"));
    }
    co_return true;
  }
  std::optional<std::vector<ModelCard>> cards;
  if (response.ok() && response->status == 200) cards = ModelsInReport(response->body);
  if (!cards) {
    const bool is_absent = response.ok() && IsAbsent(response->status);
    const bool too_long = absl::IsResourceExhausted(response.status());
    if (too_long) {
      warn(Concat(
          "lists its models in more than ", kMaxModelReportBytes,
          " bytes (GET /v1/models), which are not read; declare its models, or shorten the list"));
    } else if (response.ok() && response->status == 200) {
      warn(
          "responds to GET /v1/models with something that is no list of models; what it listed before holds");
    }
    const bool has_none = is_absent || too_long;
    bool changed = (joins || has_none) && registry.ForgetModels(url.base, /*if_awaited=*/!joins);
    changed = (!has_none && registry.AwaitModels(url.base, thread_.clock.NowNanos())) || changed;
    if (changed) PublishSoon();
    co_return has_none;
  }
  size_t refused = 0;
  if (registry.SetModels(url.base, *cards, thread_.clock.NowNanos(), &refused)) PublishSoon();
  if (refused != 0) {
    warn(Concat(
        "lists ", cards->size(), " models, of which ", refused, " are not kept: a worker may list ",
        kMaxModelsPerWorker, ", and all workers ", kMaxModelNames, "; requests for the others are rejected"));
  }
  if (host != nullptr) {
    const bool was_empty = std::exchange(host->was_empty, cards->empty());
    if (cards->empty() && !was_empty) {
      Log(LogLevel::kWarning,
          Concat("models: worker ", url.base, " lists no models, so it gets no requests for any"));
    }
  }
  co_return true;
}

void ModelService::PublishSoon() {
  if (!std::exchange(publishing_, true)) Spawn(PublishLater());
}

Task<void> ModelService::PublishLater() {
  const UnderWay under_way(*this);
  co_await publish_delay_.For(published_ns_ + kPublishNanos - thread_.clock.NowNanos());
  publishing_ = false;
  published_ns_ = thread_.clock.NowNanos();
  thread_.router->pool().registry().PublishModels();
}

void ModelService::PollAll() {
  thread_.loop.Post([this] {
    if (stopped()) return;
    for (const auto& [base, host] : hosts_) {
      host->due_ns = 0;
      host->again = host->polling;
    }
    PassNow();
  });
}

void ModelService::ReportMissing(const std::shared_ptr<Worker>& worker) {
  thread_.loop.Post([this, base = worker->url.base] {
    const auto found = hosts_.find(base);
    if (stopped() || found == hosts_.end()) return;
    Host& host = *found->second;
    host.doubted = true;
    const int64_t due = host.asked_ns + kRecheckNanos;
    if (host.polling || due >= host.due_ns) return;
    host.due_ns = due;
    PassNow();
  });
}

}  // namespace vllm_router
