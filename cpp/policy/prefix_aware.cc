#include "policy/prefix_aware.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "base/random.h"
#include "index/distinct_count.h"
#include "policy/load_order.h"
#include "policy/policy_registry.h"
#include "policy/ring_plan.h"

namespace vllm_router {
namespace {

class PrefixAware final : public Policy {
 public:
  PrefixAware(const PolicyOptions& options, std::unique_ptr<Policy> fallback)
      : options_(options),
        fallback_(std::move(fallback)),
        rings_(options.virtual_nodes, HashFunction::kXxh3),
        random_(options.seed) {}

  std::string_view name() const override { return "prefix_aware"; }
  KeyParts Needs() const override { return KeyParts::kPrefixDigest | fallback_->Needs(); }

  std::optional<Decision> Choose(const RoutingKey& key, const FleetView& fleet) override {
    if (fleet.eligible().empty()) return std::nullopt;
    std::optional<Decision> decision;
    if (key.prefix_digest) {
      if (!key.dry_run)
        prefixes_.Add(DigestWord(*key.prefix_digest, 8));  // not the word that is used on the ring
      std::optional<HashRing> built;
      decision =
          ChooseOnRing(rings_.RingOf(this, fleet, &built), DigestWord(*key.prefix_digest, 0), key, fleet);
    } else {
      decision = fallback_->Choose(key, fleet);
      if (decision) decision->reason = Reason::kFallback;
    }
    if (decision && !key.dry_run) CounterOf(decision->reason).fetch_add(1, std::memory_order_relaxed);
    return decision;
  }

  void Observe(const Decision& decision, const Outcome& outcome) override {
    if (decision.reason == Reason::kFallback) fallback_->Observe(decision, outcome);
  }

  std::shared_ptr<const FleetPlan> Plan(const FleetView& next) override {
    return rings_.Plan(this, next, fallback_->Plan(next));
  }

  void Report(const FleetView& fleet, StatsWriter* writer) const override {
    const StatsWriter::Named decisions[] = {
        {"prefix_hash", by_hash_.value.load(std::memory_order_relaxed)},
        {"overflow", overflows_.value.load(std::memory_order_relaxed)},
        {"fallback", fallbacks_.value.load(std::memory_order_relaxed)}};
    std::vector<uint64_t> open;
    for (const FleetView::Member& member : fleet.members())
      open.push_back(static_cast<uint64_t>(std::max<int64_t>(member.worker->load.open_requests(), 0)));
    writer->Group("prefix_routing");
    writer->NamedCounters(
        {{},
         "prefix_routing_requests_total",
         "Decisions of prefix_aware: prefix_hash, overflow or fallback.",
         {},
         "strategy"},
        decisions);
    writer->PerWorker(
        {{},
         "prefix_routing_backend_distribution",
         "Open requests of the worker under prefix_aware.",
         {},
         "backend"},
        open);
    writer->Gauge(
        {"unique_prefixes", "prefix_routing_prefix_cardinality",
         "Estimated number of distinct prefixes that prefix_aware has seen, within 1 %."},
        prefixes_.Estimate());
  }

 private:
  // Every decision of every thread counts, so counters do not share a cache line.
  struct alignas(64) Counter {
    std::atomic<uint64_t> value{0};
  };

  std::atomic<uint64_t>& CounterOf(Reason reason) {
    if (reason == Reason::kPrefixHash) return by_hash_.value;
    return reason == Reason::kOverflow ? overflows_.value : fallbacks_.value;
  }

  Decision ChooseOnRing(const HashRing& ring, uint64_t place, const RoutingKey& key, const FleetView& fleet) {
    const LoadCap room(fleet, 1000 + options_.load_factor_epsilon);
    if (key.explanation != nullptr) {
      key.explanation->SetLimits(fleet, [&](const Worker& worker) {
        return std::max<int64_t>(room.Cap(worker), options_.prefix_load_floor);
      });
    }
    uint32_t owner = HashRing::kNone;  // the first eligible one
    uint32_t chosen = ring.FindOwner(place, [&](uint32_t candidate) {
      if (!fleet.IsEligible(candidate)) return false;
      if (owner == HashRing::kNone) owner = candidate;
      const Worker& worker = fleet.worker(candidate);
      const int64_t open = worker.load.requests();
      return open < room.Cap(worker) || open < options_.prefix_load_floor;
    });
    // No worker has room only if loads grew meanwhile.
    if (chosen == HashRing::kNone) chosen = *LeastLoaded(fleet, *DecisionRandom(random_, key.dry_run));
    const Reason reason = chosen == owner ? Reason::kPrefixHash : Reason::kOverflow;
    return {.position = chosen, .worker = fleet.worker(chosen).id, .reason = reason};
  }

  const PolicyOptions options_;
  const std::unique_ptr<Policy> fallback_;
  const RingPlanner rings_;
  Random random_;
  DistinctCount prefixes_;
  Counter by_hash_;
  Counter overflows_;
  Counter fallbacks_;
};

}  // namespace

PolicyEntry PrefixAwareEntry() {
  return {
      .name = "prefix_aware",
      .aliases = {"chwbl"},
      .options = {"fallback_policy", "virtual_nodes", "load_factor_epsilon", "prefix_load_floor"},
      .make = Make<PrefixAware>};
}

}  // namespace vllm_router
