// WorkerLoad: a worker's load through this router, in five counters (docs/reference/policies.md,
// "Load").
//
//   counter              unit      grows when a ticket is made by    shrinks
//   open_requests        requests  1                                 when the ticket ends
//   waiting_requests     requests  1                                 at the first token, or at the end
//   queued_prefill       tokens    prompt tokens to compute          at the first token, or at the end
//   expected_output      tokens    estimated output                  when the ticket ends
//   context              tokens    prompt tokens                     when the ticket ends
//
// Only a Ticket writes them, and it subtracts what it added; nothing resets them. Beside them is the
// load through other routers, as the worker reported it at the last poll (proxy/control/load_poller.h);
// 0 without polls. Thread-safe, relaxed: a reader sees every counter as it was a moment ago.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace vllm_router {

// What one request adds to its worker.
struct LoadShare {
  uint32_t queued_prefill = 0;
  uint32_t expected_output = 0;
  uint32_t context = 0;
};

class alignas(64) WorkerLoad {
 public:
  int64_t open_requests() const { return open_requests_.load(std::memory_order_relaxed); }
  int64_t remote_requests() const { return remote_requests_.load(std::memory_order_relaxed); }
  int64_t requests() const { return open_requests() + remote_requests(); }  // what policies compare
  // Requests without a first token: through this router, and of all.
  int64_t own_waiting() const { return waiting_requests_.load(std::memory_order_relaxed); }
  int64_t remote_waiting() const { return remote_waiting_.load(std::memory_order_relaxed); }
  int64_t waiting_requests() const { return own_waiting() + remote_waiting(); }
  int64_t queued_prefill() const { return queued_prefill_.load(std::memory_order_relaxed); }
  int64_t expected_output() const { return expected_output_.load(std::memory_order_relaxed); }
  int64_t context() const { return context_.load(std::memory_order_relaxed); }
  int64_t outstanding_tokens() const { return queued_prefill() + expected_output(); }

  // Through other routers; `waiting` of the `requests` have no first token.
  void SetRemote(int64_t requests, int64_t waiting) {
    remote_requests_.store(requests, std::memory_order_relaxed);
    remote_waiting_.store(waiting, std::memory_order_relaxed);
  }

 private:
  friend class Ticket;
  friend struct LoadForTest;  // defined by tests and benchmarks, to set a load without making tickets

  void Take(const LoadShare& share) {
    open_requests_.fetch_add(1, std::memory_order_relaxed);
    TakeRest(share);
  }
  void TakeRest(const LoadShare& share) {
    waiting_requests_.fetch_add(1, std::memory_order_relaxed);
    if (share.queued_prefill != 0) queued_prefill_.fetch_add(share.queued_prefill, std::memory_order_relaxed);
    if (share.expected_output != 0)
      expected_output_.fetch_add(share.expected_output, std::memory_order_relaxed);
    if (share.context != 0) context_.fetch_add(share.context, std::memory_order_relaxed);
  }
  // The same unless at least `most` requests are open already.
  bool TakeBelow(const LoadShare& share, int64_t most) {
    int64_t open = open_requests_.load(std::memory_order_relaxed);
    do {
      if (open >= most) return false;
    } while (!open_requests_.compare_exchange_weak(open, open + 1, std::memory_order_relaxed));
    TakeRest(share);
    return true;
  }
  // The first token came.
  void EndWait(const LoadShare& share) {
    waiting_requests_.fetch_sub(1, std::memory_order_relaxed);
    if (share.queued_prefill != 0) queued_prefill_.fetch_sub(share.queued_prefill, std::memory_order_relaxed);
  }
  // `waits`: the first token has not come.
  void Return(const LoadShare& share, bool waits) {
    open_requests_.fetch_sub(1, std::memory_order_relaxed);
    if (waits) EndWait(share);
    if (share.expected_output != 0)
      expected_output_.fetch_sub(share.expected_output, std::memory_order_relaxed);
    if (share.context != 0) context_.fetch_sub(share.context, std::memory_order_relaxed);
  }

  std::atomic<int64_t> open_requests_{0};
  std::atomic<int64_t> waiting_requests_{0};
  std::atomic<int64_t> queued_prefill_{0};
  std::atomic<int64_t> expected_output_{0};
  std::atomic<int64_t> context_{0};
  std::atomic<int64_t> remote_requests_{0};
  std::atomic<int64_t> remote_waiting_{0};
};

// Loads side by side, one cache line each, since a decision reads those of a whole fleet. Inside their
// workers they would be a kilobyte apart, and would compete for few sets of a cache. A page lives as
// long as one of its workers. One thread at a time.
class LoadPages {
 public:
  std::shared_ptr<WorkerLoad> New() {
    if (page_ == nullptr || used_ == page_->size()) {
      page_ = std::make_shared<Page>();
      used_ = 0;
    }
    return {page_, &(*page_)[used_++]};
  }

 private:
  using Page = std::array<WorkerLoad, 64>;

  std::shared_ptr<Page> page_;  // the last one
  size_t used_ = 0;             // slots of it
};

}  // namespace vllm_router
