#include "proxy/admin/process_metrics.h"

#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <string_view>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "base/version.h"
#include "proxy/admin/telemetry_sums.h"
#include "proxy/client/tls_files.h"
#include "proxy/security/key_file.h"
#include "proxy/telemetry/traffic_log.h"
#include "proxy/thread/server_limits.h"
#include "routing/router.h"

namespace vllm_router {
namespace {

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

void WriteAdmission(const TelemetrySums& threads, const ServerLimits& limits, MetricsPage* page) {
  page->Gauge("concurrent_requests", "Requests that have been admitted to a worker and have not ended.");
  page->Add(limits.concurrency.in_use());
  page->AddFormerName("seats_taken");
  page->Gauge(
      "concurrent_requests_limit",
      "Maximum of concurrent_requests: --max-concurrent-requests, or what the limit of open files allows.");
  page->Add(limits.concurrency.permits());
  page->AddFormerName("seats");
  page->Gauge(
      "queue_depth",
      "Requests waiting in the queue for admission or, under --max-worker-requests, for a worker.");
  page->Add(limits.concurrency.waiting());
  page->Histogram(
      "queue_wait_seconds",
      "Time that requests waited in the queue, however that ended, of those that had to wait.");
  TimeSum<buckets::kWorkerWait> waits;
  for (const Telemetry* telemetry : threads.all()) waits.Add(&telemetry->shard().queue_waits);
  waits.AddTo(page);
  page->Counter(
      "queue_requeues_total",
      "Times that a request was put back at its place in the queue because all workers had "
      "--max-worker-requests.");
  page->Add(threads.Total(&Telemetry::steps_back));
  page->AddFormerName("queue_steps_back_total");
  page->Gauge(
      "body_memory_bytes",
      "Memory reserved for request bodies above 64 KiB that are held whole, and for stored responses above "
      "64 KiB that are being sent.");
  page->Add(limits.body_memory.in_use());
  page->Gauge("body_memory_limit_bytes", "Maximum of body_memory_bytes (--body-memory-mb).");
  page->Add(limits.body_memory.total());
  page->Gauge(
      "key_validations_waiting",
      "Requests waiting for the validation of their key by --api-key-validation-urls.");
  page->Add(threads.Total(&Telemetry::key_validations, &KeyValidationCounts::waiting));
  page->Counter(
      "key_validations_rejected_total",
      "Requests that got 503 key_not_checked because too many waited: queue_full (in all) or address_share "
      "(of the client's address).");
  page->Add(
      threads.Total(&Telemetry::key_validations, &KeyValidationCounts::rejected_full),
      {{"reason", "queue_full"}});
  page->Add(
      threads.Total(&Telemetry::key_validations, &KeyValidationCounts::rejected_share),
      {{"reason", "address_share"}});
  page->Counter(
      "admission_rejected_total",
      "Requests that were not admitted, by the code of their error: queue_full, displaced, evicted, "
      "queue_timeout, rate_limited, tenant_rate_limited, tenant_tokens_limited, tenant_concurrency, "
      "program_timeout, no_body_memory or body_too_slow.");
  for (const auto& [name, count] :
       threads.SumNames([](const Telemetry::Shard& shard) { return &shard.refusals; })) {
    page->AddUnlessZero(count, {{"reason", name}});
  }
}

void WriteQuarantine(const ServerLimits& limits, int64_t now_ns, MetricsPage* page) {
  const RequestQuarantine::Counts counts = limits.quarantine.CountAll(now_ns);
  page->Counter(
      "lost_requests_total",
      "Attempts whose connection was lost after the request, or a part of it, was sent.");
  page->Add(counts.losses);
  page->Counter("quarantines_total", "Requests quarantined because two workers died while serving them.");
  page->Add(counts.quarantines);
  page->Counter(
      "quarantines_lifted_total", "Quarantines that ended early because a worker served an equal request.");
  page->Add(counts.lifted);
  page->Gauge("quarantined_requests", "Requests that are quarantined now, and so rejected.");
  page->Add(counts.quarantined);
  page->Gauge(
      "restricted_clients",
      "Clients that are restricted because workers died with their requests more often than chance "
      "explains.");
  page->Add(counts.restricted);
}

void WriteResponses(const Router& router, const ServerLimits& limits, MetricsPage* page) {
  page->Gauge("sessions", "Sessions whose worker the policy remembers (sticky_least_loaded).");
  page->Add(router.policy().sessions().value_or(0));
  const ResponseOwners& responses = limits.responses;
  page->Counter(
      "response_lookups_total",
      "Requests that named a stored response or conversation, by its worker: known, found (by a search), "
      "not_found, or busy (too many searches).");
  for (int i = 0; i < kResponseLookupCount; ++i) {
    page->Add(
        responses.lookups[i].load(std::memory_order_relaxed),
        {{"result", ResponseLookupName(static_cast<ResponseLookup>(i))}});
  }
  page->Gauge("known_responses", "Stored responses and conversations whose worker is known.");
  page->Add(responses.workers.size());
}

void WriteFiles(const ServerFiles& files, MetricsPage* page) {
  page->Counter(
      "reloads_total",
      "Reloads of client_keys, admin_keys, certificates and the record_log: ok, or failed, and the former "
      "state stays in force.");
  for (const Reloadable* const file : files.reloadables) {
    const auto add = [&](const Counter& reloads, const char* result) {
      page->Add(reloads.count(), {{"file", file->name()}, {"result", result}});
    };
    add(file->reloads_done(), "ok");
    add(file->reloads_failed(), "failed");
  }

  page->Gauge(
      "certificate_seconds_left",
      "Seconds until the certificate presented to a client or a worker expires; negative after that.");
  if (files.tls == nullptr) return;
  const double now = UnixSeconds();
  for (const auto& [side, ends] :
       {std::pair("client", files.tls->clients_certificate_ends()),
        std::pair("worker", files.tls->workers_certificate_ends())}) {
    if (ends) page->Add(static_cast<double>(*ends) - now, {{"side", side}});
  }
}

void WriteProcess(const TelemetrySums& threads, const ServerFiles& files, double started, MetricsPage* page) {
  page->Counter(
      "access_log_dropped_total",
      "Access log lines that standard output did not get, because 4 MiB waited or it could not be written.");
  uint64_t access_dropped = LogDropped(LogDestination::kStdout);
  uint64_t records_dropped = 0;
  for (const Telemetry* telemetry : threads.all()) {
    access_dropped += telemetry->lines.access_dropped();
    records_dropped += telemetry->lines.records_dropped();
  }
  page->Add(access_dropped);
  page->Counter(
      "log_lines_dropped_total",
      "Lines of the log that stderr, stdout or the file of --log-dir did not get, because 4 MiB waited or it "
      "could not be written.");
  for (const auto& [destination, name] :
       {std::pair(LogDestination::kStderr, "stderr"), std::pair(LogDestination::kStdout, "stdout"),
        std::pair(LogDestination::kFile, "file")}) {
    page->Add(LogDropped(destination), {{"destination", name}});
  }
  if (files.records != nullptr) {
    page->Counter("record_log_lines_total", "Requests for the record log: written or lost.");
    page->Add(files.records->written(), {{"result", "written"}});
    page->Add(files.records->lost() + records_dropped, {{"result", "lost"}});
  }
  page->Gauge("build_info", "Always 1; the label has the version.");
  page->Add(1, {{"version", Version()}});
  page->Gauge("start_time_seconds", "Start time of the server, in seconds since the Unix epoch.");
  page->Add(started);
  page->Counter("process_cpu_seconds_total", "CPU time used by the process, Python included.");
  page->Add(CpuSeconds());
  page->Gauge("process_resident_memory_bytes", "Resident memory of the process.");
  page->Add(ResidentBytes());
}

}  // namespace vllm_router
