// PdEventQueue: a PdMachine (disaggregation/pd_machine.h) whose actions may post events. An event that is posted while
// the actions of another are done is stepped after these, so that no step is interrupted by what it causes.
//
//   Post(event, act) ─▶ Step(event) ─▶ act(action), act(action), …     one of them posts a further event
//                 ▲                                      │
//                 `── the next in the queue ◀────────────┘
//
// One thread.
#pragma once

#include <cstddef>
#include <vector>

#include "disaggregation/pd_machine.h"

namespace vllm_router {

class PdEventQueue {
 public:
  explicit PdEventQueue(PdCancelPrefill cancel_prefill) : machine_(cancel_prefill) {}

  const PdMachine& machine() const { return machine_; }

  // Whether all events have been stepped; false: `act` has posted this one, which is stepped later.
  template <typename Act>
  bool Post(const PdEvent& event, const Act& act) {
    events_.push_back(event);
    if (stepping_) return false;
    stepping_ = true;
    for (size_t i = 0; i < events_.size(); ++i) {
      const PdEvent next = events_[i];
      for (const PdAction action : machine_.Step(next)) act(action);
    }
    events_.clear();
    stepping_ = false;
    return true;
  }

 private:
  PdMachine machine_;
  std::vector<PdEvent> events_;  // to be stepped
  bool stepping_ = false;
};

}  // namespace vllm_router
