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
// Only a Ticket writes them, and it subtracts what it added; nothing resets them. Beside them is the load through
// other routers: the same counters as those routers tell them (SetPeers, peer_sync/), and what the worker reported
// beyond both at the last poll (SetPolled, proxy/control/load_poller.h). 0 where nothing tells.
//
//   requests()    open_requests() of this router + of its peers + polled           what policies compare
//   own_...()     of this router alone
//
// All of it is one cache line. Thread-safe, relaxed: a reader sees every counter as it was a moment ago.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>

namespace vllm_router {

// What one request adds to its worker.
struct LoadShare {
  uint32_t queued_prefill = 0;
  uint32_t expected_output = 0;
  uint32_t context = 0;
};

// The five counters at one time.
struct LoadCounts {
  int64_t requests = 0;
  int64_t waiting = 0;
  int64_t queued_prefill = 0;
  int64_t expected_output = 0;
  int64_t context = 0;

  friend bool operator==(const LoadCounts&, const LoadCounts&) = default;
};

class alignas(64) WorkerLoad {
 public:
  int64_t open_requests() const { return Read(open_requests_); }
  int64_t own_waiting() const { return Read(waiting_requests_); }
  int64_t own_queued_prefill() const { return Read(queued_prefill_); }
  int64_t own_expected_output() const { return Read(expected_output_); }
  int64_t own_context() const { return Read(context_); }
  LoadCounts own() const {
    return {open_requests(), own_waiting(), own_queued_prefill(), own_expected_output(), own_context()};
  }

  int64_t peer_requests() const { return Read(peer_requests_); }
  int64_t peer_waiting() const { return Read(peer_waiting_); }
  int64_t polled_requests() const { return Read(polled_requests_); }
  int64_t polled_waiting() const { return Read(polled_waiting_); }
  int64_t remote_requests() const { return peer_requests() + polled_requests(); }
  int64_t remote_waiting() const { return peer_waiting() + polled_waiting(); }

  int64_t requests() const { return open_requests() + remote_requests(); }
  // Those of them whose context is known: all but the polled ones.
  int64_t told_requests() const { return open_requests() + peer_requests(); }
  // Requests without a first token.
  int64_t waiting_requests() const { return own_waiting() + remote_waiting(); }
  int64_t queued_prefill() const { return own_queued_prefill() + Read(peer_queued_prefill_); }
  int64_t expected_output() const { return own_expected_output() + Read(peer_expected_output_); }
  int64_t context() const { return own_context() + Read(peer_context_); }
  int64_t outstanding_tokens() const { return queued_prefill() + expected_output(); }

  // Of the worker's requests beyond those of this router and its peers; `waiting` of them have no first token.
  void SetPolled(int64_t requests, int64_t waiting) {
    Write(requests, &polled_requests_);
    Write(waiting, &polled_waiting_);
  }
  // What all peers have open there.
  void SetPeers(const LoadCounts& counts) {
    Write(counts.requests, &peer_requests_);
    Write(counts.waiting, &peer_waiting_);
    Write(counts.queued_prefill, &peer_queued_prefill_);
    Write(counts.expected_output, &peer_expected_output_);
    Write(counts.context, &peer_context_);
  }

 private:
  friend class Ticket;
  friend struct LoadForTest;  // defined by tests and benchmarks, to set a load without making tickets

  template <typename Number>
  static int64_t Read(const std::atomic<Number>& counter) {
    return counter.load(std::memory_order_relaxed);
  }
  // Others' figures count up to 2^31, far beyond what a worker can hold, so that the counters fit.
  static void Write(int64_t value, std::atomic<int32_t>* counter) {
    constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
    counter->store(static_cast<int32_t>(std::clamp<int64_t>(value, 0, kMost)), std::memory_order_relaxed);
  }

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
    int32_t open = open_requests_.load(std::memory_order_relaxed);
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

  std::atomic<int64_t> queued_prefill_{0};
  std::atomic<int64_t> expected_output_{0};
  std::atomic<int64_t> context_{0};
  std::atomic<int32_t> open_requests_{0};
  std::atomic<int32_t> waiting_requests_{0};
  std::atomic<int32_t> polled_requests_{0};
  std::atomic<int32_t> polled_waiting_{0};
  std::atomic<int32_t> peer_requests_{0};
  std::atomic<int32_t> peer_waiting_{0};
  std::atomic<int32_t> peer_queued_prefill_{0};
  std::atomic<int32_t> peer_expected_output_{0};
  std::atomic<int32_t> peer_context_{0};
};
static_assert(sizeof(WorkerLoad) == 64, "a decision reads one cache line per worker");

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
