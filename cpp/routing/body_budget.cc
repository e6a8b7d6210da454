#include "routing/body_budget.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/check.h"

namespace vllm_router {
namespace {

// The exponent of the smallest power of two that is not less.
size_t ClassOf(uint64_t need) { return static_cast<size_t>(std::bit_width(need - 1)); }

}  // namespace

uint64_t BodyBudget::in_use() const {
  MutexLock lock(mutex_);
  return in_use_;
}

uint32_t BodyBudget::waiting() const {
  MutexLock lock(mutex_);
  return growers_.size + newcomers_.size;
}

BodyBudget::Entry BodyBudget::Grow(Member& member, uint64_t to, uint64_t need) {
  ROUTER_CHECK(member.held_ < to && to <= need, "a body grows, up to its need");
  if (need > total_) return Entry::kNever;
  MutexLock lock(mutex_);
  member.wanted_ = to;
  member.need_ = need;
  const bool grows = member.state_ == Member::State::kGrowing;
  const bool overtakes = growers_.front != nullptr || (!grows && newcomers_.front != nullptr);
  if ((!overtakes || &member == privileged_) && Grantable(member)) {
    Grant(member);
    return Entry::kHeld;
  }
  if (member.state_ == Member::State::kComplete) return Entry::kNever;
  member.waiting_ = true;
  Link(QueueOf(member), member);
  return Entry::kWaiting;
}

bool BodyBudget::TryKeep(Member& member, uint64_t bytes) {
  MutexLock lock(mutex_);
  const bool room = in_use_ < total_ / 2 && bytes <= total_ - in_use_ && growers_.front == nullptr &&
                    newcomers_.front == nullptr;
  if (!room) return false;
  member.state_ = Member::State::kComplete;
  member.held_ = bytes;
  in_use_ += bytes;
  return true;
}

bool BodyBudget::GrowNow(Member& member, uint64_t to) {
  MutexLock lock(mutex_);
  const uint64_t more = to - member.held_;
  const bool room = more <= total_ - in_use_ && growers_.front == nullptr && newcomers_.front == nullptr;
  if (!room) return false;
  member.state_ = Member::State::kComplete;
  member.held_ = to;
  in_use_ += more;
  return true;
}

void BodyBudget::Complete(Member& member, uint64_t bytes) {
  Member* granted;
  {
    MutexLock lock(mutex_);
    if (member.state_ == Member::State::kOutside) return;
    StopGrowing(member);
    in_use_ -= member.held_ - bytes;
    member.held_ = bytes;
    granted = Pass();
  }
  Tell(granted);
}

void BodyBudget::Release(Member& member) {
  Member* granted;
  {
    MutexLock lock(mutex_);
    if (member.state_ == Member::State::kOutside) return;
    StopGrowing(member);
    in_use_ -= std::exchange(member.held_, 0);
    member.state_ = Member::State::kOutside;
    granted = Pass();
  }
  Tell(granted);
}

bool BodyBudget::Leave(Member& member) {
  Member* granted;
  {
    MutexLock lock(mutex_);
    if (!member.waiting_) return false;
    Unlink(QueueOf(member), member);
    granted = Pass();  // those behind it may fit although it did not
  }
  Tell(granted);
  return true;
}

uint64_t BodyBudget::LargestNeed(uint64_t need) const {
  const uint64_t classes = classes_ | (uint64_t{1} << ClassOf(need));
  return std::min(total_, uint64_t{1} << (std::bit_width(classes) - 1));
}

bool BodyBudget::Grantable(const Member& member) const {
  const uint64_t more = member.wanted_ - member.held_;
  if (more > total_ - in_use_) return false;
  if (&member == privileged_) return true;
  const uint64_t others = growing_ - (member.state_ == Member::State::kGrowing ? member.held_ : 0);
  if (privileged_ == nullptr) return others + member.need_ <= total_;
  return others - privileged_->held_ + member.wanted_ + LargestNeed(member.need_) <= total_;
}

void BodyBudget::Grant(Member& member) {
  if (member.state_ != Member::State::kGrowing) {
    member.state_ = Member::State::kGrowing;
    growing_ += member.held_;
    const size_t index = ClassOf(member.need_);
    ++needs_[index];
    classes_ |= uint64_t{1} << index;
  }
  if (privileged_ == nullptr) privileged_ = &member;
  const uint64_t more = member.wanted_ - member.held_;
  member.held_ = member.wanted_;
  growing_ += more;
  in_use_ += more;
}

void BodyBudget::StopGrowing(Member& member) {
  if (member.state_ != Member::State::kGrowing) return;
  member.state_ = Member::State::kComplete;
  growing_ -= member.held_;
  const size_t index = ClassOf(member.need_);
  if (--needs_[index] == 0) classes_ &= ~(uint64_t{1} << index);
  if (privileged_ == &member) privileged_ = nullptr;
}

BodyBudget::Member* BodyBudget::Pass() {
  Member* first = nullptr;
  Member** last = &first;
  for (;;) {
    Member* next = growers_.front != nullptr ? growers_.front : newcomers_.front;
    if (privileged_ != nullptr && privileged_->waiting_ && Grantable(*privileged_)) next = privileged_;
    if (next == nullptr || !Grantable(*next)) return first;
    Unlink(QueueOf(*next), *next);
    Grant(*next);
    *last = next;
    last = &next->next_;
  }
}

void BodyBudget::Link(Queue& queue, Member& member) {
  member.previous_ = queue.back;
  member.next_ = nullptr;
  (queue.back != nullptr ? queue.back->next_ : queue.front) = &member;
  queue.back = &member;
  ++queue.size;
}

void BodyBudget::Unlink(Queue& queue, Member& member) {
  (member.previous_ != nullptr ? member.previous_->next_ : queue.front) = member.next_;
  (member.next_ != nullptr ? member.next_->previous_ : queue.back) = member.previous_;
  member.next_ = member.previous_ = nullptr;
  member.waiting_ = false;
  --queue.size;
}

// A member may be destroyed as soon as it was notified.
void BodyBudget::Tell(Member* granted) {
  while (granted != nullptr) {
    Member* const member = granted;
    granted = member->next_;
    member->next_ = nullptr;
    member->granted_(member->context_);
  }
}

}  // namespace vllm_router
