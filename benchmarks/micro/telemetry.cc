// What does it cost to remember an exchange: to count it, to write its access line, its record, its receipt or its spans as
// well; and what does a scrape cost while there are many workers? The checksums say that what was measured was also done.
#include "proxy/telemetry/telemetry.h"

#include <memory>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "base/clock.h"
#include "base/log.h"
#include "conditions/recent_outcomes.h"
#include "proxy/admin/metrics.h"
#include "proxy/telemetry/access_log_line.h"
#include "proxy/telemetry/telemetry_shard.h"
#include "proxy/telemetry/traffic_log_line.h"
#include "proxy/thread/server_limits.h"
#include "proxy/tracing/request_spans.h"
#include "receipts/receipt_log.h"
#include "routing/router.h"

namespace vllm_router {
namespace {

constexpr int64_t kMs = 1'000'000;
constexpr size_t kLinesPerFlush = 1000;

std::shared_ptr<Router> MakeRouter(int64_t workers) {
  RouterOptions options;
  options.policy.policy = "round_robin";
  for (int64_t i = 0; i < workers; ++i)
    options.worker_urls.push_back("http://10.0.0.1:" + std::to_string(8000 + i));
  return *Router::Create(options);
}

// A streamed chat, as it ends.
RequestInfo Chat(const FleetView& fleet, size_t worker) {
  RequestInfo record;
  record.wall_us = 1'795'258'237'123'456;
  record.head_ns = 1000 * kMs;
  record.body_ns = record.head_ns + 20'000;
  record.chosen_ns = record.body_ns + 1'500;
  record.connected_ns = record.chosen_ns + 300;
  record.sent_ns = record.connected_ns + 4'000;
  record.responded_ns = record.sent_ns + 31 * kMs;
  record.first_body_ns = record.responded_ns + 100;
  record.end_ns = record.responded_ns + 1200 * kMs;
  record.request_id = "chatcmpl-4YPokyhFHavqvgd9aBquj04Q";
  record.client = "10.1.22.33";
  record.method = "POST";
  record.path = "/v1/chat/completions";
  record.route = Route::kChatCompletions;
  record.stream = true;
  record.status = 200;
  record.worker = fleet.members()[worker].worker;
  record.decision = Decision{.worker = record.worker->id, .reason = Reason::kSessionHash};
  record.attempts = 1;
  record.reused = true;
  record.bytes_in = 4096;
  record.bytes_out = 32'000;
  record.prompt_tokens = 1024;
  record.completion_tokens = 160;
  record.cached_tokens = 960;
  return record;
}

void BM_RecorderRecord(benchmark::State& state) {
  const std::shared_ptr<Router> router = MakeRouter(state.range(0));
  const auto fleet = router->fleet();
  std::vector<RequestInfo> records;
  for (size_t i = 0; i < fleet->members().size(); ++i) records.push_back(Chat(*fleet, i));
  Telemetry recorder(router->policy().name(), {});
  size_t next = 0;
  for (auto _ : state) {
    const RequestInfo& record = records[next];
    next = next + 1 == records.size() ? 0 : next + 1;
    recorder.Decided(record.worker, *record.decision);
    recorder.Record(record);
  }
  const uint64_t counted = recorder.shard().successes[static_cast<size_t>(Route::kChatCompletions)].count();
  if (counted != static_cast<uint64_t>(state.iterations()))
    state.SkipWithError("an exchange was not counted");
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(BM_RecorderRecord)->ArgName("workers")->Arg(1)->Arg(64);

void BM_AccessLine(benchmark::State& state) {
  const std::shared_ptr<Router> router = MakeRouter(1);
  const RequestInfo record = Chat(*router->fleet(), 0);
  const bool json = state.range(0) != 0;
  AccessLogLine line("consistent_hash");
  std::string lines;
  size_t bytes = 0;
  size_t count = 0;
  for (auto _ : state) {
    json ? line.AppendJson(record, 1, &lines) : line.AppendText(record, 1, &lines);
    if (++count % kLinesPerFlush == 0) {
      bytes += lines.size();
      lines.clear();
    }
  }
  bytes += lines.size();
  if (bytes % count != 0) state.SkipWithError("the same exchange made lines of different lengths");
  state.counters["line_bytes"] = static_cast<double>(bytes / count);
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(BM_AccessLine)->ArgName("json")->Arg(0)->Arg(1);

void BM_RecordLine(benchmark::State& state) {
  const std::shared_ptr<Router> router = MakeRouter(1);
  RequestInfo record = Chat(*router->fleet(), 0);
  const auto blocks = static_cast<size_t>(state.range(0));
  record.prompt_tokens = blocks * 16;
  record.prompt = std::make_unique<PromptReading>(PromptReading{.session_key = "user:ann"});
  for (size_t i = 0; i < blocks; ++i) record.prompt->blocks.push_back(i * 0x9e3779b97f4a7c15);
  TrafficLogLine line(KeyedHash::Key{}, 16);
  std::string lines;
  size_t bytes = 0;
  for (auto _ : state) {
    line.Append(record, &lines);
    bytes += lines.size();
    lines.clear();
  }
  if (bytes % static_cast<size_t>(state.iterations()) != 0)
    state.SkipWithError("the same exchange made lines of different lengths");
  state.counters["line_bytes"] = static_cast<double>(bytes / static_cast<size_t>(state.iterations()));
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(blocks));
}
BENCHMARK(BM_RecordLine)->ArgName("blocks")->Arg(0)->Arg(64)->Arg(1024);

ReceiptFacts FactsOf(const RequestInfo& record) {
  return {
      .request_id = record.request_id,
      .model = "qwen3-32b",
      .policy = "auto",
      .route = "/v1/chat/completions",
      .end = "done",
      .worker = record.worker.get(),
      .decision = &*record.decision,
      .block_tokens = 16,
      .prompt_tokens = record.prompt_tokens,
      .cached_tokens = record.cached_tokens,
      .wall_us = record.wall_us,
      .decision_ns = record.chosen_ns - record.body_ns,
      .first_token_ns = record.first_body_ns - record.head_ns,
      .total_ns = record.end_ns - record.head_ns,
      .status = record.status,
      .attempts = 1};
}

// Candidates: one request in 16 keeps a list of 16 of them.
void BM_Receipt(benchmark::State& state) {
  const std::shared_ptr<Router> router = MakeRouter(64);
  std::vector<RequestInfo> records;
  auto explanation = std::make_shared<Explanation>();
  for (size_t i = 0; i < 64; ++i) {
    records.push_back(Chat(*router->fleet(), i));
    explanation->candidates.push_back({.worker = records[i].worker->id, .url = records[i].worker->url.url});
  }
  const auto every = static_cast<uint32_t>(state.range(0));
  ReceiptLog log(1, {.per_thread = 8192, .candidates_every = every});
  ReceiptWriter& writer = log.writer(0);
  size_t next = 0;
  for (auto _ : state) {
    RequestInfo& record = records[next];
    next = next + 1 == records.size() ? 0 : next + 1;
    record.decision->explanation = writer.TakeTurn() ? explanation : nullptr;
    writer.Write(FactsOf(record));
  }
  if (writer.ring().added() != static_cast<uint64_t>(state.iterations()))
    state.SkipWithError("a receipt was not written");
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(BM_Receipt)->ArgName("candidates_every")->Arg(0)->Arg(16);

void BM_RecentOutcome(benchmark::State& state) {
  RecentOutcomes outcomes;
  int64_t now = 0;
  uint64_t worker = 0;
  for (auto _ : state) {
    now += 20'000;
    outcomes.Add(
        static_cast<WorkerId>(worker++ % 64), "qwen3-32b",
        {.status = 200, .error = {}, .is_stream = true, .head_ns = 31 * kMs}, now);
  }
  OutcomeSums sums;
  outcomes.AddTo(&sums, now);
  if (sums.empty()) state.SkipWithError("no outcome was counted");
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(BM_RecentOutcome);

void BM_RequestSpans(benchmark::State& state) {
  const std::shared_ptr<Router> router = MakeRouter(1);
  RequestInfo record = Chat(*router->fleet(), 0);
  record.trace = std::make_unique<RequestTrace>();
  record.attempts_made.push_back(
      {.worker = record.worker, .chosen_ns = record.chosen_ns, .end_ns = record.end_ns, .status = 200});
  std::string bytes;
  size_t count = 0;
  for (auto _ : state) {
    bytes.clear();
    count += WriteRequestSpans(
        {.info = record,
         .request_id = record.request_id,
         .client = record.client,
         .policy = "auto",
         .block_size = 16,
         .conversations = nullptr},
        &bytes);
  }
  if (count != 2 * static_cast<size_t>(state.iterations())) state.SkipWithError("a span was not written");
  state.counters["bytes"] = static_cast<double>(bytes.size());
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(BM_RequestSpans);

// Five lanes, and every worker has served three routes on each.
void BM_MetricsText(benchmark::State& state) {
  const std::shared_ptr<Router> router = MakeRouter(state.range(0));
  const auto fleet = router->fleet();
  std::vector<std::unique_ptr<Telemetry>> recorders;
  std::vector<const Telemetry*> views;
  for (int lane = 0; lane < 5; ++lane) {
    recorders.push_back(std::make_unique<Telemetry>(router->policy().name(), Logs{}));
    views.push_back(recorders.back().get());
    for (size_t worker = 0; worker < fleet->members().size(); ++worker) {
      for (const Route route : {Route::kChatCompletions, Route::kCompletions, Route::kEmbeddings}) {
        RequestInfo record = Chat(*fleet, worker);
        record.route = route;
        recorders.back()->Record(record);
      }
    }
  }
  const ManualClock clock;
  const ServerLimits gates{ServerOptions()};
  const Metrics metrics(router, views, gates, clock);
  size_t bytes = 0;
  for (auto _ : state) bytes += metrics.Text().size();
  state.counters["page_bytes"] = static_cast<double>(bytes) / static_cast<double>(state.iterations());
}
BENCHMARK(BM_MetricsText)->ArgName("workers")->Arg(4)->Arg(64)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace vllm_router
