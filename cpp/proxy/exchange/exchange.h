// Exchange: one request and its response, from the first byte of the head to the last byte relayed. It runs the steps
// of its server (step.h), one after the other, over a Request and its Downstream:
//
//   Connection ──▶ Exchange ──▶ step, step, …, step ──▶ Finish()
//                     │            └── Request, Downstream
//                     └── Cancel(reason): ends what the step waits for
//
// Every exchange reaches Finish(): the Ticket returns the load, the Lease returns the connection to the worker, and one
// record is written. An event that ends it early (the client leaves, a deadline passes, the server stops) calls
// Cancel(), which ends whatever is awaited; the coroutine resumes, sees the reason, and unwinds. One thread.
#pragma once

#include <cstddef>
#include <vector>

#include "net/frame_pool.h"
#include "net/task.h"
#include "proxy/exchange/downstream.h"
#include "proxy/exchange/request.h"

namespace vllm_router {

struct AdminReply;

class Exchange {
 public:
  explicit Exchange(Connection& connection);
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;
  static void* operator new(size_t size) { return FramePool::Acquire(size); }
  static void operator delete(void* exchange, size_t size) noexcept { FramePool::Release(exchange, size); }

  // Afterwards connection.keep says whether another request may follow.
  Task<void> Run();

  // The first reason counts. Any time on the thread.
  void Cancel(CancelReason reason);

  // A long operation of the router's own, or a wait for a worker of a model, which may take minutes: a stopping server
  // does not wait for it.
  bool IsLongRunning() const { return request_.scope.is_long(); }
  bool IsAt(const Worker& worker) const {
    return request_.attempts->IsAt(worker) || AttemptsBeside(worker) != nullptr;
  }
  bool IsWriting(const AdminReply& page) const { return client_.IsWriting(page); }
  // A worker of the exchange was found dead: a response that has begun gets a grace, any other attempt ends
  // now.
  void WorkerDied(const Worker& worker);
  // A worker of the exchange drains, and its time is over: a response that has begun is cut, any other attempt
  // ends now, and another worker gets the request.
  void WorkerDrained(const Worker& worker);
  // A worker of the exchange drains, and its time goes on: a stream that another worker may finish goes there.
  void WorkerDrains(const Worker& worker);
  // As those of Attempts.
  void AddWaits(const Worker& worker, size_t* reads_bodies, std::vector<HangDetector::Wait>* waits) {
    if (IsAt(worker)) request_.attempts->AddWaits(worker, reads_bodies, waits);
  }
  bool MoveFrom(const Worker& worker, const HangDetector::Doubt& doubt, size_t* reads_bodies) {
    return IsAt(worker) && request_.attempts->MoveFrom(worker, doubt, reads_bodies);
  }

 private:
  Attempts* AttemptsBeside(const Worker& worker) const;
  void Finish();
  void Record();
  void RecordEnd();
  void FinishTicket(Ticket& ticket);

  Request request_;
  Downstream client_;
};

}  // namespace vllm_router
