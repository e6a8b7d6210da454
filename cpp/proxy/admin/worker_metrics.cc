#include "proxy/admin/worker_metrics.h"

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "proxy/admin/telemetry_sums.h"
#include "proxy/api/routes.h"
#include "routing/router.h"
#include "worker/fleet_view.h"
#include "worker/worker.h"

namespace vllm_router {
namespace {

// The sum of one worker's counters over several threads.
struct WorkerSum {
  uint64_t decisions = 0;
  uint64_t processed = 0;
  uint64_t failed_attempts = 0;
  uint64_t breaker_successes = 0;
  uint64_t breaker_failures = 0;
  std::array<uint64_t, kResponseCodeCount> responses{};
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
  std::array<std::unique_ptr<Times>, kNamedRoutes> times;  // null: none. 25 KB of a worker would be zeros

  void Add(const WorkerCounters& tallies) {
    decisions += tallies.decisions.count();
    processed += tallies.processed.count();
    failed_attempts += tallies.failed_attempts.count();
    breaker_successes += tallies.breaker_successes.count();
    breaker_failures += tallies.breaker_failures.count();
    for (size_t code = 0; code < kResponseCodeCount; ++code)
      responses[code] += tallies.responses[code].count();
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
    for (size_t route = 0; route < kNamedRoutes; ++route) {
      const WorkerCounters::Times* const counted = tallies.times[route].Find();
      if (counted == nullptr) continue;
      if (times[route] == nullptr) times[route] = std::make_unique<Times>();
      times[route]->first_token.Add(&counted->first_token);
      times[route]->head.Add(&counted->head);
    }
  }
};

// Prefix decisions by vllm-project/router's names; our reasons are more detailed.
void WritePrefixDecisions(const TelemetrySums& threads, const Router& router, MetricsPage* page) {
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
  page->Counter(
      "prefix_routing_decisions_total",
      "Decisions of policies that match prompts: prefix_hit, prefix_miss, prefix_cost (auto), "
      "load_imbalance, or missing_tokens for requests without a prompt. The stage is regular.");
  constexpr KeyParts kPromptParts = KeyParts::kBlocks | KeyParts::kPrompt | KeyParts::kPrefixDigest;
  if (!Has(router.policy().Needs(), kPromptParts)) return;
  std::map<std::string_view, uint64_t> sums;
  for (const auto& [reason, name] : kOutcomes) {
    const auto index = static_cast<size_t>(reason);
    sums[name] +=
        threads.Sum([index](const Telemetry::Shard& shard) { return shard.reasons[index].count(); });
  }
  for (const auto& [name, sum] : sums) {
    page->Add(sum, {{"policy", router.policy().name()}, {"stage", "regular"}, {"outcome", name}});
  }
}

}  // namespace

// Members of the fleet, then recently removed workers whose URL is not back.
std::vector<std::shared_ptr<const Worker>> ShownWorkers::Of(const FleetView& fleet, int64_t now_ns) {
  std::set<const Worker*> members;
  std::set<std::string_view> urls;
  std::vector<std::shared_ptr<const Worker>> workers;
  for (const FleetView::Member& member : fleet.members()) {
    members.insert(member.worker.get());
    urls.insert(member.worker->url.url);
    workers.push_back(member.worker);
  }
  MutexLock lock(mutex_);
  for (Shown& shown : shown_) {
    if (members.erase(shown.worker.get()) == 0 && shown.gone_ns == Shown::kServes) shown.gone_ns = now_ns;
  }
  std::erase_if(shown_, [now_ns, &urls](const Shown& shown) {
    return shown.gone_ns != Shown::kServes &&
           (now_ns - shown.gone_ns >= kRemovedNanos || urls.contains(shown.worker->url.url));
  });
  for (const Shown& shown : shown_) {
    if (shown.gone_ns != Shown::kServes) workers.push_back(shown.worker);
  }
  for (const FleetView::Member& member : fleet.members()) {
    if (members.contains(member.worker.get())) shown_.push_back({.worker = member.worker});
  }
  return workers;
}

void WriteWorkers(
    const TelemetrySums& threads, const Router& router, const FleetView& fleet,
    const std::vector<std::shared_ptr<const Worker>>& workers, int64_t now_ns, MetricsPage* page) {
  std::vector<WorkerSum> sums(workers.size());
  for (const Telemetry* telemetry : threads.all()) {
    const WorkerCounterMap& counters = telemetry->shard().workers;
    MutexLock lock(counters.mutex);
    for (size_t i = 0; i < workers.size(); ++i) {
      if (const WorkerCounters* tallies = counters.Find(workers[i]->id)) sums[i].Add(*tallies);
    }
  }
  // Zeros are shown, so that a rate starts when the worker does.
  const auto each = [&](uint64_t WorkerSum::*count) {
    for (size_t i = 0; i < workers.size(); ++i) page->Add(sums[i].*count, {{"worker", workers[i]->url.url}});
  };
  const auto outcome = [&](uint64_t WorkerSum::*count, std::string_view name) {
    for (size_t i = 0; i < workers.size(); ++i)
      page->Add(sums[i].*count, {{"outcome", name}, {"worker", workers[i]->url.url}});
  };
  page->Counter("policy_decisions_total", "Policy decisions that chose the worker.");
  for (size_t i = 0; i < workers.size(); ++i) {
    page->Add(
        sums[i].decisions,
        {{"policy", router.policy_of(workers[i]->stage).name()}, {"worker", workers[i]->url.url}});
  }
  page->Counter("decision_reasons_total", "Policy decisions by reason.");
  for (size_t reason = 0; reason < kReasonCount; ++reason) {
    page->AddUnlessZero(
        threads.Sum([reason](const Telemetry::Shard& shard) { return shard.reasons[reason].count(); }),
        {{"policy", router.policy().name()}, {"reason", ReasonName(static_cast<Reason>(reason))}});
  }
  WritePrefixDecisions(threads, router, page);
  router.ExpireTickets();
  page->Counter("tickets_expired_total", "Tickets of the embedding program whose lease expired.");
  page->Add(router.leases()->expired());
  page->Counter("processed_requests_total", "Exchanges whose request was sent to the worker.");
  each(&WorkerSum::processed);
  page->Counter("failed_attempts_total", "Failed attempts at the worker that were followed by a retry.");
  each(&WorkerSum::failed_attempts);
  page->AddFormerName("failed_tries_total");
  page->Counter(
      "worker_responses_total",
      "Attempts at the worker by the status of its response: 401, 403, 404 and 429, others by class (2xx, "
      "4xx, 5xx), none without one.");
  for (size_t i = 0; i < workers.size(); ++i) {
    for (size_t code = 0; code < kResponseCodeCount; ++code) {
      page->AddUnlessZero(
          sums[i].responses[code],
          {{"code", ResponseCodeName(static_cast<ResponseCode>(code))}, {"worker", workers[i]->url.url}});
    }
  }
  page->Counter(
      "cb_outcomes_total", "Outcomes recorded by the worker's circuit breaker: success or failure.");
  outcome(&WorkerSum::breaker_successes, "success");
  outcome(&WorkerSum::breaker_failures, "failure");
  page->Counter(
      "server_errors_total",
      "5xx responses of the worker (not 501, 505, and 503 with Retry-After) by whose fault they are: worker "
      "(counts against its breaker), request (other workers responded likewise) or unclear (no other was "
      "used and the worker does no worse than the fleet).");
  for (size_t i = 0; i < workers.size(); ++i) {
    for (size_t blame = 0; blame < kErrorBlameCount; ++blame) {
      page->Add(
          sums[i].server_errors[blame],
          {{"blame", ErrorBlameName(static_cast<ErrorBlame>(blame))}, {"worker", workers[i]->url.url}});
    }
  }
  if (fleet.stages() != nullptr) {
    page->Counter(
        "pd_bootstrap_queries_total",
        "Queries of a Mooncake prefill worker's bootstrap server: ok, no_id (of its rank), unreachable or "
        "invalid (not 200, longer than 1 MiB, no JSON object).");
    for (size_t i = 0; i < workers.size(); ++i) {
      for (size_t result = 0; result < kBootstrapResultCount; ++result) {
        page->AddUnlessZero(
            sums[i].bootstrap_queries[result],
            {{"result", BootstrapResultName(static_cast<BootstrapResult>(result))},
             {"worker", workers[i]->url.url}});
      }
    }
  }
  page->Counter(
      "cb_state_transitions_total",
      "State transitions of the worker's circuit breaker between closed, open and half_open.");
  for (size_t i = 0; i < workers.size(); ++i) {
    for (size_t from = 0; from < kBreakerStateCount; ++from) {
      for (size_t to = 0; to < kBreakerStateCount; ++to) {
        page->AddUnlessZero(
            sums[i].breaker_transitions[from][to],
            {{"worker", workers[i]->url.url},
             {"from", BreakerStateName(static_cast<BreakerState>(from))},
             {"to", BreakerStateName(static_cast<BreakerState>(to))}});
      }
    }
  }
  page->Gauge("cb_state", "The worker's circuit breaker: 0 closed, 1 open, 2 half-open.");
  for (const FleetView::Member& member : fleet.members()) {
    page->Add(static_cast<int>(member.worker->breaker.state()), {{"worker", member.worker->url.url}});
  }
  page->Counter(
      "outlier_ejections_overflow_total",
      "Failures (5xx, lost connections, timeouts) that opened no circuit breaker because half of all "
      "workers' breakers were open.");
  page->Add(threads.Total(&Telemetry::ejections_overflow));
  page->Counter(
      "panic_requests_total",
      "Attempts sent in panic mode, when no worker's circuit breaker admitted requests.");
  page->Add(threads.Total(&Telemetry::panic_requests));
  page->Gauge(
      "worker_in_doubt",
      "1 while the worker gets no new requests because it accepts requests and does not serve them, else 0.");
  for (const FleetView::Member& member : fleet.members()) {
    page->Add(member.in_doubt ? 1 : 0, {{"worker", member.worker->url.url}});
  }
  page->Counter("worker_doubts_total", "Times that the worker came into doubt (worker_in_doubt).");
  for (const FleetView::Member& member : fleet.members()) {
    page->Add(member.worker->doubts.load(std::memory_order_relaxed), {{"worker", member.worker->url.url}});
  }
  page->Counter(
      "moved_requests_total",
      "Requests without a byte of a response that were sent to another worker since theirs was in doubt.");
  page->Add(threads.Total(&Telemetry::requests_moved));
  page->Gauge(
      "worker_overloaded",
      "1 while the worker is passed over because its load poll exceeds --exclude-waiting-above or "
      "--exclude-kv-above, else 0.");
  for (const FleetView::Member& member : fleet.members()) {
    page->Add(member.overloaded ? 1 : 0, {{"worker", member.worker->url.url}});
  }
  page->Gauge(
      "worker_backoff",
      "1 while the worker is in back-off because it sent Retry-After, so that other workers are preferred; "
      "else 0.");
  for (const FleetView::Member& member : fleet.members()) {
    const bool rests = member.worker->backoff.ActiveAt(now_ns);
    page->Add(rests ? 1 : 0, {{"worker", member.worker->url.url}});
  }
  page->AddFormerName("worker_rests");
  page->Gauge(
      "worker_slow_start_factor", "Share of its weight that the worker has: below 1 during its slow start.");
  for (const FleetView::Member& member : fleet.members()) {
    page->Add(
        static_cast<double>(member.worker->slow_start_factor.load(std::memory_order_relaxed)) / kWeightOne,
        {{"worker", member.worker->url.url}});
  }
  page->AddFormerName("worker_warmth");
  page->Counter(
      "prompt_tokens_total",
      "Prompt tokens, as reported in the worker's responses; more than 1,000,000,000 in one are not counted, "
      "here and below.");
  each(&WorkerSum::prompt_tokens);
  page->Counter("completion_tokens_total", "Generated tokens, as reported in the worker's responses.");
  each(&WorkerSum::completion_tokens);
  page->Counter(
      "cached_tokens_total",
      "Prompt tokens found in the worker's cache, as reported in its responses: streams report them only "
      "with stream_options.include_usage, vLLM only with --enable-prompt-tokens-details.");
  each(&WorkerSum::cached_tokens);

  const auto times = [&](TimeSum<buckets::kWorkerWait> WorkerSum::Times::*member) {
    for (size_t route = 0; route < kNamedRoutes; ++route) {
      for (size_t i = 0; i < workers.size(); ++i) {
        if (sums[i].times[route] == nullptr) continue;
        const TimeSum<buckets::kWorkerWait>& sum = *sums[i].times[route].*member;
        if (sum.count() == 0) continue;
        sum.AddTo(page, {{"route", RouteLabel(route)}, {"worker", workers[i]->url.url}});
      }
    }
  };
  page->Histogram(
      "ttft_seconds",
      "Time to first token of streams with status 2xx: from a request's complete head to the first byte of "
      "the body.");
  times(&WorkerSum::Times::first_token);
  page->Histogram(
      "upstream_head_seconds",
      "Time from the first byte sent to the worker to the complete head of its response.");
  times(&WorkerSum::Times::head);
}

void WriteFleet(const TelemetrySums& threads, const FleetView& fleet, MetricsPage* page) {
  page->Gauge("active_workers", "Workers in the fleet.");
  page->Add(fleet.members().size());
  page->Gauge(
      "eligible_workers",
      "Workers that may be chosen now: healthy, not draining, circuit breaker not open, not in "
      "doubt.");
  page->Add(fleet.eligible().size());

  const auto each = [&](const auto& value) {
    for (const FleetView::Member& member : fleet.members()) {
      page->Add(value(member), {{"worker", member.worker->url.url}});
    }
  };
  const auto load = [](const FleetView::Member& member) { return member.worker->load.open_requests(); };
  page->Gauge("worker_info", "Always 1; worker_type has the worker's stage: regular, prefill or decode.");
  for (const FleetView::Member& member : fleet.members()) {
    page->Add(1, {{"worker", member.worker->url.url}, {"worker_type", StageName(member.worker->stage)}});
  }
  page->Gauge("worker_health", "1 while the worker is healthy, else 0.");
  each([](const FleetView::Member& member) { return member.healthy ? 1 : 0; });
  page->Gauge(
      "worker_load",
      "Load of the worker as policies compare it: its open and remote requests divided by its weight.");
  each([](const FleetView::Member& member) {
    return static_cast<double>(member.worker->load.requests()) * kWeightOne / member.worker->weight;
  });
  page->Gauge(
      "running_requests",
      "Open requests of the worker through this router, those of Router.select() in the process included.");
  each(load);
  page->Gauge(
      "waiting_requests", "Open requests of the worker through this router that have no first token yet.");
  each([](const FleetView::Member& member) { return member.worker->load.own_waiting(); });
  page->Gauge(
      "remote_requests",
      "Requests of the worker that came through other routers, or through others as reported at its last "
      "load poll.");
  each([](const FleetView::Member& member) { return member.worker->load.remote_requests(); });
  page->Gauge(
      "remote_waiting_requests",
      "Waiting requests of the worker that came through others, where its load polls report waiting "
      "requests.");
  each([](const FleetView::Member& member) { return member.worker->load.remote_waiting(); });
  page->Gauge(
      "worker_bytes_per_token",
      "Bytes of a prompt per token: 4 at first, then a mean by usage in responses; token ids count as 4.");
  each([](const FleetView::Member& member) { return member.worker->bytes_per_token.value(); });
  page->Counter("load_polls_total", "Load polls sent to hosts: ok or failed.");
  page->Add(threads.Total(&Telemetry::load_polls, &ResultCounts::ok), {{"result", "ok"}});
  page->Add(threads.Total(&Telemetry::load_polls, &ResultCounts::failed), {{"result", "failed"}});

  int64_t maximum = 0, minimum = 0;
  bool first = true;
  for (const uint32_t position : fleet.eligible()) {
    const int64_t open = fleet.worker(position).load.open_requests();
    maximum = first ? open : std::max(maximum, open);
    minimum = first ? open : std::min(minimum, open);
    first = false;
  }
  page->Gauge("max_load", "Largest number of open requests of an eligible worker.");
  page->Add(maximum);
  page->Gauge("min_load", "Smallest number of open requests of an eligible worker.");
  page->Add(minimum);
}

}  // namespace vllm_router
