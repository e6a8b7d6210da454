#include "policy/load_order.h"

namespace vllm_router {
namespace {

int64_t AmountOf(const WorkerLoad& load, bool requests) {
  return requests ? load.requests() : load.outstanding_tokens();
}

void KeepLeastLoaded(
    const FleetView& fleet, std::span<const uint32_t> positions, bool requests, std::vector<uint32_t>* kept) {
  if (requests) {
    KeepLeastShare(
        fleet, positions, kept, [&](uint32_t position) { return fleet.load(position).requests(); });
  } else {
    KeepLeastShare(
        fleet, positions, kept, [&](uint32_t position) { return fleet.load(position).outstanding_tokens(); });
  }
}

uint64_t OpenRequests(const FleetView& fleet) {
  uint64_t requests = 0;
  for (const uint32_t position : fleet.eligible()) {
    requests += static_cast<uint64_t>(fleet.load(position).requests());
  }
  return requests;
}

}  // namespace

int CompareLoad(const Worker& a, const Worker& b, LeastLoadMetric metric) {
  const uint32_t weight = a.load_weight();
  const uint32_t other_weight = b.load_weight();
  const auto compare = [&](bool requests) {
    return CompareShares({AmountOf(a.load, requests), weight}, {AmountOf(b.load, requests), other_weight});
  };
  const bool requests_first = metric == LeastLoadMetric::kRequests;
  const int first = compare(requests_first);
  return first != 0 ? first : compare(!requests_first);
}

std::optional<uint32_t> LeastLoaded(const FleetView& fleet, Random& random, LeastLoadMetric metric) {
  if (fleet.eligible().empty()) return std::nullopt;
  return LeastLoaded(fleet, fleet.eligible(), random, metric);
}

uint32_t LeastLoaded(
    const FleetView& fleet, std::span<const uint32_t> positions, Random& random, LeastLoadMetric metric) {
  if (positions.size() == 1) return positions.front();
  thread_local std::vector<uint32_t> own_equals;
  std::vector<uint32_t>& equals = own_equals;
  FindLeastLoaded(fleet, positions, &equals, metric);
  return equals.size() == 1 ? equals.front() : equals[random.Below(equals.size())];
}

void FindLeastLoaded(
    const FleetView& fleet, std::span<const uint32_t> positions, std::vector<uint32_t>* equals,
    LeastLoadMetric metric) {
  const bool requests_first = metric == LeastLoadMetric::kRequests;
  KeepLeastLoaded(fleet, positions, requests_first, equals);
  if (equals->size() > 1) KeepLeastLoaded(fleet, *equals, !requests_first, equals);
}

LoadCap::LoadCap(const FleetView& fleet, uint32_t factor_thousandths)
    : bound_(OpenRequests(fleet), fleet.eligible_weight(), factor_thousandths) {}

}  // namespace vllm_router
