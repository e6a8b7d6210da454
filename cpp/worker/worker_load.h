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

  // Of other routers: those that a poll alone tells of, those of peers, and both.
  int64_t polled_requests() const { return Low(polled_); }
  int64_t polled_waiting() const { return High(polled_); }
  int64_t peer_requests() const { return std::max<int64_t>(0, remote_requests() - polled_requests()); }
  int64_t peer_waiting() const { return std::max<int64_t>(0, remote_waiting() - polled_waiting()); }
  int64_t remote_requests() const { return Low(remote_); }
  int64_t remote_waiting() const { return High(remote_); }

  int64_t requests() const { return open_requests() + remote_requests(); }
  // Requests without a first token.
  int64_t waiting_requests() const { return own_waiting() + remote_waiting(); }
  int64_t queued_prefill() const { return own_queued_prefill() + Low(peer_tokens_); }
  int64_t expected_output() const { return own_expected_output() + Read(peer_expected_output_); }
  int64_t context() const { return own_context() + High(peer_tokens_); }
  int64_t outstanding_tokens() const { return queued_prefill() + expected_output(); }

  // What a decision reads of it, each counter once.
  struct Reading {
    int64_t queued;    // of requests whose tokens are known
    int64_t context;   // likewise
    int64_t waiting;   // requests
    int64_t requests;  // all
    int64_t polled;    // of them, those whose tokens are not known
    int64_t polled_waiting;

    void Add(const Reading& other) {
      queued += other.queued;
      context += other.context;
      waiting += other.waiting;
      requests += other.requests;
      polled += other.polled;
      polled_waiting += other.polled_waiting;
    }
  };
  Reading ReadForDecision() const {
    Reading all = ReadOwn();
    all.Add(ReadOthers());
    return all;
  }
  // The part of this router, and of all others. For a loop over a fleet: what others_known() is 0 for has no second
  // part.
  Reading ReadOwn() const {
    return {own_queued_prefill(), own_context(), own_waiting(), open_requests(), 0, 0};
  }
  Reading ReadOthers() const {
    const uint64_t remote = remote_.load(std::memory_order_relaxed);
    const uint64_t polled = polled_.load(std::memory_order_relaxed);
    const uint64_t tokens = peer_tokens_.load(std::memory_order_relaxed);
    return {LowOf(tokens), HighOf(tokens), HighOf(remote), LowOf(remote), LowOf(polled), HighOf(polled)};
  }
  uint64_t others_known() const {
    return remote_.load(std::memory_order_relaxed) | polled_.load(std::memory_order_relaxed) |
           peer_tokens_.load(std::memory_order_relaxed);
  }

  // Of the worker's requests beyond those of this router and its peers; `waiting` of them have no first token.
  // REQUIRES: waiting <= requests. One thread at a time, as the next; both may be called at once.
  void SetPolled(int64_t requests, int64_t waiting) {
    const uint64_t now = Pair(requests, waiting);
    const uint64_t before = polled_.exchange(now, std::memory_order_relaxed);
    remote_.fetch_add(now - before, std::memory_order_relaxed);
  }
  // What all peers have open there, which was `before` at the last call.
  void SetPeers(const LoadCounts& counts, const LoadCounts& before) {
    remote_.fetch_add(
        Pair(counts.requests, counts.waiting) - Pair(before.requests, before.waiting),
        std::memory_order_relaxed);
    peer_tokens_.store(Pair(counts.queued_prefill, counts.context), std::memory_order_relaxed);
    peer_expected_output_.store(
        static_cast<uint32_t>(Clamped(counts.expected_output)), std::memory_order_relaxed);
  }

 private:
  friend class Ticket;
  friend struct LoadForTest;  // defined by tests and benchmarks, to set a load without making tickets

  template <typename Number>
  static int64_t Read(const std::atomic<Number>& counter) {
    return counter.load(std::memory_order_relaxed);
  }
  // Others' figures count up to 2^31, far beyond what a worker can hold, so that two fit into one word. Words are
  // added and subtracted as a whole: the halves of a sum never overflow.
  static uint64_t Clamped(int64_t value) {
    return static_cast<uint64_t>(std::clamp<int64_t>(value, 0, std::numeric_limits<int32_t>::max()));
  }
  static uint64_t Pair(int64_t low, int64_t high) { return Clamped(high) << 32 | Clamped(low); }
  static int64_t LowOf(uint64_t pair) { return static_cast<uint32_t>(pair); }
  static int64_t HighOf(uint64_t pair) { return static_cast<int64_t>(pair >> 32); }
  static int64_t Low(const std::atomic<uint64_t>& pair) {
    return LowOf(pair.load(std::memory_order_relaxed));
  }
  static int64_t High(const std::atomic<uint64_t>& pair) {
    return HighOf(pair.load(std::memory_order_relaxed));
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
  std::atomic<uint64_t> remote_{0};       // requests, waiting: of all other routers
  std::atomic<uint64_t> polled_{0};       // requests, waiting: of them, those that a poll alone tells of
  std::atomic<uint64_t> peer_tokens_{0};  // queued_prefill, context
  std::atomic<uint32_t> peer_expected_output_{0};
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
