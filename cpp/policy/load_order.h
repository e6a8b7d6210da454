// The two load criteria that policies share: which worker is least loaded, and which has room
// (docs/reference/policies.md, "Least-loaded order" and "Room"). Integers throughout (weights are
// thousandths), no floating point. Pure functions over a view; any thread.
//
//   requests order   r/s, then (q+e)/s      r open requests, q+e outstanding tokens, s weight
//   tokens order     (q+e)/s, then r/s
//
// Cost: O(eligible) for LeastLoaded and for the construction of a LoadCap.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/random.h"
#include "index/load_bound.h"
#include "policy/keep_least.h"
#include "worker/fleet_view.h"

namespace vllm_router {

// An amount per weight.
struct WeightedShare {
  int64_t amount;
  uint32_t weight;
};

// Sign of a - b.
inline int CompareShares(const WeightedShare& a, const WeightedShare& b) {
  // Wide enough that no load times no weight overflows; the compiler's, which -Wpedantic wants marked.
  __extension__ using Wide = __int128;
  if (a.weight == b.weight) return (a.amount > b.amount) - (a.amount < b.amount);
  const Wide left = static_cast<Wide>(a.amount) * b.weight;
  const Wide right = static_cast<Wide>(b.amount) * a.weight;
  return (left > right) - (left < right);
}
inline bool operator<(const WeightedShare& a, const WeightedShare& b) { return CompareShares(a, b) < 0; }
inline bool operator==(const WeightedShare& a, const WeightedShare& b) { return CompareShares(a, b) == 0; }

enum class LeastLoadMetric : uint8_t { kRequests, kTokens };  // what is compared first; the other breaks ties

// -1, 0 or 1 as a is less, equally or more loaded than b.
int CompareLoad(const Worker& a, const Worker& b, LeastLoadMetric metric = LeastLoadMetric::kRequests);

// Position of the least loaded eligible worker. Equals are chosen at random; a random number is drawn
// only then.
std::optional<uint32_t> LeastLoaded(
    const FleetView& fleet, Random& random, LeastLoadMetric metric = LeastLoadMetric::kRequests);

// The same among some of the eligible positions, not empty and in ascending order.
uint32_t LeastLoaded(
    const FleetView& fleet, std::span<const uint32_t> positions, Random& random,
    LeastLoadMetric metric = LeastLoadMetric::kRequests);

// All of them that no other precedes, ascending.
void FindLeastLoaded(
    const FleetView& fleet, std::span<const uint32_t> positions, std::vector<uint32_t>* equals,
    LeastLoadMetric metric = LeastLoadMetric::kRequests);

// Those of `positions` with the minimum amount_of(position) per load weight, in their order; `kept` may
// be the same memory. Each amount is read once, since other threads change loads meanwhile. Weights that
// are all equal are not read: a thousand workers are a thousand cache lines for their loads, and as many
// again for their weights.
template <typename AmountOf>
void KeepLeastShare(
    const FleetView& fleet, std::span<const uint32_t> positions, std::vector<uint32_t>* kept,
    AmountOf amount_of) {
  const auto keep = [&](auto* values, auto value_of) {
    if (values->size() < positions.size()) values->resize(positions.size());
    auto* const read = values->data();
    for (size_t i = 0; i < positions.size(); ++i) read[i] = value_of(positions[i]);
    KeepLeast(std::span(std::as_const(*values)).first(positions.size()), positions, kept);
  };
  if (fleet.equal_weights()) {
    thread_local std::vector<int64_t> amounts;
    return keep(&amounts, amount_of);
  }
  thread_local std::vector<WeightedShare> shares;
  keep(&shares, [&](uint32_t position) {
    return WeightedShare{amount_of(position), fleet.worker(position).load_weight()};
  });
}

// Room under factor f: open requests < ceil(f * (R + 1) * weight / S), R and S summed over the eligible.
// The caps sum to more than R, so while loads do not change at least one worker has room. REQUIRES: a
// worker is eligible.
class LoadCap {
 public:
  LoadCap(const FleetView& fleet, uint32_t factor_thousandths);
  int64_t Cap(const Worker& worker) const { return bound_.Cap(worker.load_weight()); }
  bool Has(const Worker& worker) const { return worker.load.requests() < Cap(worker); }

 private:
  LoadBound bound_;
};

}  // namespace vllm_router
