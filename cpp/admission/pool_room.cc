#include "admission/pool_room.h"

#include <algorithm>

#include "admission/whole_responses.h"
#include "worker/fleet_view.h"

namespace vllm_router {
namespace {

uint64_t NotNegative(int64_t value) { return static_cast<uint64_t>(std::max<int64_t>(0, value)); }

}  // namespace

WorkerRoom RoomFacts(const Worker& worker, const WholeResponses& whole, int64_t now_ns) {
  const WorkerLoad& load = worker.load;
  const WholeResponses::Sums past = whole.Of(worker.id);
  WorkerRoom room{
      .open = NotNegative(load.open_requests()),
      .waiting = NotNegative(load.own_waiting() - past.requests),
      .queued_prefill = NotNegative(load.own_queued_prefill() - past.tokens)};
  if (room.open == 0) {
    const int64_t last_ns = worker.progress.last_byte_ns();
    // Of one that never sent anything the report counts.
    room.idle_ns = last_ns == 0 ? 1 : std::max<int64_t>(1, now_ns - last_ns);
  }
  const float kv_use = worker.kv_use.load(std::memory_order_relaxed);
  // Not what peers have without a first token: most of that is being computed, or sent in one piece.
  const uint64_t others = worker.others_queued.load(std::memory_order_relaxed);
  if (kv_use >= 0 || others != 0) {
    room.report = {.kv_usage = std::clamp<double>(kv_use, 0, 1), .waiting = room.waiting + others, .sent = 0};
  }
  return room;
}

uint32_t PlacesAt(const WorkerRoom& room, ClassGate gate, uint32_t max_requests) {
  constexpr uint64_t kMost = 4;
  if (gate == ClassGate::kIdleOnly) return 1;
  if (max_requests == 0) return kMost;
  return static_cast<uint32_t>(
      std::min<uint64_t>(kMost, max_requests - std::min<uint64_t>(room.open, max_requests)));
}

bool HaveRoom(
    const FleetView& fleet, PriorityClass of_class, const RoomLimits& limits, const PoolRoom& pool,
    int64_t taken, int64_t now_ns) {
  const ClassRoom& settings = limits.settings.of(of_class).room;
  int64_t places = 0;
  for (const uint32_t position : fleet.eligible()) {
    if (!fleet.worker(position).breaker.Admits()) continue;  // its one probe is under way
    const WorkerRoom facts = RoomFacts(fleet.worker(position), limits.whole, now_ns);
    if (RoomOf(facts, settings, pool) != ClosedBy::kNone) continue;
    places += PlacesAt(facts, settings.gate, limits.max_worker_requests);
    if (places > taken) return true;
  }
  return false;
}

WorkerPositions ClosedFor(
    const FleetView& fleet, PriorityClass of_class, const RoomLimits& limits, const PoolRoom& pool,
    int64_t now_ns) {
  const ClassRoom& settings = limits.settings.of(of_class).room;
  WorkerPositions positions;
  for (const uint32_t position : fleet.eligible()) {
    const WorkerRoom facts = RoomFacts(fleet.worker(position), limits.whole, now_ns);
    if (RoomOf(facts, settings, pool) != ClosedBy::kNone) positions.push_back(position);
  }
  return positions;
}

OpenWorkers FindOpen(const FleetView& fleet, const RoomLimits& limits, const PoolRoom& pool, int64_t now_ns) {
  OpenWorkers open;
  for (const uint32_t position : fleet.eligible()) {
    if (!fleet.worker(position).breaker.Admits()) continue;  // its one probe is under way
    const WorkerRoom facts = RoomFacts(fleet.worker(position), limits.whole, now_ns);
    for (size_t i = 0; i < open.ids.size(); ++i) {
      const ClosedBy closed = RoomOf(facts, limits.settings.classes[i].room, pool);
      if (closed == ClosedBy::kNone) {
        open.ids[i].push_back(static_cast<uint32_t>(fleet.worker(position).id));
        open.places[i] += PlacesAt(facts, limits.settings.classes[i].room.gate, limits.max_worker_requests);
      } else {
        ++open.closed[i][static_cast<size_t>(closed)];
      }
    }
  }
  for (std::vector<uint32_t>& ids : open.ids) std::ranges::sort(ids);
  return open;
}

}  // namespace vllm_router
