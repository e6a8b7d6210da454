#include "proxy/admin/exchange_metrics.h"

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "proxy/admin/telemetry_sums.h"
#include "proxy/api/routes.h"
#include "routing/router.h"
#include "routing/token_cache.h"

namespace vllm_router {
namespace {

uint64_t CountTokenized(
    const TelemetrySums& threads, TokenizeCounts::ByEnd TokenizeCounts::*calls, size_t end) {
  uint64_t sum = 0;
  for (const Telemetry* telemetry : threads.all()) {
    sum += (telemetry->tokenizing.*calls)[end].load(std::memory_order_relaxed);
  }
  return sum;
}

}  // namespace

void WriteExchanges(const TelemetrySums& threads, MetricsPage* page) {
  page->Counter("requests_total", "Requests to workers that got a complete 2xx response.");
  for (size_t route = 0; route < RoutesSoFar(); ++route) {
    page->AddUnlessZero(
        threads.Sum([route](const Telemetry::Shard& shard) { return shard.successes[route].count(); }),
        {{"route", RouteLabel(route)}});
  }

  page->Counter(
      "request_errors_total",
      "Requests to workers that got no complete 2xx response: no_available_workers, the code of the router's "
      "error, the end of the exchange, or non_retryable_error for a worker's own response.");
  for (size_t route = 0; route < RoutesSoFar(); ++route) {
    for (const auto& [name, count] :
         threads.SumNames([route](const Telemetry::Shard& shard) { return shard.errors[route].Find(); })) {
      page->AddUnlessZero(count, {{"route", RouteLabel(route)}, {"error_type", name}});
    }
  }

  // Summed first, since the embeddings' errors are read from it too.
  std::vector<std::array<uint64_t, StatusCounters::kCount>> statuses(kRouteCount);
  for (const Telemetry* telemetry : threads.all()) {
    for (size_t route = 0; route < RoutesSoFar(); ++route) {
      const StatusCounters* tallies = telemetry->shard().statuses[route].Find();
      if (tallies == nullptr) continue;
      for (int i = 0; i < StatusCounters::kCount; ++i) {
        statuses[route][static_cast<size_t>(i)] += (*tallies)[StatusCounters::kFirst + i].count();
      }
    }
  }
  page->Counter("http_responses_total", "Responses to clients, including the router's own, by status code.");
  for (size_t route = 0; route < RoutesSoFar(); ++route) {
    for (int i = 0; i < StatusCounters::kCount; ++i) {
      page->AddUnlessZero(
          statuses[route][static_cast<size_t>(i)],
          {{"route", RouteLabel(route)}, {"code", std::to_string(StatusCounters::kFirst + i)}});
    }
  }

  page->Counter(
      "exchange_end_total",
      "Exchanges (a request with its response) by how they ended; each is counted once.");
  for (size_t route = 0; route < RoutesSoFar(); ++route) {
    for (size_t end = 0; end < kExchangeEndCount; ++end) {
      page->AddUnlessZero(
          threads.Sum([route, end](const Telemetry::Shard& shard) { return shard.ends[route][end].count(); }),
          {{"route", RouteLabel(route)}, {"end", ExchangeEndName(static_cast<ExchangeEnd>(end))}});
    }
  }

  page->Counter(
      "bad_requests_total",
      "Requests rejected because their head violates a rule of HTTP: syntax, line_ending, transfer_encoding, "
      "content_length, folding, host, target, too_large, connection, version, method, expect, or tls (TLS on "
      "a plain port).");
  for (const auto& [name, count] :
       threads.SumNames([](const Telemetry::Shard& shard) { return &shard.bad_requests; })) {
    page->AddUnlessZero(count, {{"reason", name}});
  }

  constexpr auto kEmbeddings = static_cast<size_t>(Route::kEmbeddings);
  page->Counter("embeddings_total", "Embeddings requests that got a complete 2xx response.");
  page->Add(threads.Sum([](const Telemetry::Shard& shard) { return shard.successes[kEmbeddings].count(); }));
  page->Counter(
      "embeddings_errors_total",
      "Embeddings requests that got no complete 2xx response: http_ and the status, or the end of a good "
      "response that was cut.");
  for (int i = 0; i < StatusCounters::kCount; ++i) {
    const int status = StatusCounters::kFirst + i;
    if (status >= 200 && status < 300) continue;
    page->AddUnlessZero(
        statuses[kEmbeddings][static_cast<size_t>(i)], {{"error_type", "http_" + std::to_string(status)}});
  }
  for (size_t end = 0; end < kExchangeEndCount; ++end) {
    page->AddUnlessZero(
        threads.Sum([end](const Telemetry::Shard& shard) { return shard.embeddings_cut[end].count(); }),
        {{"error_type", ExchangeEndName(static_cast<ExchangeEnd>(end))}});
  }
}

void WriteRetries(const TelemetrySums& threads, MetricsPage* page) {
  const auto by_route = [&](std::array<Counter, kRouteCount> Telemetry::Shard::*tallies) {
    for (size_t route = 0; route < RoutesSoFar(); ++route) {
      page->AddUnlessZero(
          threads.Sum(
              [route, tallies](const Telemetry::Shard& shard) { return (shard.*tallies)[route].count(); }),
          {{"route", RouteLabel(route)}});
    }
  };
  page->Counter("retries_total", "Retries of requests after a failed attempt.");
  by_route(&Telemetry::Shard::retries);
  page->Counter("retries_exhausted_total", "Requests whose last allowed attempt failed.");
  by_route(&Telemetry::Shard::retries_exhausted);
  page->Histogram(
      "retry_backoff_duration_seconds",
      "Back-off before a retry, by the number of the retry; 8: all further ones.");
  for (size_t i = 0; i < Telemetry::Shard::kBackoffs; ++i) {
    TimeSum<buckets::kDuration> sum;
    for (const Telemetry* telemetry : threads.all()) sum.Add(telemetry->shard().backoffs[i].Find());
    if (sum.count() == 0) continue;
    sum.AddTo(page, {{"attempt", std::to_string(i + 1)}});
  }
}

void WriteTimes(const TelemetrySums& threads, MetricsPage* page) {
  page->Histogram(
      "request_duration_seconds",
      "Time from a request's head to the end of its exchange, of all requests to workers.");
  for (size_t route = 0; route < RoutesSoFar(); ++route) {
    TimeSum<buckets::kDuration> sum;
    for (const Telemetry* telemetry : threads.all()) sum.Add(telemetry->shard().durations[route].Find());
    if (sum.count() != 0) sum.AddTo(page, {{"route", RouteLabel(route)}});
  }

  const auto plain = [&](auto Telemetry::Shard::*member) {
    const auto total = [&]<const auto & kBounds>(const Histogram<kBounds>&) {
      TimeSum<kBounds> sum;
      for (const Telemetry* telemetry : threads.all()) sum.Add(&(telemetry->shard().*member));
      return sum;
    };
    total(threads.all().front()->shard().*member).AddTo(page);
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
      "Time that the router adds: from the complete request body (streamed: from the decision) to its first "
      "byte written to the worker. The policy and a new connection count, waits for the client or in the "
      "queue do not.");
  plain(&Telemetry::Shard::overhead);
}

void WriteTokenizing(const TelemetrySums& threads, const Router& router, MetricsPage* page) {
  const TokenCache* cache = router.token_cache();
  if (cache == nullptr || !router.tokenizes()) return;
  page->Counter(
      "tokenize_calls_total",
      "Requests to workers for the token ids of a text: ok, timeout, failed (no connection, 5xx, another "
      "form), refused (the request's fault), unknown (the worker has no such call), gone (the client left), "
      "nobody (every worker in back-off or busy).");
  for (size_t end = 0; end < kTokenizeEndCount; ++end) {
    page->Add(
        CountTokenized(threads, &TokenizeCounts::calls, end),
        {{"result", TokenizeEndName(static_cast<TokenizeEnd>(end))}});
  }
  // vllm-project/router's name for it.
  page->Counter(
      "kv_routing_inputs_total",
      "Prompts whose token ids were requested from a worker: as tokenize_calls_total, with prepared for ok.");
  for (size_t end = 0; end < kTokenizeEndCount; ++end) {
    const auto ended = static_cast<TokenizeEnd>(end);
    page->Add(
        CountTokenized(threads, &TokenizeCounts::calls, end),
        {{"transport", "http"}, {"result", ended == TokenizeEnd::kOk ? "prepared" : TokenizeEndName(ended)}});
  }
  page->Counter(
      "background_tokenize_calls_total",
      "Requests for the token ids of the next turn's prompt, sent while a worker responds: as "
      "tokenize_calls_total, with dropped (too many calls, back-off, or a prompt that cannot be sent) for "
      "the last two.");
  for (size_t end = 0; end < kTokenizeEndCount; ++end) {
    const auto ended = static_cast<TokenizeEnd>(end);
    if (ended == TokenizeEnd::kGone) continue;  // no client waits for it
    page->Add(
        CountTokenized(threads, &TokenizeCounts::background_calls, end),
        {{"result", ended == TokenizeEnd::kNobody ? "dropped" : TokenizeEndName(ended)}});
  }
  page->Counter("tokenize_wait_seconds_total", "Time that requests waited for token ids from a worker.");
  page->Add(threads.Total(&Telemetry::tokenizing, &TokenizeCounts::nanos) / 1e9);
  const TokenCache::Stats stats = cache->stats();
  page->Counter(
      "token_cache_lookups_total",
      "Lookups in the token cache, by how much of the text is known: whole, part or nothing.");
  page->Add(stats.whole, {{"known", "whole"}});
  page->Add(stats.partial, {{"known", "part"}});
  page->Add(stats.unknown, {{"known", "nothing"}});
  page->Counter("token_cache_evicted_total", "Texts evicted from the token cache because it was full.");
  page->Add(stats.evicted);
  page->Gauge("token_cache_entries", "Texts in the token cache.");
  page->Add(stats.entries);
  page->Gauge("token_cache_bytes", "Memory of the token ids in the token cache; at most 64 MiB.");
  page->Add(stats.bytes);
}

void WriteRemovedMembers(const TelemetrySums& threads, MetricsPage* page) {
  page->Counter(
      "pd_removed_members_total",
      "Members of clients' requests that steer transfers of KV blocks and were removed: kv_transfer_params, "
      "ec_transfer_params, bootstrap (all bootstrap_...), kv_hints, request_id (and rid), rank "
      "(data_parallel_rank and its kin).");
  const auto sums =
      threads.SumNames([](const Telemetry::Shard& shard) { return shard.stages.removed_members(); });
  for (const auto& [name, count] : sums) page->Add(count, {{"name", name}});
}

void WriteCacheControl(const TelemetrySums& threads, MetricsPage* page) {
  page->Counter(
      "cache_control_total",
      "Requests to /v1/messages under --anthropic-cache-control-injection: added (a marker), or why not: "
      "present (the client has one), limit (four in the body), no_text (in the system prompt), odd_names "
      "(spelled twice or with escapes), unreadable (no JSON object, or a very long list).");
  const auto sums =
      threads.SumNames([](const Telemetry::Shard& shard) { return shard.cache_control.Find(); });
  for (const auto& [result, count] : sums) page->Add(count, {{"result", result}});
}

void WriteConnections(const TelemetrySums& threads, MetricsPage* page) {
  using Shard = Telemetry::Shard;
  const auto sum = [&](Counter Shard::*member) {
    return static_cast<double>(threads.Sum([member](const Shard& shard) { return (shard.*member).count(); }));
  };

  page->Gauge(
      "in_flight",
      "Exchanges with workers in progress, including those whose request body is still arriving.");
  page->Add(threads.Total(&Telemetry::in_flight));

  page->Gauge("client_connections", "Open connections from clients, idle ones included, scrapers not.");
  page->Add(
      threads.Total(&Telemetry::connections, &ConnectionCounts::clients) -
      static_cast<double>(threads.all().back()->connections.clients.load(std::memory_order_relaxed)));
  page->Counter(
      "client_connections_rejected_total",
      "Client connections closed before they carried a request: max_connections (the limit), tls_handshake, "
      "or no_request (no byte within --client-head-timeout-secs).");
  page->Add(
      threads.Total(&Telemetry::connections, &ConnectionCounts::rejected), {{"reason", "max_connections"}});
  page->Add(
      threads.Total(&Telemetry::connections, &ConnectionCounts::tls_failures), {{"reason", "tls_handshake"}});
  page->Add(
      threads.Total(&Telemetry::connections, &ConnectionCounts::never_begun), {{"reason", "no_request"}});
  page->Counter(
      "client_connections_evicted_total",
      "Idle client connections closed at --max-connections to admit new ones.");
  page->Add(threads.Total(&Telemetry::connections, &ConnectionCounts::evicted));

  const double idle = threads.Total(&Telemetry::connections, &ConnectionCounts::upstream_idle);
  page->Gauge("upstream_connections", "Open connections to workers: active or idle.");
  page->Add(
      std::max(0.0, threads.Total(&Telemetry::connections, &ConnectionCounts::upstream_open) - idle),
      {{"state", "active"}});
  page->Add(idle, {{"state", "idle"}});
  page->Counter("upstream_connects_total", "Attempts to connect to a worker for an exchange: ok or failed.");
  page->Add(
      threads.Total(&Telemetry::connections, &ConnectionCounts::connects, &ResultCounts::ok),
      {{"result", "ok"}});
  page->Add(
      threads.Total(&Telemetry::connections, &ConnectionCounts::connects, &ResultCounts::failed),
      {{"result", "failed"}});
  page->Counter(
      "upstream_stale_retries_total",
      "Requests sent again because the worker had closed the idle connection they were sent on; no failure "
      "of the worker.");
  page->Add(sum(&Shard::stale_retries));

  page->Counter(
      "bytes_total",
      "Bytes of bodies, without heads and chunk framing. Side client: in are requests, out responses, the "
      "router's own included; side worker: out are requests, in responses.");
  page->Add(sum(&Shard::client_bytes_in), {{"side", "client"}, {"direction", "in"}});
  page->Add(sum(&Shard::client_bytes_out), {{"side", "client"}, {"direction", "out"}});
  page->Add(sum(&Shard::worker_bytes_in), {{"side", "worker"}, {"direction", "in"}});
  page->Add(sum(&Shard::worker_bytes_out), {{"side", "worker"}, {"direction", "out"}});
  page->Counter(
      "relay_stalls_total",
      "Times that relaying waited, by side: for a client to take its response, or a worker its request.");
  page->Add(sum(&Shard::client_stalls), {{"side", "client"}});
  page->Add(sum(&Shard::worker_stalls), {{"side", "worker"}});
  page->Counter(
      "sse_keepalives_total",
      "Comments sent to clients that waited for a stream (--sse-keepalive-secs) or for more of one "
      "(--continue-keepalive-secs).");
  page->Add(sum(&Shard::sse_keepalives));
}

}  // namespace vllm_router
