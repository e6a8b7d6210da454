#include "proxy/tracing/trace_exporter.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "base/log.h"
#include "base/text.h"
#include "base/time_units.h"
#include "base/version.h"
#include "http/head.h"
#include "proxy/telemetry/metrics_page.h"
#include "proxy/thread/io_thread.h"
#include "proxy/tracing/thread_tracer.h"
#include "routing/retry_plan.h"
#include "tracing/span_writer.h"

namespace vllm_router {
namespace {

constexpr int64_t kIntervalNanos = kNanosPerSecond;
constexpr int64_t kTimeoutMs = 10'000;
constexpr int64_t kFlushMs = 2'000;
constexpr std::array<int64_t, 3> kPausesMs = {1'000, 2'000, 4'000};
constexpr int64_t kLongestPauseMs = 30'000;  // that a collector may ask for
constexpr int64_t kWarnAgainNanos = 60 * kNanosPerSecond;
constexpr size_t kMaxResponseBytes = 64 << 10;
constexpr size_t kMaxShown = 200;  // bytes of what a collector says

bool IsWorthRetrying(int status) { return status == 429 || status == 502 || status == 503 || status == 504; }

class CollectorResponse final : public ResponseSink {
 public:
  bool OnHead(const ResponseHead& head) override {
    status = head.status;
    retry_after_ms = ParseRetryAfter(FindHeader(head.fields, "retry-after").value_or("")).value_or(0);
    return true;
  }
  bool OnData(std::string_view body_data) override {
    body.append(body_data.substr(0, kMaxResponseBytes - body.size()));
    return body.size() < kMaxResponseBytes;
  }

  int status = 0;
  int64_t retry_after_ms = 0;
  std::string body;
};

}  // namespace

TraceExporter::TraceExporter(IoThread& control, OtlpSettings settings, std::vector<ThreadTracer*> tracers)
    : thread_(control),
      settings_(std::move(settings)),
      tracers_(std::move(tracers)),
      http_(control.loop, control.buffers, control.resolver, control.tls, no_key_, control.hop_name),
      delay_(control.loop) {}

void TraceExporter::Start() {
  const WorkerUrl& url = settings_.url;
  Log(LogLevel::kInfo,
      Concat("tracing: spans go to ", url.tls ? "https://" : "http://", url.authority, url.prefix));
  running_ = true;
  Spawn(Run());
}

void TraceExporter::Stop() {
  stopping_ = true;
  flush_timer_.Arm(thread_.loop.timers(), kFlushMs, &TraceExporter::OnFlushTimeout, this);
  delay_.Cancel();
}

void TraceExporter::OnFlushTimeout(void* exporter) { static_cast<TraceExporter*>(exporter)->http_.Stop(); }

void TraceExporter::ExportSoon() {
  if (waits_for_spans_) delay_.Cancel();
}

Task<void> TraceExporter::Run() {
  for (bool last = false; !last;) {
    if (!stopping_) {
      waits_for_spans_ = true;
      co_await delay_.For(kIntervalNanos);
      waits_for_spans_ = false;
    }
    last = stopping_;
    for (;;) {
      std::vector<Batch> batches = Collect();
      if (batches.empty()) break;
      for (Batch& batch : batches) co_await Export(std::move(batch));
    }
  }
  flush_timer_.Disarm();
  running_ = false;
}

// What there is, up to the limit of memory; the rest stays with the threads.
std::vector<TraceExporter::Batch> TraceExporter::Collect() {
  std::vector<Batch> batches;
  size_t bytes = 0;
  for (ThreadTracer* const tracer : tracers_) {
    if (bytes + SpanBuffer::kMaxBytes > kMaxWaitingBytes) break;
    SpanBuffer::Taken taken = tracer->spans.Take();
    if (taken.spans == 0) continue;
    bytes += taken.bytes.size();
    const bool is_small =
        !batches.empty() && batches.back().spans.size() + taken.bytes.size() <= SpanBuffer::kMaxBytes;
    if (is_small) {
      batches.back().spans += taken.bytes;
      batches.back().count += taken.spans;
    } else {
      batches.push_back({.spans = std::move(taken.bytes), .count = taken.spans});
    }
  }
  return batches;
}

Task<void> TraceExporter::Export(Batch batch) {
  for (size_t failures = 0;; ++failures) {
    const Result result = co_await Post(batch);
    if (result.is_good) co_return;
    if (result.is_final || stopping_ || failures == kPausesMs.size()) {
      Drop(batch, result.why);
      co_return;
    }
    const int64_t pause_ms =
        result.retry_after_ms != 0 ? std::min(result.retry_after_ms, kLongestPauseMs) : kPausesMs[failures];
    co_await delay_.For(pause_ms * kNanosPerMs);
  }
}

Task<TraceExporter::Result> TraceExporter::Post(const Batch& batch) {
  const WorkerUrl& url = settings_.url;
  const std::string begin = BeginExport(settings_.resource, "vllm-router", Version(), batch.spans.size());
  std::string head = Concat(
      "POST ", url.prefix, " HTTP/1.1\r\nHost: ", url.authority, "\r\nUser-Agent: vllm-router/", Version(),
      "\r\nContent-Type: application/x-protobuf\r\nContent-Length: ", begin.size() + batch.spans.size(),
      "\r\nConnection: close\r\n", settings_.headers, "\r\n", begin);
  CollectorResponse response;
  const int64_t begun_ns = thread_.clock.NowNanos();
  const Status status = co_await http_.SendExternal(url, std::move(head), batch.spans, kTimeoutMs, &response);
  seconds_.Add(thread_.clock.NowNanos() - begun_ns);
  if (!status.ok()) co_return Result{.why = std::string(status.message())};
  if (response.status / 100 != 2) {
    co_return Result{
        .is_final = !IsWorthRetrying(response.status),
        .retry_after_ms = response.retry_after_ms,
        .why = Concat("its status was ", response.status)};
  }
  const PartialSuccess partial = ParseExportResponse(response.body).value_or(PartialSuccess());
  const uint64_t rejected = std::min<uint64_t>(partial.rejected, batch.count);
  exported_.Add(batch.count - rejected);
  if (rejected != 0) {
    rejected_.Add(rejected);
    Warn(rejected, Concat("it rejected them: ", Quoted(partial.message.substr(0, kMaxShown))));
  }
  co_return Result{.is_good = true};
}

void TraceExporter::Drop(const Batch& batch, const std::string& why) {
  dropped_.Add(batch.count);
  Warn(batch.count, why);
}

void TraceExporter::Warn(uint64_t spans, const std::string& why) {
  lost_since_ += spans;
  const int64_t now = thread_.clock.NowNanos();
  if (now < warn_again_ns_) return;
  warn_again_ns_ = now + kWarnAgainNanos;
  Log(LogLevel::kWarning, Concat(
                              "tracing: the collector at ", settings_.url.authority, " has not taken ",
                              std::exchange(lost_since_, 0), " spans: ", why));
}

void TraceExporter::WriteMetrics(MetricsPage* page) const {
  uint64_t dropped = dropped_.count();
  uint64_t sampled_out = 0;
  uint64_t invalid = 0;
  for (const ThreadTracer* const tracer : tracers_) {
    dropped += tracer->dropped.count();
    sampled_out += tracer->sampled_out.count();
    invalid += tracer->invalid_contexts.count();
  }
  page->Counter(
      "trace_spans_total",
      "Spans, by what became of them: exported to the collector, dropped for lack of room or after failed "
      "exports, rejected by the collector; sampled_out counts requests whose trace is not sampled.");
  page->Add(exported_.count(), {{"result", "exported"}});
  page->Add(dropped, {{"result", "dropped"}});
  page->Add(sampled_out, {{"result", "sampled_out"}});
  page->Add(rejected_.count(), {{"result", "rejected"}});
  page->Histogram("trace_export_seconds", "Durations of requests that send spans to the collector.");
  std::array<uint64_t, kBounds.size() + 1> buckets{};
  for (size_t i = 0; i < buckets.size(); ++i) buckets[i] = seconds_.bucket(i);
  page->AddHistogram(kBounds, buckets, seconds_.nanos());
  page->Counter(
      "trace_context_invalid_total",
      "Requests whose header traceparent could not be read, so that a new trace was started.");
  page->Add(invalid);
}

}  // namespace vllm_router
