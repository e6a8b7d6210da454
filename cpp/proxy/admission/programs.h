// Programs: what a server knows of agents' programs: the settings in force, and the queue of all (admission/program_queue.h).
//
//   settings   Follow(line)            what the operator says now; with the mode off no request is part of a program
//   request    program_turn.h          waits until its program may go on
//   control    ProgramService          looks at the fleet once a second
//
// Thread-safe; a ThreadPrograms belongs to its thread, whose counters any may read.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include <absl/container/inlined_vector.h>

#include "admission/program_queue.h"
#include "admission/program_settings.h"
#include "base/snapshot.h"
#include "base/status.h"
#include "net/event_loop.h"
#include "net/task.h"
#include "proxy/control/service.h"
#include "proxy/telemetry/telemetry_shard.h"

namespace vllm_router {

class FleetView;
struct IoThread;
struct Worker;

class Programs {
 public:
  // > 0.
  explicit Programs(size_t max_programs)
      : queue_(max_programs), settings_(std::make_shared<const ProgramSettings>()) {}

  // InvalidArgument names the option.
  static StatusOr<ProgramSettings> Read(std::string_view line);
  void Follow(const ProgramSettings& settings, int64_t now_ns);

  const Snapshot<ProgramSettings>& settings() const { return settings_; }
  ProgramQueue& queue() { return queue_; }
  const ProgramQueue& queue() const { return queue_; }

 private:
  ProgramQueue queue_;
  Snapshot<ProgramSettings> settings_;
};

struct ThreadPrograms {
  explicit ThreadPrograms(Programs& programs) : programs(programs), settings(&programs.settings()) {}

  Programs& programs;  // the server's
  Snapshot<ProgramSettings>::Cached settings;
  WorkerWaitHistogram waits;  // of turns that had to
  WorkerWaitHistogram turns;  // waits included
};

// Tokens that its KV cache holds: as the settings say, else as it told; 0: not known.
uint64_t CapacityFor(const ProgramSettings& settings, const Worker& worker);
// Those of the view that may be chosen, as programs see them.
using ProgramWorkers = absl::InlinedVector<ProgramQueue::Worker, 16>;
ProgramWorkers ProgramWorkersOf(const FleetView& fleet, const ProgramSettings& settings);

// On the control thread. While there are no programs it sleeps.
class ProgramService final : public Service {
 public:
  static constexpr int64_t kTickNs = 1'000'000'000;

  // `programs` outlives it.
  ProgramService(IoThread& control, Programs& programs);

  void Start() override;
  void Stop() override;
  bool ended() const override { return !running_; }
  void FollowSettings() override { delay_.Cancel(); }

 private:
  Task<void> Run();
  void Tick();

  IoThread& thread_;
  Programs& programs_;
  Delay delay_;
  bool stopped_ = false;
  bool running_ = false;
};

}  // namespace vllm_router
