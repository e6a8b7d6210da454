#include "policy/round_robin.h"

#include <algorithm>
#include <atomic>
#include <numeric>

#include "policy/policy_registry.h"

namespace vllm_router {
namespace {

struct Turns {
  alignas(64) std::atomic<uint64_t> next{0};
};

struct Schedule final : FleetPlan {
  using FleetPlan::FleetPlan;
  std::vector<uint32_t> positions;  // one per turn; empty: all weights are equal
  // Of a pool, whose turns must not depend on requests for others; null: the policy's.
  std::shared_ptr<Turns> turns;
  uint64_t pool = 0;
};

class RoundRobin final : public Policy {
 public:
  explicit RoundRobin(const PolicyOptions& /*options*/) {}

  std::string_view name() const override { return "round_robin"; }
  KeyParts Needs() const override { return KeyParts::kNone; }

  std::optional<Decision> Choose(const RoutingKey& key, const FleetView& fleet) override {
    const auto eligible = fleet.eligible();
    if (eligible.empty()) return std::nullopt;
    std::atomic<uint64_t>& next = TurnsOf(fleet);
    const uint64_t turn =
        key.dry_run ? next.load(std::memory_order_relaxed) : next.fetch_add(1, std::memory_order_relaxed);
    const uint32_t position =
        fleet.equal_weights() ? eligible[turn % eligible.size()] : Scheduled(fleet, turn);
    return Decision{.position = position, .worker = fleet.worker(position).id, .reason = Reason::kRoundRobin};
  }

  std::shared_ptr<const FleetPlan> Plan(const FleetView& next) override {
    if (next.equal_weights() && next.pool() == 0) return nullptr;
    auto schedule = std::make_shared<Schedule>(this);
    schedule->pool = next.pool();
    if (next.pool() != 0) {
      const auto* last = FindPlan<Schedule>(next, this);
      const bool goes_on = last != nullptr && last->pool == next.pool() && last->turns != nullptr;
      schedule->turns = goes_on ? last->turns : std::make_shared<Turns>();
    }
    if (next.equal_weights()) return schedule;
    std::vector<uint32_t> weights;
    for (const uint32_t position : next.eligible()) weights.push_back(next.worker(position).load_weight());
    schedule->positions = SmoothSchedule(weights);
    for (uint32_t& slot : schedule->positions) slot = next.eligible()[slot];
    return schedule;
  }

 private:
  // The slot of this turn. On a retry it may belong to a worker of an earlier attempt: then the next
  // slot of another worker takes it.
  uint32_t Scheduled(const FleetView& fleet, uint64_t turn) const {
    const auto* schedule = FindPlan<Schedule>(fleet, this);
    if (schedule == nullptr || schedule->positions.empty())
      return fleet.eligible()[turn % fleet.eligible().size()];
    const std::vector<uint32_t>& positions = schedule->positions;
    size_t slot = turn % positions.size();
    for (size_t steps = 0; steps < positions.size(); ++steps) {
      if (fleet.IsEligible(positions[slot])) return positions[slot];
      if (++slot == positions.size()) slot = 0;
    }
    return fleet.eligible().front();
  }

  std::atomic<uint64_t>& TurnsOf(const FleetView& fleet) {
    if (fleet.pool() == 0) return turns_.next;
    const auto* schedule = FindPlan<Schedule>(fleet, this);
    return schedule != nullptr && schedule->turns != nullptr ? schedule->turns->next : turns_.next;
  }

  Turns turns_;
};

// How many turns each worker gets in one round.
std::vector<uint32_t> TurnsPerRound(std::span<const uint32_t> weights) {
  uint64_t divisor = 0;
  uint64_t sum = 0;
  for (const uint32_t weight : weights) {
    divisor = std::gcd(divisor, uint64_t{weight});
    sum += weight;
  }
  std::vector<uint32_t> turns(weights.begin(), weights.end());
  if (sum / divisor <= kMaxSlots) {
    for (uint32_t& turn : turns) turn = static_cast<uint32_t>(turn / divisor);
    return turns;
  }
  // Rounding down to at least one turn adds fewer than n turns to the total, so that many are kept back.
  const uint64_t n = weights.size();
  const uint64_t shared = n <= kMaxSlots / 2 ? kMaxSlots - n : n;
  for (uint32_t& turn : turns) turn = static_cast<uint32_t>(std::max<uint64_t>(1, turn * shared / sum));
  return turns;
}

}  // namespace

std::vector<uint32_t> SmoothSchedule(std::span<const uint32_t> weights) {
  const std::vector<uint32_t> turns = TurnsPerRound(weights);
  const int64_t sum = std::accumulate(turns.begin(), turns.end(), int64_t{0});
  std::vector<int64_t> credit(turns.size());
  std::vector<uint32_t> schedule;
  schedule.reserve(static_cast<size_t>(sum));
  while (schedule.size() < static_cast<size_t>(sum)) {
    for (size_t i = 0; i < turns.size(); ++i) credit[i] += turns[i];
    const auto richest = std::max_element(credit.begin(), credit.end());  // the first of equals
    *richest -= sum;
    schedule.push_back(static_cast<uint32_t>(richest - credit.begin()));
  }
  return schedule;
}

PolicyEntry RoundRobinEntry() {
  return {.name = "round_robin", .may_be_fallback = true, .make = Make<RoundRobin>};
}

}  // namespace vllm_router
