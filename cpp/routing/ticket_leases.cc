#include "routing/ticket_leases.h"

namespace vllm_router {

void TicketLeases::Set(Ticket* ticket, int64_t due) {
  const MutexLock lock(mutex_);
  RemoveLocked(ticket);
  due_.emplace(ticket, due);
  by_due_.emplace(due, ticket);
  UpdateNextLocked();
}

void TicketLeases::Remove(Ticket* ticket) {
  const MutexLock lock(mutex_);
  RemoveLocked(ticket);
  UpdateNextLocked();
}

size_t TicketLeases::Expire(int64_t now) {
  if (now < next_due()) return 0;
  // Under the lock, so that no ticket is destroyed meanwhile: Remove() waits.
  const MutexLock lock(mutex_);
  size_t ended = 0;
  while (!by_due_.empty() && by_due_.begin()->first <= now) {
    Ticket* const ticket = by_due_.begin()->second;
    RemoveLocked(ticket);
    if (ticket->Finish({.end = Outcome::End::kClientGone})) ++ended;
  }
  UpdateNextLocked();
  expired_.fetch_add(ended, std::memory_order_relaxed);
  return ended;
}

void TicketLeases::RemoveLocked(Ticket* ticket) {
  const auto found = due_.find(ticket);
  if (found == due_.end()) return;
  by_due_.erase({found->second, ticket});
  due_.erase(found);
}

void TicketLeases::UpdateNextLocked() {
  next_due_.store(by_due_.empty() ? kNever : by_due_.begin()->first, std::memory_order_relaxed);
}

}  // namespace vllm_router
