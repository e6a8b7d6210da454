// ReplayPrograms: the turns that wait at one replica of the router while their programs are paused, by the server's own table
// (admission/program_table.h). A program is a session of the trace.
//
//   Begin()                  its program is active, or it waits
//   Closed()                 workers that its turn may not have
//   Bind(), End()            as of its ticket
//   Tick()                   what has room, and what has waited too long, goes on; the fleet is followed each second
//   TakeResumed()            whose wait is over since the last call
//
// A request is known by its row in the trace, from Begin() to End(). It behaves as proxy/admission/program_turn.h does. One
// thread.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <absl/container/flat_hash_map.h>

#include "admission/pool_room.h"
#include "admission/program_settings.h"
#include "admission/program_table.h"

namespace vllm_router {

class FleetView;

class ReplayPrograms {
 public:
  static constexpr int64_t kTickNs = 100'000'000;

  // `capacity`: tokens of each worker's KV cache.
  ReplayPrograms(const ProgramSettings& settings, uint64_t capacity);
  ReplayPrograms(const ReplayPrograms&) = delete;
  ReplayPrograms& operator=(const ReplayPrograms&) = delete;

  // Tokens of the response are those that the router expects. False: it waits.
  bool Begin(
      uint32_t row, uint64_t program, uint64_t prompt, uint64_t output, const FleetView& fleet,
      int64_t now_ns);
  // Positions; of all workers where its own cannot be chosen: then any may have it.
  WorkerPositions Closed(uint32_t row, const FleetView& fleet) const;
  void Bind(uint32_t row, WorkerId worker);
  void End(uint32_t row, const std::optional<ProgramTable::Use>& use, const FleetView& fleet, int64_t now_ns);
  void Tick(const FleetView& fleet, int64_t now_ns);
  std::vector<uint32_t> TakeResumed();

 private:
  struct Place : ProgramTable::Turn {
    uint32_t row = 0;
  };
  using Workers = std::vector<ProgramTable::Worker>;

  Workers WorkersOf(const FleetView& fleet) const;
  void Take(const ProgramTable::Resumed& resumed);

  const ProgramSettings settings_;
  const uint64_t capacity_;
  ProgramTable table_;
  absl::flat_hash_map<uint32_t, std::unique_ptr<Place>> places_;  // by row
  std::deque<std::pair<int64_t, uint32_t>>
      deadlines_;  // when the wait of a row ends, of some rows that wait no more
  std::vector<uint32_t> resumed_;
  uint64_t ticks_ = 0;
};

}  // namespace vllm_router
