// Policy answers one question, "which worker?", and hears once how the answer worked out.
//
// Thread rule: Choose() and Observe() from any thread at once, never blocking on a writer; Plan() from one thread
// at a time, before the view it plans for is published. A policy has no health code and no retry code: the view
// holds only workers that may be chosen now, and a retry is the same question with a smaller fleet.
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

  // What it may read of a request; nothing else is computed.
  virtual KeyParts Needs() const = 0;

  // Empty only when nobody is eligible. With key.dry_run the result is the same, and nothing that a later call or a counter
  // could tell is changed.
  virtual std::optional<Decision> Choose(const RoutingKey& key, const FleetView& fleet) = 0;

  // Once per decision, after the request ended.
  virtual void Observe(const Decision& /*decision*/, const Outcome& /*outcome*/) {}

  // Whether it remembers what workers were sent, and so wants to know how much their caches hold.
  virtual bool remembers_prompts() const { return false; }
  // What is over size.bytes is forgotten, the least recently used first. What is not told stays as it was.
  virtual void SetCacheSize(WorkerId /*worker*/, const CacheSize& /*size*/) {}
  // The worker holds a prompt of these blocks, as turned out after the decision: unlike it, a fact.
  virtual void RecordBlocks(WorkerId /*worker*/, std::span<const BlockHash> /*blocks*/) {}
  // The worker's cache is empty now.
  virtual void ForgetCache(WorkerId /*worker*/) {}

  // The session is over. `key`: as RoutingKey::hash_key. True: it was known.
  virtual bool FinishSession(std::string_view /*key*/) { return false; }
  // How many sessions it remembers, if it does.
  virtual std::optional<size_t> sessions() const { return std::nullopt; }

  // What it knows of the workers' caches, if it matches blocks.
  virtual std::optional<BlockRouting> block_routing(const FleetView& /*fleet*/) const { return std::nullopt; }

  // What Choose() will want to find in next.plan(), worked out once per change of the fleet; next.plan() is still
  // the previous view's (or null). Returning that one again is right when nothing it depends on has changed.
  virtual std::shared_ptr<const FleetPlan> Plan(const FleetView& /*next*/) { return nullptr; }
};

}  // namespace vllm_router
