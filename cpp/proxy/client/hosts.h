// Calls to the hosts of a fleet: one per host, however many ranks it has, and a limited number at a
// time.
//
//   const std::vector<uint32_t> hosts = HostsOf(fleet);            // a position of each
//   co_await ForEach(hosts.size(), 64, [&](size_t i) -> Task<void> { … });
//
// Returns when all calls have ended. To end them early, the caller cancels them
// (proxy/client/http_client.h: CancelScope). One thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string_view>
#include <vector>

#include "net/task.h"
#include "worker/fleet_view.h"

namespace vllm_router {

// The first member of each host, in fleet order.
inline std::vector<uint32_t> HostsOf(const FleetView& fleet) {
  std::vector<uint32_t> hosts;
  std::set<std::string_view> seen;
  for (uint32_t position = 0; position < fleet.members().size(); ++position) {
    if (seen.insert(fleet.worker(position).url.base).second) hosts.push_back(position);
  }
  return hosts;
}

// `each`: Task<void>(size_t), called for 0 to count - 1 in order; at most `at_once` of them run at a
// time.
template <typename Each>
Task<void> ForEach(size_t count, size_t at_once, Each each) {
  struct State {
    Each& each;
    const size_t count;
    size_t next = 0;
    size_t running = 0;
    Signal all_done;
  } state{each, count};
  state.running = std::min(count, at_once);
  const size_t coroutines = state.running;
  for (size_t i = 0; i < coroutines; ++i) {
    Spawn([](State& state) -> Task<void> {
      while (state.next < state.count) co_await state.each(state.next++);
      if (--state.running == 0) state.all_done.Notify();
    }(state));
  }
  while (state.running > 0) co_await state.all_done;
}

}  // namespace vllm_router
