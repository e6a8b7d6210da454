// ReadySet: which of a loop's sockets have something to tell. An epoll set, edge-triggered: a socket is entered once,
// for its life, and waiting for it costs no system call.
//
//   sockets ──> [ReadySet]──one descriptor──> EventLoop's Asio ──Turn()──> OnReady() of each that is ready
//
// Asio would enter every wait anew (epoll_ctl, two per request of a proxy) and hands out ready sockets one by one; here
// all that are ready come in one turn, and what they send is sent together (EventLoop::TurnEnd). The price of edges:
// a member is told once, and has to remember. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace vllm_router {

class ReadySet {
 public:
  class Member {
   public:
    virtual void OnReady(
        uint32_t events) = 0;  // EPOLL…; may be called once more after Remove(), in the same turn

   protected:
    ~Member() = default;
  };

  ReadySet();  // throws std::system_error when there is no descriptor left
  ~ReadySet();
  ReadySet(const ReadySet&) = delete;
  ReadySet& operator=(const ReadySet&) = delete;

  // Readable when a member is ready.
  int descriptor() const { return set_; }

  // Tells of all that there is to read, ends included, once each. False: errno says why.
  bool Add(int descriptor, Member* member);
  // And when it is writable: once, and at once if it is now.
  void AwaitWritable(int descriptor, Member* member);
  // Before closing the descriptor. Keeps the member until the turn is over.
  void Remove(std::shared_ptr<Member> member);

  // Tells the members that are ready now; some at a time, so that the rest of the loop gets its turn, too.
  void Turn();

 private:
  const int set_;
  bool in_turn_ = false;
  std::vector<std::shared_ptr<Member>> removed_;
};

}  // namespace vllm_router
