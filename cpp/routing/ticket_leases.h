// TicketLeases: the times at which tickets end by themselves, for hosts that may keep one for ever.
// There is no clock and no thread here: code that reads loads calls Expire().
//
//   leases.Set(&ticket, now + 30 s);   // and again: the request is still under way
//   leases.Expire(now);                // those that are due end like those of clients that have gone
//   leases.Remove(&ticket);            // before it is destroyed
//
// Thread-safe.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <set>
#include <unordered_map>
#include <utility>

#include "base/mutex.h"
#include "routing/ticket.h"

namespace vllm_router {

class TicketLeases {
 public:
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

  // The ticket ends at `due`, which replaces an earlier time. It must not move until it is removed or
  // has ended.
  void Set(Ticket* ticket, int64_t due);
  void Remove(Ticket* ticket);  // does nothing if it is not there
  // Ends every ticket that is due at `now`, and drops its lease. Returns how many of them were open.
  size_t Expire(int64_t now);

  // The time of the next one that is due; kNever without any. Cheap.
  int64_t next_due() const { return next_due_.load(std::memory_order_relaxed); }
  // Tickets that were still open when due, in all.
  uint64_t expired() const { return expired_.load(std::memory_order_relaxed); }

 private:
  void RemoveLocked(Ticket* ticket) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void UpdateNextLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Mutex mutex_;
  std::set<std::pair<int64_t, Ticket*>> by_due_ ABSL_GUARDED_BY(mutex_);
  std::unordered_map<Ticket*, int64_t> due_ ABSL_GUARDED_BY(mutex_);
  std::atomic<int64_t> next_due_{kNever};
  std::atomic<uint64_t> expired_{0};
};

}  // namespace vllm_router
