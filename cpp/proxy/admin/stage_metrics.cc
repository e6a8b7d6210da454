#include "proxy/admin/stage_metrics.h"

#include <cstdint>
#include <map>
#include <string_view>

#include "base/mutex.h"
#include "proxy/admin/telemetry_sums.h"
#include "proxy/api/routes.h"
#include "worker/worker.h"

namespace vllm_router {
namespace {

// A worker has one stage, so it is in the families of one.
void WriteStageWorkers(
    const TelemetrySums& threads, const std::vector<std::shared_ptr<const Worker>>& workers,
    MetricsPage* page) {
  using Pair = WorkerCounters::Pair;
  struct Sums {
    uint64_t requests = 0;
    uint64_t errors = 0;
    uint64_t stream_errors = 0;
  };
  std::vector<Sums> sums(workers.size());
  for (const Telemetry* telemetry : threads.all()) {
    const WorkerCounterMap& map = telemetry->shard().workers;
    MutexLock lock(map.mutex);
    for (size_t i = 0; i < workers.size(); ++i) {
      const WorkerCounters* const counters = map.Find(workers[i]->id);
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
      page->Add(sums[i].*count, {{"worker", workers[i]->url.url}});
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

}  // namespace

void WriteStages(
    const TelemetrySums& threads, const std::vector<std::shared_ptr<const Worker>>& workers,
    MetricsPage* page) {
  TimeSum<buckets::kWorkerWait> prefills;
  TimeSum<buckets::kOverhead> handoffs;
  uint64_t saved_tokens = 0;
  using Labels = LabeledCounters StageCounters::*;
  const auto add_all = [&](Labels labels, std::string_view label) {
    std::map<std::string_view, uint64_t> sums;
    for (const Telemetry* telemetry : threads.all()) {
      const StageCounters* const counts = telemetry->shard().stages.counters();
      if (counts == nullptr) continue;
      (counts->*labels).ForEach([&sums](std::string_view name, uint64_t count) { sums[name] += count; });
    }
    for (const auto& [name, count] : sums) page->Add(count, {{label, name}});
  };
  for (const Telemetry* telemetry : threads.all()) {
    const StageCounters* const counts = telemetry->shard().stages.counters();
    if (counts == nullptr) continue;
    saved_tokens += counts->bypass_saved_tokens.count();
    prefills.Add(&counts->prefills);
    handoffs.Add(&counts->handoffs);
  }
  page->Counter(
      "pd_plan_total",
      "Requests of a fleet with stages: two_stages, local (decode alone), single (one prefill worker) or "
      "rejected (400, or 404 for an unknown path).");
  add_all(&StageCounters::plans, "kind");
  page->Counter(
      "pd_local_total",
      "Requests that decode served alone: batch, several_sequences, wrong_type, media, prefill_loss "
      "(--pd-on-prefill-loss local), not_registered (the connector did not know what it needs of the pair), "
      "bypass and so on.");
  add_all(&StageCounters::local, "reason");
  page->Counter(
      "pd_bypass_saved_tokens_total",
      "Prompt tokens of requests that bypassed prefill, which decode was expected to have in its cache.");
  page->Add(saved_tokens);
  page->Counter(
      "pd_claims_total",
      "Requests whose KV blocks a prefill worker held, by how that ended: redeemed, rejected, reused, "
      "collected or expired.");
  add_all(&StageCounters::claims, "end");
  page->Histogram("pd_prefill_seconds", "Time from a request to prefill until its response has been read.");
  prefills.AddTo(page);
  page->Histogram(
      "pd_handoff_seconds", "Time from the end of prefill's response to the first byte of decode's.");
  handoffs.AddTo(page);
  page->Counter("pd_requests_total", "Requests that a prefill and a decode worker were chosen for.");
  for (size_t route = 0; route < kNamedRoutes; ++route) {
    const uint64_t requests = threads.Sum([route](const Telemetry::Shard& shard) {
      const StageCounters* const counts = shard.stages.counters();
      return counts == nullptr ? 0 : counts->requests[route].count();
    });
    page->AddUnlessZero(requests, {{"route", RouteLabel(route)}});
  }
  page->Histogram("pd_request_duration_seconds", "Duration of those requests, from their head to the end.");
  for (size_t route = 0; route < kNamedRoutes; ++route) {
    TimeSum<buckets::kDuration> durations;
    for (const Telemetry* telemetry : threads.all()) {
      const StageCounters* const counts = telemetry->shard().stages.counters();
      const DurationHistogram* const times = counts == nullptr ? nullptr : counts->durations[route].Find();
      if (times == nullptr) continue;
      durations.Add(times);
    }
    if (durations.count() != 0) durations.AddTo(page, {{"route", RouteLabel(route)}});
  }
  page->Counter(
      "pd_errors_total",
      "Requests to a fleet with stages that got no complete 2xx response: server_selection (no worker of a "
      "stage), else as request_errors_total.");
  add_all(&StageCounters::errors, "error_type");
  page->Counter(
      "pd_retries_total",
      "Further attempts of requests that two workers serve, by what had failed: prefill, decode, or the "
      "transfer of blocks.");
  add_all(&StageCounters::retries, "failed");
  page->Counter(
      "pd_cancelled_total",
      "Requests that two workers serve and that were cancelled, mostly by their clients, by what was under "
      "way: choosing, prefill, handover, decode (no byte yet) or generating.");
  add_all(&StageCounters::cancelled, "state");
  WriteStageWorkers(threads, workers, page);
}

}  // namespace vllm_router
