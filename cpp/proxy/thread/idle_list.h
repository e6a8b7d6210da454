// IdleList: a thread's client connections that wait for a request, or for the rest of its head, in the
// order in which they began to wait. At the connection limit, the first of them is closed in favour of a
// new one.
//
//   longest idle  [a] <-> [b] <-> [c]  last    Enter() appends, Leave() unlinks; a connection that becomes
//                  ^                           busy leaves, and enters again at the end when idle again
//                  Find() starts here
//
// A connection whose request has arrived but has not been read yet must not be closed, so Find() checks
// each candidate. It checks at most kMaxLooks of them, which bounds its cost after a burst of requests.
//
// The list is intrusive: no allocation, O(1), a few nanoseconds. It belongs to one thread. Other threads
// may only Claim() one of its connections. Claims never exceed the number of connections in the list;
// the owner closes one for each claim.
//
//   struct Connection : IdleList::Member { … };
//   idle.Enter(this);                                       // after a response
//   idle.Leave(this);                                       // a request has come
//   IdleList::Member* longest = idle.Find([](IdleList::Member& member) { return !HasRequest(member); });
#pragma once

#include <atomic>
#include <cstdint>

namespace vllm_router {

class IdleList {
 public:
  static constexpr int kMaxLooks = 16;

  class Member {
   public:
    Member() = default;
    Member(const Member&) = delete;
    Member& operator=(const Member&) = delete;
    bool is_idle() const { return next_ != nullptr; }

   protected:
    ~Member() = default;

   private:
    friend class IdleList;
    Member* next_ = nullptr;
    Member* previous_ = nullptr;
  };

  IdleList() { ends_.next_ = ends_.previous_ = &ends_; }

  // REQUIRES: not idle.
  void Enter(Member* member) {
    member->previous_ = ends_.previous_;
    member->next_ = &ends_;
    ends_.previous_->next_ = member;
    ends_.previous_ = member;
    Publish(size() + 1);
  }

  // No effect on a member that is not idle.
  void Leave(Member* member) {
    if (!member->is_idle()) return;
    member->previous_->next_ = member->next_;
    member->next_->previous_ = member->previous_;
    member->next_ = member->previous_ = nullptr;
    Publish(size() - 1);
  }

  // The longest idle member for which `may_close(Member&)`, among the first kMaxLooks; null if there is
  // none.
  template <typename MayClose>
  Member* Find(MayClose may_close) {
    int looks = 0;
    for (Member* member = ends_.next_; member != &ends_ && looks < kMaxLooks; ++looks) {
      Member* const next = member->next_;
      if (may_close(*member)) return member;
      member = next;
    }
    return nullptr;
  }

  // Any thread.
  int64_t size() const { return size_.load(std::memory_order_relaxed); }

  // Any thread. Whether the caller got a member: the owner must close one and call EndClaim().
  bool Claim() {
    if (claims_.fetch_add(1, std::memory_order_relaxed) < size()) return true;
    EndClaim();
    return false;
  }
  void EndClaim() { claims_.fetch_sub(1, std::memory_order_relaxed); }

 private:
  struct Ends : Member {};

  // Only the owner writes it, so no locked instruction is needed.
  void Publish(int64_t size) { size_.store(size, std::memory_order_relaxed); }

  Ends ends_;
  std::atomic<int64_t> size_{0};
  std::atomic<int64_t> claims_{0};
};

}  // namespace vllm_router
