// Policy chooses a worker for each request, and learns once how that request ended.
//
// Thread rule: Choose() and Observe() from any thread at once, never blocking on a writer; Plan() from
// one thread at a time, before the view it plans for is published. A policy has no health code and no
// retry code: the view holds only workers that may be chosen now, and a retry is the same decision with
// a smaller fleet.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "policy/block_routing.h"
#include "policy/decision.h"
#include "policy/routing_key.h"
#include "worker/fleet_view.h"

namespace vllm_router {

class Policy {
 public:
  virtual ~Policy() = default;

  virtual std::string_view name() const = 0;

  // The parts of a request that it may read; no others are computed.
  virtual KeyParts Needs() const = 0;

  // Empty only when no worker is eligible. With key.dry_run the result is the same, and neither later
  // calls nor counters are affected.
  virtual std::optional<Decision> Choose(const RoutingKey& key, const FleetView& fleet) = 0;

  // Once per decision, after the request ended.
  virtual void Observe(const Decision& /*decision*/, const Outcome& /*outcome*/) {}

  // True if it remembers what workers were sent, and so needs the capacity of their caches.
  virtual bool remembers_prompts() const { return false; }
  // Prompts beyond size.bytes are forgotten, the least recently used first. An unknown size changes
  // nothing.
  virtual void SetCacheSize(WorkerId /*worker*/, const CacheSize& /*size*/) {}
  // The worker holds a prompt of these blocks, as became known after the decision. The decision was a
  // prediction; this is a fact.
  virtual void RecordBlocks(WorkerId /*worker*/, std::span<const BlockHash> /*blocks*/) {}
  // The worker's cache is empty now.
  virtual void ForgetCache(WorkerId /*worker*/) {}

  // The session has ended. `key`: as RoutingKey::hash_key. True: it was known.
  virtual bool FinishSession(std::string_view /*key*/) { return false; }
  // The number of sessions that it remembers, if it does.
  virtual std::optional<size_t> sessions() const { return std::nullopt; }

  // What it knows of the workers' caches, if it matches blocks.
  virtual std::optional<BlockRouting> block_routing(const FleetView& /*fleet*/) const { return std::nullopt; }

  // What Choose() will find in next.plan(), computed once per change of the fleet; next.plan() is still
  // the previous view's (or null). Return that one again if nothing it depends on has changed.
  virtual std::shared_ptr<const FleetPlan> Plan(const FleetView& /*next*/) { return nullptr; }
};

}  // namespace vllm_router
