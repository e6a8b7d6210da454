// TraceExporter: takes the spans of all threads and sends them to a collector, by OTLP over HTTP.
//
//   each second, or at 2,048 spans of a thread    POST /v1/traces
//   200                                           exported, but for those that it says it has rejected
//   429, 502, 503, 504, no response in 10 s       again after 1, 2 and 4 s, or when Retry-After says; then dropped
//   any other status                              dropped
//   the server stops                              all that is there is sent once, for at most 2 s
//
// While a collector is slow or absent spans stay with their threads, which drop those for which they have no room: at most
// kMaxWaitingBytes are here. No request ever waits. The log says once a minute what was lost, and why. On the control thread.
// The protocol: opentelemetry.io/docs/specs/otlp.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "net/event_loop.h"
#include "net/task.h"
#include "proxy/client/http_client.h"
#include "proxy/control/service.h"
#include "proxy/telemetry/counters.h"
#include "tracing/otlp_settings.h"

namespace vllm_router {

struct IoThread;
struct ThreadTracer;

class TraceExporter final : public Service {
 public:
  static constexpr size_t kMaxWaitingBytes = size_t{4} << 20;

  // The tracers outlive it.
  TraceExporter(IoThread& control, OtlpSettings settings, std::vector<ThreadTracer*> tracers);

  void Start() override;
  void Stop() override;
  bool ended() const override { return !running_; }
  void WriteMetrics(MetricsPage* page) const override;

  // Ends the wait for the next interval.
  void ExportSoon();

 private:
  static constexpr std::array<int64_t, 11> kBounds = {
      1'000'000,   2'500'000,   5'000'000,     10'000'000,    25'000'000,    50'000'000,
      100'000'000, 250'000'000, 1'000'000'000, 5'000'000'000, 10'000'000'000};

  struct Batch {
    std::string spans;  // that follow BeginExport()
    size_t count = 0;
  };
  // How one POST ended.
  struct Result {
    bool is_final = false;  // sending it again is of no use
    bool is_good = false;
    int64_t retry_after_ms = 0;  // 0: it does not say
    std::string why;
  };

  Task<void> Run();
  std::vector<Batch> Collect();
  Task<void> Export(Batch batch);
  Task<Result> Post(const Batch& batch);
  void Drop(const Batch& batch, const std::string& why);
  void Warn(uint64_t spans, const std::string& why);
  static void OnFlushTimeout(void* exporter);

  IoThread& thread_;
  const OtlpSettings settings_;
  const std::vector<ThreadTracer*> tracers_;
  const std::string no_key_;  // the workers' is not for a collector
  HttpClient http_;           // not the thread's, which stops before the last spans are sent
  Delay delay_;
  Timer flush_timer_;
  bool waits_for_spans_ = false;
  bool stopping_ = false;
  bool running_ = false;
  int64_t warn_again_ns_ = 0;
  uint64_t lost_since_ = 0;

  Counter exported_;
  Counter rejected_;
  Counter dropped_;
  Histogram<kBounds> seconds_;
};

}  // namespace vllm_router
