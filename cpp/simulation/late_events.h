// LateEvents: what simulated caches hold as KV events tell it, with a delay.
//
//   BlockPool --Change--> (late) --Deliver()--> names per engine, for comparison policies
//                                           `-> ReportedBlocks of each router, for the product's own
//
// No event is lost, so each router trusts what it hears as exact. A block whose predecessor an engine no longer
// has is left out, since no prompt can meet it.
//
// Cost: some 100 ns per event, and 200 per router with an index. One thread.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include <absl/container/flat_hash_map.h>
#include <absl/container/flat_hash_set.h>

#include "index/block_ref.h"
#include "index/reported_blocks.h"
#include "index/worker_slot.h"
#include "simulation/batch_engine.h"
#include "simulation/block_pool.h"
#include "worker/worker.h"

namespace vllm_router {

class LateEvents {
 public:
  LateEvents(Picos delay, size_t engines) : delay_(delay), visible_(engines) {}

  // The block behind which the block `name` is; kNoBlock: it is a prompt's first. Only routers need it.
  void SetParent(uint64_t name, uint64_t parent) { parents_.try_emplace(name, parent); }
  // A router whose index hears the events; its number is the count of those before. It outlives this.
  void AddRouter(ReportedBlocks* reported);
  // The worker by which the router knows the engine. No effect if it did already.
  void SetWorker(size_t router, uint32_t engine, WorkerId worker);

  // What changed in the engine's cache, taken out of `changes`.
  void Tell(uint32_t engine, Picos now, std::vector<BlockPool::Change>* changes);
  void Deliver(Picos now);
  // The engine failed, and its worker left every router.
  void Forget(uint32_t engine);

  bool Has(uint32_t engine, uint64_t name) const { return visible_[engine].contains(name); }

 private:
  struct Late {
    Picos at;
    uint32_t engine;
    BlockPool::Change change;
  };
  struct Cache {
    std::optional<WorkerSlot> slot;
    absl::flat_hash_map<uint64_t, BlockRef> refs;  // by name, of what it holds
  };
  struct Router {
    ReportedBlocks* reported;
    std::vector<Cache> caches;  // by engine
  };
  void Apply(const Late& late, Router* router) const;

  const Picos delay_;
  std::deque<Late> late_;
  std::vector<absl::flat_hash_set<uint64_t>> visible_;
  absl::flat_hash_map<uint64_t, uint64_t> parents_;
  std::vector<Router> routers_;
};

}  // namespace vllm_router
