// ProgramTurn: one request of a program (admission/program_table.h), kept in its RequestState.
//
//   TryPass() ── true ─────────────┐
//      │ false                     ▼
//      └─▶ Run() ── resumed ──▶ TakeGate() ──▶ Closed() at its first attempt ──▶ Responded() ──▶ End()
//             └── too late: the client has the error
//
// While its program waits it asks for room a few times a second, for all programs of its pool. In front of it may be the gate
// of its priority class: of the workers with room for the class, it takes those with room for its program, or the one where
// that is. Settings that change meanwhile hold for it too. One thread, but for the queue's callback.
#pragma once

#include <cstdint>
#include <optional>

#include "admission/program_queue.h"
#include "admission/program_settings.h"
#include "net/task.h"
#include "net/timer_wheel.h"
#include "proxy/admission/programs.h"
#include "proxy/exchange/worker_gate.h"

namespace vllm_router {

struct Request;

class ProgramTurn final : public WorkerGate {
 public:
  struct Claim {
    ProgramTable::Who who;
    uint64_t prompt = 0;  // tokens, as estimated
    uint64_t output = 0;  // likewise
  };

  // All outlive it.
  ProgramTurn(Request& request, ThreadPrograms& thread, const Claim& claim);
  ~ProgramTurn() override { End(std::nullopt, /*final=*/false); }
  ProgramTurn(const ProgramTurn&) = delete;
  ProgramTurn& operator=(const ProgramTurn&) = delete;

  // At once or not at all.
  bool TryPass();
  // Until its program is active.
  Task<Verdict> Run();
  // From now on; the gate that there is stays in force.
  void TakeGate();

  Positions Closed(const FleetView& fleet) const override;
  void Chosen(const Ticket* ticket) override;
  Task<Verdict> WaitAgain() override;

  // A worker has responded.
  void Responded();
  // What a worker computed of it; nullopt: nothing.
  void End(const std::optional<ProgramTable::Use>& use, bool final);
  uint64_t prompt() const { return place_.prompt; }

 private:
  enum class WaitEnd : uint8_t { kResumed, kLeft, kTimeout };
  struct Place : ProgramQueue::Turn {
    ProgramTurn* owner = nullptr;
  };

  ProgramQueue& queue() const { return thread_.programs.queue(); }
  // Those in force, until the next call.
  const ProgramSettings& settings() const { return *thread_.settings.Get(); }
  ProgramWorkers Workers() const;
  void AskForRoom(int64_t now_ns);
  Task<WaitEnd> Wait();
  void Leave(WaitEnd why);
  void ArmLook(int64_t now_ns);
  void DropGate();
  static bool Rejects(const ProgramSettings& given) {
    return given.reject_after_ms != 0 && given.reject_after_ms <= given.max_wait_ms;
  }
  int64_t DeadlineNs() const;
  static void OnTold(ProgramQueue::Turn* turn);
  static void OnLook(void* turn);

  Request& request_;
  ThreadPrograms& thread_;
  Place place_;
  WorkerGate* inner_ = nullptr;  // of its class
  bool has_gate_ = false;
  bool is_waiting_ = false;
  bool has_ended_ = true;  // the queue does not know it
  WaitEnd wait_end_ = WaitEnd::kResumed;
  int64_t began_ns_ = 0;  // its wait
  Signal told_;
  Timer timer_;
};

}  // namespace vllm_router
