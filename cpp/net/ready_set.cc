#include "net/ready_set.h"

#include <sys/epoll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <system_error>
#include <utility>

namespace vllm_router {
namespace {

constexpr size_t kMostPerTurn = 32;
constexpr uint32_t kToRead = EPOLLIN | EPOLLRDHUP | EPOLLET;

int MakeSet() {
  const int set = ::epoll_create1(EPOLL_CLOEXEC);
  if (set < 0) throw std::system_error(errno, std::generic_category(), "epoll_create1");
  return set;
}

epoll_event Event(uint32_t events, ReadySet::Member* member) {
  epoll_event event{};
  event.events = events;
  event.data.ptr = member;
  return event;
}

}  // namespace

ReadySet::ReadySet() : set_(MakeSet()) {}

ReadySet::~ReadySet() { ::close(set_); }

bool ReadySet::Add(int descriptor, Member* member) {
  epoll_event event = Event(kToRead, member);
  return ::epoll_ctl(set_, EPOLL_CTL_ADD, descriptor, &event) == 0;
}

void ReadySet::AwaitWritable(int descriptor, Member* member) {
  epoll_event event = Event(kToRead | EPOLLOUT, member);
  ::epoll_ctl(set_, EPOLL_CTL_MOD, descriptor, &event);
}

void ReadySet::Remove(int descriptor, std::shared_ptr<Member> member) {
  ::epoll_ctl(set_, EPOLL_CTL_DEL, descriptor, nullptr);
  if (in_turn_) removed_.push_back(std::move(member));
}

void ReadySet::Turn() {
  std::array<epoll_event, kMostPerTurn> events;
  const int ready = ::epoll_wait(set_, events.data(), events.size(), 0);
  in_turn_ = true;
  for (int i = 0; i < ready; ++i) {
    static_cast<Member*>(events[static_cast<size_t>(i)].data.ptr)
        ->OnReady(events[static_cast<size_t>(i)].events);
  }
  in_turn_ = false;
  removed_.clear();
}

}  // namespace vllm_router
