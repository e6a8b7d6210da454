// ReplayAdmission: the requests that wait at one replica of the router, in the server's own queues (admission/class_pool.h).
//
//   TryPass()                       a worker has room for its class, and nothing of its class or above waits
//   Enqueue()                       else it waits, if it has a place
//   Pump(), Tick()                  some of them wait no more: TakeEnded()
//   Closed()                        workers that a dispatched one may not have
//   Chosen(), FirstToken(), End()   of a dispatched one, as of its ticket
//
// A request is known by its row in the trace, from TryPass() to End() or to the end of a wait without dispatch. It behaves
// as proxy/admission/class_dispatch.h does on one thread, but timeouts are seen at the next tick and the holders of all
// prompts are looked up at the same ticks. One thread.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include <absl/container/flat_hash_map.h>

#include "admission/admission_settings.h"
#include "admission/class_pool.h"
#include "admission/class_queues.h"
#include "admission/pool_room.h"
#include "admission/priority_class.h"
#include "admission/whole_responses.h"
#include "routing/prompt_holders.h"

namespace vllm_router {

class FleetView;

class ReplayAdmission {
 public:
  static constexpr int64_t kTickNs = 100'000'000;
  static constexpr uint64_t kTicksPerSearch = 5;

  // What decides a request's place. Tokens of the response are those that the router expects.
  struct Claim {
    PriorityClass of_class = PriorityClass::kDefault;
    uint64_t tenant = 0;
    double weight = 1;
    uint64_t prompt_tokens = 0;
    uint64_t output_tokens = 0;
  };
  struct Ended {
    uint32_t row;
    WaitEnd end;
  };
  // The workers that have the prompt of a row in their caches.
  using Find = std::function<PromptHolders(uint32_t row)>;

  // `max_worker_requests`: 0: no limit.
  ReplayAdmission(std::shared_ptr<const AdmissionSettings> settings, uint32_t max_worker_requests);
  ReplayAdmission(const ReplayAdmission&) = delete;
  ReplayAdmission& operator=(const ReplayAdmission&) = delete;

  // True: it is dispatched, and its worker is to be chosen. False: Enqueue() has to follow.
  bool TryPass(uint32_t row, const Claim& claim, const FleetView& fleet, int64_t now_ns);
  // False: it has no place and is forgotten.
  bool Enqueue(uint32_t row, const PromptHolders& held, int64_t now_ns);
  // Dispatches what has room.
  void Pump(const FleetView& fleet, int64_t now_ns) { pool_.Pump(fleet, Limits(), now_ns); }
  // Timeouts, and every 500 ms what is cached of the prompts that may be dispatched next.
  void Tick(const Find& find, int64_t now_ns);
  // Whose wait is over since the last call, in that order. Those that were not dispatched are forgotten.
  std::vector<Ended> TakeEnded();

  // Positions of workers without room for its class. Empty once it has its worker: a retry is not admitted again.
  WorkerPositions Closed(uint32_t row, const FleetView& fleet, int64_t now_ns) const;
  DispatchKind KindOf(uint32_t row) const { return places_.at(row)->kind; }
  bool IsChoosing(uint32_t row) const { return places_.at(row)->state == State::kChoosing; }
  void Chosen(uint32_t row);
  // Its workers were full: it waits on at its old place. False: it has none, and is forgotten.
  bool WaitAgain(uint32_t row, int64_t now_ns);
  void FirstToken(uint32_t row);
  // `actual`: what it cost (CostOf()); nullopt: what was expected.
  void End(uint32_t row, std::optional<uint64_t> actual);

  size_t waiting() const { return waiting_.size(); }

 private:
  enum class State : uint8_t { kWaiting, kChoosing, kChosen };
  struct Place : ClassPool::Waiter {
    ReplayAdmission* owner = nullptr;
    uint32_t row = 0;
    uint64_t prompt_tokens = 0;
    uint64_t output_tokens = 0;
    State state = State::kWaiting;
    bool prefills = false;  // the pool counts it as a prompt of an idle_only class
    bool charged = false;   // it was dispatched from the queue, and is not settled
  };

  RoomLimits Limits() const;
  void Dispatched(Place* place);
  void EndPrefill(Place* place);
  void Queued(Place* place, int64_t now_ns);
  void EndDue(int64_t now_ns);
  static void OnTold(ClassPool::Waiter* waiter, WaitEnd end);

  const std::shared_ptr<const AdmissionSettings> settings_;
  const uint32_t max_worker_requests_;
  const WholeResponses whole_;  // none: here responses stream
  ClassPool pool_;
  absl::flat_hash_map<uint32_t, std::unique_ptr<Place>> places_;  // by row
  std::set<uint32_t> waiting_;                                    // rows
  // By class, when the wait of a row ends. Some of these rows wait no more.
  std::array<std::deque<std::pair<int64_t, uint32_t>>, kPriorityClasses> deadlines_;
  std::vector<Ended> ended_;
  uint64_t ticks_ = 0;
};

}  // namespace vllm_router
