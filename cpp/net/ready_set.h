// ReadySet: which of a loop's sockets are ready. It is an edge-triggered epoll set: a socket is
// registered once for its life, and waiting for it costs no system call.
//
//   sockets ──> [ReadySet]──one descriptor──> EventLoop's Asio ──Turn()──> OnReady() of each that is ready
//
// Asio would register every wait anew (epoll_ctl, two per request of a proxy) and delivers ready sockets
// one by one. Here all ready sockets come in one turn, and what they send is sent together
// (EventLoop::TurnEnd). The cost of edge triggering: a member is notified once and must remember it. One
// thread.
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

  ReadySet();  // throws std::system_error if no descriptor is left
  ~ReadySet();
  ReadySet(const ReadySet&) = delete;
  ReadySet& operator=(const ReadySet&) = delete;

  // Readable when a member is ready.
  int descriptor() const { return set_; }

  // Notifies the member once for each batch of readable bytes, ends included. False: errno has the
  // reason.
  bool Add(int descriptor, Member* member);
  // Also notifies it once when it is writable, at once if it is now.
  void AwaitWritable(int descriptor, Member* member);
  // REQUIRES: the descriptor is still open. To close it is not enough: the kernel removes a socket that no process
  // has open, and a child process has all of them until it executes its program. Keeps the member alive until the
  // turn is over.
  void Remove(int descriptor, std::shared_ptr<Member> member);

  // Notifies the ready members, a few at a time, so that the loop's other work gets its turn.
  void Turn();

 private:
  const int set_;
  bool in_turn_ = false;
  std::vector<std::shared_ptr<Member>> removed_;
};

}  // namespace vllm_router
