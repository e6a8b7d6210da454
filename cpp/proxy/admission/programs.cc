#include "proxy/admission/programs.h"

#include <algorithm>
#include <string>

#include "base/time_units.h"
#include "proxy/thread/io_thread.h"
#include "routing/router.h"
#include "worker/fleet_view.h"

namespace vllm_router {
namespace {

constexpr int64_t kNoProgramsNs = 3'600 * kNanosPerSecond;  // other settings end the wait

}  // namespace

StatusOr<ProgramSettings> Programs::Read(std::string_view line) {
  StatusOr<ProgramSettings> settings = ProgramSettings::Parse(line);
  if (!settings.ok())
    return absl::InvalidArgumentError("program_admission, " + std::string(settings.status().message()));
  return settings;
}

void Programs::Follow(const ProgramSettings& settings, int64_t now_ns) {
  if (*settings_.Load() == settings) return;
  settings_.Publish(std::make_shared<const ProgramSettings>(settings));
  queue_.Follow(settings, now_ns);
}

uint64_t CapacityFor(const ProgramSettings& settings, const Worker& worker) {
  return settings.capacity != 0 ? settings.capacity : worker.cache_tokens.load(std::memory_order_relaxed);
}

ProgramWorkers ProgramWorkersOf(const FleetView& fleet, const ProgramSettings& settings) {
  ProgramWorkers workers;
  for (const uint32_t position : fleet.eligible()) {
    const Worker& worker = fleet.worker(position);
    workers.push_back(
        {.id = worker.id,
         .capacity = CapacityFor(settings, worker),
         .context = static_cast<uint64_t>(std::max<int64_t>(0, worker.load.context()))});
  }
  return workers;
}

ProgramService::ProgramService(IoThread& control, Programs& programs)
    : thread_(control), programs_(programs), delay_(control.loop) {}

void ProgramService::Start() {
  running_ = true;
  Spawn(Run());
}

void ProgramService::Stop() {
  stopped_ = true;
  delay_.Cancel();
}

Task<void> ProgramService::Run() {
  while (!stopped_) {
    Tick();
    const bool is_on = programs_.settings().Load()->is_on();
    co_await delay_.For(is_on || programs_.queue().size() != 0 ? kTickNs : kNoProgramsNs);
  }
  running_ = false;
}

// Programs of workers that are in rotation stay, whatever their circuit breakers say now.
void ProgramService::Tick() {
  const std::shared_ptr<const FleetView> fleet = thread_.router->fleet();
  const std::shared_ptr<const ProgramSettings> settings = programs_.settings().Load();
  ProgramWorkers workers;
  for (const FleetView::Member& member : fleet->members()) {
    if (!member.in_rotation()) continue;
    const Worker& worker = *member.worker;
    workers.push_back(
        {.id = worker.id,
         .capacity = CapacityFor(*settings, worker),
         .prefill_rate = static_cast<double>(worker.prefill_pace.load(std::memory_order_relaxed))});
  }
  programs_.queue().FollowFleet(workers, thread_.clock.NowNanos());
}

}  // namespace vllm_router
