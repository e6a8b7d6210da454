// ClassDispatch: one request on its way to a worker with room for its class, kept in its RequestState.
//
//   TryPass() ── true ──────────────┐
//      │ false                      ▼
//      └─▶ Run() ── dispatched ──▶ gate of its first attempt ──▶ Chosen() ──▶ Responded() ──▶ End()
//             └── full, displaced, timeout: the client has the error             └── evicted: WaitInFront()
//
// What it counts against the pool (a choice under way, a prompt of an idle_only class, its cost) is given back once each,
// however the request ends. One thread, but for the pool's callback.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "net/task.h"
#include "net/timer_wheel.h"
#include "proxy/admission/class_pools.h"
#include "proxy/admission/past_prompt.h"
#include "proxy/exchange/worker_gate.h"
#include "worker/worker.h"

namespace vllm_router {

struct Request;

class ClassDispatch final : public WorkerGate {
 public:
  // What decides its place.
  struct Claim {
    PriorityClass of_class = PriorityClass::kDefault;
    uint64_t tenant = 0;  // a hash of its name
    double weight = 1;    // of the tenant
    uint64_t prompt = 0;  // tokens, as estimated
    uint64_t output = 0;  // likewise
    PastPrompt::IsWhole is_whole = nullptr;
  };

  // All outlive it.
  ClassDispatch(
      Request& request, ThreadClasses& thread, std::shared_ptr<const AdmissionSettings> settings,
      const Claim& claim);
  ~ClassDispatch() override { End(); }
  ClassDispatch(const ClassDispatch&) = delete;
  ClassDispatch& operator=(const ClassDispatch&) = delete;

  // At once or not at all.
  bool TryPass();
  // Until it is dispatched. kEnd: it was not, and the client knows.
  Task<Verdict> Run();

  Positions Closed(const FleetView& fleet) const override;
  void Chosen(const Ticket* ticket) override;
  Task<Verdict> WaitAgain() override;
  // The same of one that was evicted from its worker, at the front of its queue. Its wait begins anew.
  Task<Verdict> WaitInFront();

  // Its first token has come.
  void Responded();
  // `actual`: what it cost, in tokens; nullopt: not known.
  void End(std::optional<uint64_t> actual = std::nullopt);
  // What is known of its cost from the events of its stream: no less than was estimated.
  uint64_t CostSeen(uint64_t events) const {
    return place_.cost + CostOf(0, events > claim_.output ? events - claim_.output : 0);
  }

 private:
  enum class State : uint8_t { kNew, kWaiting, kChoosing, kChosen };
  struct Place : ClassPool::Waiter {
    ClassDispatch* owner = nullptr;
  };

  std::shared_ptr<const FleetView> FindPool();
  Task<WaitEnd> WaitOn(bool is_queued);
  Task<WaitEnd> Wait(bool pumps);
  void Left();
  const AdmissionSettings& Rules();
  Task<Verdict> Settled(WaitEnd end);
  void Dispatched();
  void Leave(WaitEnd why);
  void EndPrefill();
  void Pump();
  void PumpSoon();
  void FindHolders();
  void ArmHoldersTimer();
  static void OnTold(ClassPool::Waiter* waiter, WaitEnd end);
  static void OnTimeout(void* dispatch);
  static void OnHoldersTimer(void* dispatch);
  static void OnPastPrompt(void* dispatch);

  Request& request_;
  ThreadClasses& thread_;
  const std::shared_ptr<const AdmissionSettings> settings_;
  const Claim claim_;
  std::shared_ptr<ClassPool> pool_;
  Place place_;
  State state_ = State::kNew;
  bool prefills_ = false;  // counted in the pool as a prompt of an idle_only class
  bool charged_ = false;   // it was dispatched from the queue, and is not settled
  bool responded_ = false;
  bool counted_ = false;  // in the metrics, once
  Signal ended_;
  WaitEnd end_ = WaitEnd::kDispatched;
  Timer timer_;  // of the wait
  Timer holders_timer_;
  int64_t deadline_ns_ = 0;
  PastPrompt past_prompt_;
};

}  // namespace vllm_router
