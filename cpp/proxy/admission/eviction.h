// Eviction: the part of one request in evictions (admission/evictables.h), kept in its RequestState. It stands before the
// request's ClassDispatch as the gate of its attempts:
//
//   of the highest class    Chosen()  ──▶ another request may be evicted from the worker
//   of one that is evicted  Chosen()  ──▶ it may be evicted, until a worker responds or its first attempt is over
//                           evicted   ──▶ its attempt ends, and WaitAgain() has it wait at the front of its queue
//
// Another thread's request evicts this one by a post to this one's thread. One thread.
#pragma once

#include <cstdint>
#include <memory>

#include "admission/evictables.h"
#include "net/task.h"
#include "proxy/admission/class_dispatch.h"
#include "proxy/exchange/worker_gate.h"
#include "worker/worker.h"

namespace vllm_router {

struct Request;
struct ThreadClasses;

class Eviction final : public WorkerGate {
 public:
  // All outlive it.
  Eviction(Request& request, ThreadClasses& thread, ClassDispatch& dispatch)
      : request_(request), thread_(thread), dispatch_(dispatch) {}
  ~Eviction() override { Withdraw(); }
  Eviction(const Eviction&) = delete;
  Eviction& operator=(const Eviction&) = delete;

  Positions Closed(const FleetView& fleet) const override { return dispatch_.Closed(fleet); }
  void Chosen(const Ticket* ticket) override;
  Task<Verdict> WaitAgain() override;

  // It may not be evicted any more. Once is enough.
  void Withdraw();

 private:
  // What a post finds of it.
  struct Listing {
    Eviction* of;  // null: it has withdrawn
  };

  void List(const Ticket& ticket);
  void Evict();

  Request& request_;
  ThreadClasses& thread_;
  ClassDispatch& dispatch_;
  std::shared_ptr<Listing> listing_;  // null: it is not listed
  WorkerId worker_{};                 // where it is
  Evictables::Number number_ = 0;
  uint32_t evictions_ = 0;
  bool chosen_ = false;   // it has had an attempt since it last waited
  bool evicted_ = false;  // and is to wait again
};

}  // namespace vllm_router
