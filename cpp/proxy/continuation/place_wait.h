// PlaceWait: a stream's wait for a place at another worker, while all that may have it are at --max-worker-requests.
//
//   PlaceWait wait(request, waiting);
//   while (!chosen) {
//     const bool is_told = co_await wait.Next();   // false: --continue-wait-secs are over, or the request is cancelled
//     …                                            // true: there may be a place; try
//   }
//   wait.Found(fleet);
//
// The request gives its permit back and waits in the queue for one again. It came before all that are queued, so it stands in
// front of them (routing/concurrency_limiter.h), behind other streams that wait for longer; and no request takes a permit
// past a queue. So the next place that a worker has is its. While the queue has no room for it, it keeps its permit and looks
// for a place now and then. After Next() was false it may have no permit.
//
// It is counted in `waiting` from the first Next() on. One thread.
#pragma once

#include <atomic>
#include <cstdint>

#include "net/task.h"

namespace vllm_router {

class FleetView;
struct Request;

class PlaceWait {
 public:
  // Both outlive it.
  PlaceWait(Request& request, std::atomic<uint32_t>& waiting) : request_(request), waiting_(waiting) {}
  ~PlaceWait();
  PlaceWait(const PlaceWait&) = delete;
  PlaceWait& operator=(const PlaceWait&) = delete;

  Task<bool> Next();
  // If more workers of `fleet` have places, the next one in the queue need not wait for the end of a request.
  void Found(const FleetView& fleet);

 private:
  Task<bool> Look();

  Request& request_;
  std::atomic<uint32_t>& waiting_;
  int64_t until_ns_ = 0;  // 0: not begun
  int64_t asked_ns_ = 0;  // the last Next()
  bool was_queued_ = false;
};

}  // namespace vllm_router
