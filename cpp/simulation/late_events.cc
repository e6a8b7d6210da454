#include "simulation/late_events.h"

#include <span>

#include "base/check.h"

namespace vllm_router {

void LateEvents::AddRouter(ReportedBlocks* reported) {
  routers_.push_back({.reported = reported, .caches = std::vector<Cache>(visible_.size())});
}

void LateEvents::SetWorker(size_t router, uint32_t engine, WorkerId worker) {
  if (router >= routers_.size()) return;
  ReportedBlocks& reported = *routers_[router].reported;
  Cache& cache = routers_[router].caches[engine];
  if (cache.slot) return;
  StatusOr<WorkerSlot> slot = reported.AddCache(worker);
  ROUTER_CHECK(slot.ok(), "an index has room for a cache of each worker");
  cache.slot = *slot;
  reported.SetTrust(worker, KvTrust::kExact);
}

void LateEvents::Tell(uint32_t engine, Picos now, std::vector<BlockPool::Change>* changes) {
  for (const BlockPool::Change& change : *changes) late_.push_back({now + delay_, engine, change});
  changes->clear();
}

void LateEvents::Deliver(Picos now) {
  for (; !late_.empty() && late_.front().at <= now; late_.pop_front()) {
    const Late& late = late_.front();
    if (late.change.stored) {
      visible_[late.engine].insert(late.change.name);
    } else {
      visible_[late.engine].erase(late.change.name);
    }
    for (Router& router : routers_) Apply(late, &router);
  }
}

void LateEvents::Apply(const Late& late, Router* router) const {
  Cache& cache = router->caches[late.engine];
  if (!cache.slot) return;
  BlockIndex& index = router->reported->index();
  if (!late.change.stored) {
    const auto held = cache.refs.find(late.change.name);
    if (held == cache.refs.end()) return;
    index.Remove(*cache.slot, Tier::kGpu, std::span(&held->second, 1));
    cache.refs.erase(held);
    return;
  }
  BlockRef parent;
  if (const auto named = parents_.find(late.change.name); named == parents_.end()) {
    return;
  } else if (named->second != kNoBlock) {
    const auto held = cache.refs.find(named->second);
    if (held == cache.refs.end()) return;
    parent = held->second;
  }
  BlockRef ref;
  const InsertResult inserted =
      index.Insert(*cache.slot, Tier::kGpu, parent, std::span(&late.change.name, 1), &ref);
  if (inserted.inserted == 1) cache.refs.insert_or_assign(late.change.name, ref);
}

void LateEvents::Forget(uint32_t engine) {
  visible_[engine].clear();
  for (Router& router : routers_) router.caches[engine] = Cache();
  std::erase_if(late_, [engine](const Late& late) { return late.engine == engine; });
}

}  // namespace vllm_router
