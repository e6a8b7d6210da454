// SharedRefresh: when to refresh a value that takes time to get. However many requests need it, one
// refresh runs at a time, and none starts while the value is fresh.
//
//   age of the value     0 ------- fresh ----------------------------- usable ------------->
//   requested            serve it  refresh, or join the one that runs; refresh, or join;
//                                  serve the value if that takes long  wait for the end
//
// A value made for another version of its input (the fleet's membership) is not fresh, but may be served
// while its successor takes long. Pure: time and versions come from the caller, which also locks.
//
//   SharedRefresh refresh(1'000'000'000, 60'000'000'000);
//   if (refresh.Ask(now, version) == SharedRefresh::Next::kStart) …    // then, when it is done:
//   refresh.End(now);
#pragma once

#include <cstdint>

namespace vllm_router {

class SharedRefresh {
 public:
  SharedRefresh(int64_t fresh_ns, int64_t usable_ns) : fresh_ns_(fresh_ns), usable_ns_(usable_ns) {}

  enum class Next : uint8_t {
    kServe,  // the value
    kStart,  // a refresh, which is running from now on
    kJoin,   // the one that runs
  };
  Next Ask(int64_t now_ns, uint64_t version) {
    if (known_ && version == version_ && now_ns - taken_ns_ < fresh_ns_) return Next::kServe;
    if (running_) return Next::kJoin;
    running_ = true;
    begun_ns_ = now_ns;
    next_version_ = version;
    return Next::kStart;
  }

  // Whether the value may be served if its successor takes long.
  bool IsUsable(int64_t now_ns) const { return known_ && now_ns - taken_ns_ < usable_ns_; }

  // When the running or last refresh began.
  int64_t begun_ns() const { return begun_ns_; }

  // The refresh has ended and there is a new value.
  void End(int64_t now_ns) {
    running_ = false;
    known_ = true;
    taken_ns_ = now_ns;
    version_ = next_version_;
  }

 private:
  const int64_t fresh_ns_;
  const int64_t usable_ns_;
  bool known_ = false;
  bool running_ = false;
  int64_t begun_ns_ = 0;
  int64_t taken_ns_ = 0;
  uint64_t version_ = 0;  // of what the value was made for
  uint64_t next_version_ = 0;
};

}  // namespace vllm_router
