// Which workers of a fleet have room for a class now (admission/room.h), from what is known of them here: this router's own
// counters, and what the last load poll told.
//
//   open, waiting, queued_prefill    the tickets of this router, without responses in one piece that are past their prompt
//   report                           the KV cache's usage of the last poll, if it is not older than three polls
//   reported waiting                 what the engine has waiting beyond this router's requests, of other routers too
//
// What was sent since the last report is not added to its usage: polls are a second apart, and a worker gets one prompt at a
// time. The capacity in tokens is not known here, so a report of 0 is bounded by the prompts that wait. Pure; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include <absl/container/inlined_vector.h>

#include "admission/admission_settings.h"
#include "admission/room.h"

namespace vllm_router {

class FleetView;
class WholeResponses;
struct Worker;

// What bounds all pools of a server or of a replay. What it refers to outlives the call that gets it.
struct RoomLimits {
  const AdmissionSettings& settings;
  const WholeResponses& whole;
  uint32_t max_worker_requests = 0;  // 0: no limit
  uint64_t free_permits = 0;         // of --max-concurrent-requests
};

// Positions in a fleet.
using WorkerPositions = absl::InlinedVector<uint32_t, 16>;

WorkerRoom RoomFacts(const Worker& worker, const WholeResponses& whole, int64_t now_ns);

// How many requests of the class may be under way to a worker with room for it: one prompt of an idle_only class; of others
// four, since small prompts fill no engine's step, and no more than it has places (--max-worker-requests).
uint32_t PlacesAt(const WorkerRoom& room, ClassGate gate, uint32_t max_requests);

// The workers that may be chosen now and have room for the class have more than `taken` places.
bool HaveRoom(
    const FleetView& fleet, PriorityClass of_class, const RoomLimits& limits, const PoolRoom& pool,
    int64_t taken, int64_t now_ns);
// Positions of the workers that may be chosen and have no room for the class, ascending.
WorkerPositions ClosedFor(
    const FleetView& fleet, PriorityClass of_class, const RoomLimits& limits, const PoolRoom& pool,
    int64_t now_ns);

struct OpenWorkers {
  static constexpr size_t kReasons = 6;                     // ClosedBy
  std::array<std::vector<uint32_t>, kPriorityClasses> ids;  // with room, by class; ascending
  std::array<int64_t, kPriorityClasses> places{};           // of these
  // By class and reason, how many have none.
  std::array<std::array<uint32_t, kReasons>, kPriorityClasses> closed{};
};
OpenWorkers FindOpen(const FleetView& fleet, const RoomLimits& limits, const PoolRoom& pool, int64_t now_ns);

}  // namespace vllm_router
