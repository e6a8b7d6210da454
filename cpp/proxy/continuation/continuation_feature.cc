#include "proxy/continuation/continuation_feature.h"

#include <map>
#include <memory>
#include <string_view>
#include <vector>

#include "continuation/eligibility.h"
#include "proxy/admin/feature.h"
#include "proxy/admin/telemetry_sums.h"
#include "proxy/api/server_options.h"
#include "proxy/continuation/thread_continuation.h"
#include "proxy/control/services.h"
#include "proxy/telemetry/metrics_page.h"
#include "proxy/thread/io_thread.h"
#include "proxy/thread/server_limits.h"

namespace vllm_router {
namespace {

// What another run may follow, and why none does.
constexpr StreamCut kFollowed[] = {StreamCut::kLost,    StreamCut::kDead, StreamCut::kServerError,
                                   StreamCut::kAborted, StreamCut::kIdle, StreamCut::kDrained,
                                   StreamCut::kStalled};
constexpr ContinueMethod kUsed[] = {ContinueMethod::kRerun, ContinueMethod::kTokens};
constexpr std::string_view kReasons[] = {"no_worker",  "diverged", "retries", "wait",   "suspected",
                                         "lost_again", "max",      "settle",  "receipt"};
constexpr std::string_view kHandOverEnds[] = {"moved",     "first_ended", "first_spoke", "diverged",
                                              "no_worker", "retries",     "failed",      "client_gone"};

// The counters of all threads.
using Threads = std::vector<const ThreadContinuation*>;

void WriteHandOvers(const Threads& threads, MetricsPage* page) {
  page->Counter(
      "stream_handovers_total",
      "Second runs of streams beside a worker that drained (drain) or was silent (stall), by how they "
      "ended: moved (the second run finishes the stream), first_ended, first_spoke, diverged, no_worker, "
      "retries, failed or client_gone (--continue-drain-secs, --continue-stall-secs).");
  const auto write = [&](std::string_view why, LabeledCounters ThreadContinuation::*counters) {
    std::map<std::string_view, uint64_t> ends;
    for (const std::string_view end : kHandOverEnds) ends[end] = 0;
    for (const ThreadContinuation* const thread : threads) {
      (thread->*counters).ForEach([&ends](std::string_view end, uint64_t count) { ends[end] += count; });
    }
    for (const auto& [end, count] : ends) page->Add(count, {{"why", why}, {"end", end}});
  };
  write("drain", &ThreadContinuation::drain_handovers);
  write("stall", &ThreadContinuation::stall_handovers);
}

void WriteMetrics(const Threads& threads, const ContinueMemory& memory, MetricsPage* page) {
  page->Counter(
      "streams_continued_total",
      "Event streams that another worker finished, by what ended the first one: lost, dead, idle, "
      "server_error, aborted, drained or stalled; and by the last method, rerun or tokens "
      "(--continue-streams).");
  for (const StreamCut cut : kFollowed) {
    for (const ContinueMethod method : kUsed) {
      uint64_t count = 0;
      for (const ThreadContinuation* const thread : threads) {
        count += thread->continued[static_cast<size_t>(cut)][static_cast<size_t>(method)].count();
      }
      page->Add(count, {{"why", StreamCutName(cut)}, {"method", ContinueMethodName(method)}});
    }
  }
  std::map<std::string_view, uint64_t> cut;
  for (const std::string_view why : kReasons) cut[why] = 0;
  uint64_t without_memory = 0;
  uint64_t waiting = 0;
  uint64_t recomputed = 0;
  TimeSum<buckets::kDuration> gap;
  for (const ThreadContinuation* const thread : threads) {
    thread->cut.ForEach([&cut](std::string_view why, uint64_t count) { cut[why] += count; });
    without_memory += thread->without_memory.count();
    waiting += thread->waiting.load(std::memory_order_relaxed);
    recomputed += thread->recomputed.count();
    gap.Add(&thread->gap);
  }
  page->Counter(
      "streams_cut_total",
      "Event streams that should have gone on at another worker and did not: no_worker, diverged, retries, "
      "wait, suspected, lost_again, max, settle (no place was found where its token ids and its text end "
      "alike) or "
      "receipt (an engine did not take the token ids).");
  for (const auto& [why, count] : cut) page->Add(count, {{"why", why}});
  page->Histogram(
      "continue_gap_seconds",
      "The longest time for which a client had nothing new of a stream that another worker finished.");
  gap.AddTo(page);
  page->Counter(
      "continue_recomputed_tokens_total",
      "Generated tokens that were part of a prompt when their stream went on by its token ids.");
  page->Add(recomputed);
  page->Gauge(
      "continue_waiting",
      "Event streams that wait for a place at another worker, as all that may have them are at "
      "--max-worker-requests (--continue-wait-secs).");
  page->Add(waiting);
  page->Gauge(
      "continue_memory_bytes", "Memory that is held for streams that may go on (--continue-memory-mb).");
  page->Add(memory.bytes());
  page->Counter(
      "streams_not_remembered_total",
      "Event streams that may not go on since --continue-memory-mb was reached when they began.");
  page->Add(without_memory);
  WriteHandOvers(threads, page);
}

Status Add(const ServerParts& server) {
  ContinueMemory& memory =
      *server.limits.features.Own(std::make_unique<ContinueMemory>(server.options.continue_memory_bytes));
  Threads threads;
  for (const std::unique_ptr<IoThread>& thread : server.threads) {
    threads.push_back(thread->features.Own(std::make_unique<ThreadContinuation>(memory)));
  }
  server.services.AddMetrics([threads, &memory](MetricsPage* page) { WriteMetrics(threads, memory, page); });
  return absl::OkStatus();
}

}  // namespace

extern constexpr Feature kContinuationFeature = {.name = "continuation", .add = &Add};

}  // namespace vllm_router
