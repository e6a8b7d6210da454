// Resolver: names to addresses without blocking the loop, remembered for a while. Literal addresses cost nothing.
//
//   StatusOr<std::vector<Address>> addresses = co_await resolver.Resolve("gpu-0");
//
// An answer is kept 30 s; when asking again fails, the old answer goes on. One loop.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/status.h"
#include "net/event_loop.h"
#include "net/socket.h"
#include "net/task.h"

namespace vllm_router {

class Resolver {
 public:
  explicit Resolver(EventLoop& loop);

  // What is known without asking: a literal, or a fresh answer. Null otherwise.
  const std::vector<Address>* Known(const std::string& host);
  Task<StatusOr<std::vector<Address>>> Resolve(std::string host);

 private:
  struct Entry {
    std::vector<Address> addresses;
    int64_t fresh_until_ns = 0;
  };
  EventLoop& loop_;
  std::map<std::string, Entry> entries_;
};

}  // namespace vllm_router
