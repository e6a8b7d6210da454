#include "simulation/replay_programs.h"

#include <algorithm>

#include "base/check.h"
#include "base/time_units.h"
#include "worker/fleet_view.h"

namespace vllm_router {
namespace {

constexpr size_t kMostPrograms = 65'536;  // as in the server
constexpr uint64_t kTicksPerLook = 10;    // at the fleet

}  // namespace

ReplayPrograms::ReplayPrograms(const ProgramSettings& settings, uint64_t capacity)
    : settings_(settings),
      capacity_(settings.capacity != 0 ? settings.capacity : capacity),
      table_(kMostPrograms) {
  table_.Follow(settings);
}

ReplayPrograms::Workers ReplayPrograms::WorkersOf(const FleetView& fleet) const {
  Workers workers;
  for (const uint32_t position : fleet.eligible()) {
    const Worker& worker = fleet.worker(position);
    workers.push_back(
        {.id = worker.id,
         .capacity = capacity_,
         .context = static_cast<uint64_t>(std::max<int64_t>(0, worker.load.context()))});
  }
  return workers;
}

void ReplayPrograms::Take(const ProgramTable::Resumed& resumed) {
  for (const ProgramTable::Turn* const turn : resumed)
    resumed_.push_back(static_cast<const Place*>(turn)->row);
}

std::vector<uint32_t> ReplayPrograms::TakeResumed() { return std::exchange(resumed_, {}); }

bool ReplayPrograms::Begin(
    uint32_t row, uint64_t program, uint64_t prompt, uint64_t output, const FleetView& fleet,
    int64_t now_ns) {
  auto& place = places_[row];
  ROUTER_CHECK(place == nullptr, "a row arrives once");
  place = std::make_unique<Place>();
  place->row = row;
  place->who.name = {.high = 0, .low = program};
  place->prompt = prompt;
  place->output = output;
  ProgramTable::Resumed resumed;
  const ProgramTable::Began began = table_.Begin(place.get(), WorkersOf(fleet), now_ns, &resumed);
  Take(resumed);
  if (began != ProgramTable::Began::kWaits) return true;
  deadlines_.emplace_back(now_ns + settings_.max_wait_ms * kNanosPerMs, row);
  return false;
}

WorkerPositions ReplayPrograms::Closed(uint32_t row, const FleetView& fleet) const {
  WorkerPositions closed;
  const auto found = places_.find(row);
  if (found == places_.end() || settings_.mode != ProgramMode::kOn) return closed;
  const Place& place = *found->second;
  const Workers workers = WorkersOf(fleet);
  for (size_t i = 0; i < workers.size(); ++i) {
    const bool is_open = place.is_placed ? workers[i].id == place.worker : table_.HasRoom(place, workers[i]);
    if (!is_open) closed.push_back(fleet.eligible()[i]);
  }
  return closed;
}

void ReplayPrograms::Bind(uint32_t row, WorkerId worker) {
  if (const auto found = places_.find(row); found != places_.end()) table_.Bind(found->second.get(), worker);
}

void ReplayPrograms::End(
    uint32_t row, const std::optional<ProgramTable::Use>& use, const FleetView& fleet, int64_t now_ns) {
  const auto found = places_.find(row);
  if (found == places_.end()) return;
  ProgramTable::Resumed resumed;
  table_.End(found->second.get(), use, /*final=*/false, WorkersOf(fleet), now_ns, &resumed);
  places_.erase(found);
  Take(resumed);
}

void ReplayPrograms::Tick(const FleetView& fleet, int64_t now_ns) {
  const Workers workers = WorkersOf(fleet);
  if (ticks_++ % kTicksPerLook == 0) table_.FollowFleet(workers, now_ns);
  ProgramTable::Resumed resumed;
  table_.Pump(/*pool=*/0, workers, now_ns, &resumed);
  while (!deadlines_.empty() && deadlines_.front().first <= now_ns) {
    const auto found = places_.find(deadlines_.front().second);
    deadlines_.pop_front();
    if (found != places_.end()) table_.Force(found->second.get(), workers, now_ns, &resumed);
  }
  Take(resumed);
}

}  // namespace vllm_router
