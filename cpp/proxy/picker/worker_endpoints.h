// WorkerEndpoints: workers as a data plane addresses them, "ip:port", of one fleet. A worker whose URL has a path cannot be
// addressed so, nor one whose name has no address.
//
//   WorkerEndpoints endpoints;
//   if (!WorkerEndpoints::AreLiteral(*fleet)) co_await endpoints.Resolve(fleet, resolver, loop);
//   endpoints.Of(worker)                      "10.0.0.1:8000", or empty
//
// Addresses that URLs spell out cost a parse; names a look-up, which the resolver caches. One thread.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "net/resolver.h"
#include "net/task.h"

namespace vllm_router {

class EventLoop;
class FleetView;
struct Worker;

class WorkerEndpoints {
 public:
  // False: some worker has a name.
  static bool AreLiteral(const FleetView& fleet);
  // Looks up the names of `fleet`, of which the first address counts. A name that has none is left out.
  Task<void> Resolve(std::shared_ptr<const FleetView> fleet, Resolver& resolver, EventLoop& loop);
  // Ends Resolve() soon, in a later turn of the loop.
  void Cancel();

  // Its address without brackets; empty: it has none that a data plane could be told.
  std::string HostOf(const Worker& worker) const;
  std::string Of(const Worker& worker) const;

 private:
  std::map<std::string, std::string, std::less<>> addresses_;  // by name
  std::shared_ptr<Resolver::Waiter> waiter_;                   // null: no look-up is under way
  bool cancelled_ = false;
};

}  // namespace vllm_router
