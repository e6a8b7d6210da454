// Policy chooses a worker for each request, and learns once how that request ended.
//
// Thread rule: Choose() and Observe() from any thread at once, never blocking on a writer; Plan() from
// one thread at a time, before the view it plans for is published. A policy has no health code and no
// retry code: the view holds only workers that may be chosen now, and a retry is the same decision with
// a smaller fleet.
#pragma once

#include <memory>
#include <optional>
#include <string_view>

#include "policy/decision.h"
#include "policy/routing_key.h"
#include "policy/stats_writer.h"
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

  // Before that, once if the first token is seen. `now_ns`: by the clock of RoutingKey::now_ns.
  virtual void ObserveFirstToken(const Decision& /*decision*/, int64_t /*now_ns*/) {}

  // For policies with a memory of their own of what workers were sent, beside the pool's KvIndex: true if
  // it has one, and so needs the capacity of the workers' caches.
  virtual bool remembers_prompts() const { return false; }
  // True if it compares workers that have a request's adapter (FleetView::residents) with those that would load it.
  // For others, the view has only the former, if there are any.
  virtual bool weighs_residents() const { return false; }
  // Prompts beyond size.bytes are forgotten, the least recently used first. An unknown size changes
  // nothing.
  virtual void SetCacheSize(WorkerId /*worker*/, const CacheSize& /*size*/) {}
  // The worker's cache is empty now.
  virtual void ForgetCache(WorkerId /*worker*/) {}

  // The session has ended. `key`: as RoutingKey::hash_key. True: it was known.
  virtual bool FinishSession(std::string_view /*key*/) { return false; }
  // The number of sessions that it remembers, if it does.
  virtual std::optional<size_t> sessions() const { return std::nullopt; }

  // Its figures, beyond those of every policy; those by worker are of `fleet`.
  virtual void Report(const FleetView& /*fleet*/, StatsWriter* /*writer*/) const {}

  // What Choose() will find in next.plan(), computed once per change of the fleet; next.plan() is still
  // the previous view's (or null). Return that one again if nothing it depends on has changed.
  virtual std::shared_ptr<const FleetPlan> Plan(const FleetView& /*next*/) { return nullptr; }
};

}  // namespace vllm_router
