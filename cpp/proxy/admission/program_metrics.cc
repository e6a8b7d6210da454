#include "proxy/admission/program_metrics.h"

#include <memory>
#include <optional>

#include "proxy/admin/telemetry_sums.h"
#include "proxy/admission/programs.h"
#include "proxy/telemetry/metrics_page.h"
#include "routing/router.h"
#include "worker/fleet_view.h"

namespace vllm_router {

void ProgramMetrics::Write(MetricsPage* page) const {
  const ProgramTable::Report report = programs_.queue().Read();
  page->Gauge(
      "programs",
      "Programs of agents, by state: reasoning (a request is under way), acting (between two requests), "
      "waiting (a request waits) or paused.");
  page->Add(report.reasoning, {{"state", "reasoning"}});
  page->Add(report.acting, {{"state", "acting"}});
  page->Add(report.waiting, {{"state", "waiting"}});
  page->Add(report.paused, {{"state", "paused"}});

  page->Gauge(
      "program_working_set_ratio",
      "Tokens of a worker's active programs, as a share of its KV cache; only where that is known.");
  const std::shared_ptr<const FleetView> fleet = router_.fleet();
  const std::shared_ptr<const ProgramSettings> settings = programs_.settings().Load();
  for (const ProgramTable::WorkerRow& row : report.workers) {
    const std::optional<uint32_t> position = fleet->Find(row.id);
    if (!position) continue;
    const Worker& worker = fleet->worker(*position);
    const uint64_t capacity = CapacityFor(*settings, worker);
    if (capacity == 0) continue;
    page->Add(static_cast<double>(row.tokens) / static_cast<double>(capacity), {{"worker", worker.url.url}});
  }

  page->Counter(
      "program_turns_total",
      "Requests of programs, by how they went on: active (the program was), resumed (at once), waited, "
      "forced (after the maximum wait), passed (no program's, as there were too many, no worker, or none "
      "that could have so much) or would_wait (--program-admission observe).");
  for (size_t i = 0; i < ProgramTable::kWent; ++i)
    page->Add(report.went[i], {{"how", ProgramTable::kWentNames[i]}});

  page->Counter(
      "program_pauses_total",
      "Active programs that were paused, by reason: full (their worker had too many tokens of programs), ttl "
      "(others waited, and it had no request for long) or worker_gone.");
  for (size_t i = 0; i < ProgramTable::kPausedBy; ++i)
    page->Add(report.paused_by[i], {{"reason", ProgramTable::kPausedByNames[i]}});

  page->Counter(
      "programs_forgotten_total", "Programs that were forgotten, unused for long or for --max-programs.");
  page->Add(report.forgotten);

  page->Histogram(
      "program_wait_seconds",
      "Time that requests waited while their program was paused, of those that had to.");
  TimeSum<buckets::kWorkerWait> waits;
  for (const ThreadPrograms* const thread : threads_) waits.Add(&thread->waits);
  waits.AddTo(page);

  page->Histogram(
      "program_turn_seconds",
      "Time of programs' requests that a worker had, from the request's head to the end.");
  TimeSum<buckets::kWorkerWait> turns;
  for (const ThreadPrograms* const thread : threads_) turns.Add(&thread->turns);
  turns.AddTo(page);
}

}  // namespace vllm_router
