#include "policy/load_order.h"

namespace vllm_router {
namespace {

// Wide enough that no load times no weight overflows; the compiler's, which -Wpedantic wants marked.
__extension__ using Wide = __int128;

// What decides, read once: other threads change the counters while we compare.
struct Load {
  int64_t first;
  int64_t second;
  uint32_t weight;

  // `alike`: all weights are equal, so they are not looked at: a thousand workers are a thousand cache lines for their
  // loads, and as many again for their weights.
  Load(const Worker& worker, LeastLoadMetric metric, bool alike = false)
      : weight(alike ? kWeightOne : worker.load_weight()) {
    const int64_t requests = worker.load.requests();
    const int64_t tokens = worker.load.outstanding_tokens();
    first = metric == LeastLoadMetric::kRequests ? requests : tokens;
    second = metric == LeastLoadMetric::kRequests ? tokens : requests;
  }
};

// Sign of a/wa - b/wb.
int CompareShares(int64_t a, uint32_t wa, int64_t b, uint32_t wb) {
  if (wa == wb) return (a > b) - (a < b);
  const Wide left = static_cast<Wide>(a) * wb;
  const Wide right = static_cast<Wide>(b) * wa;
  return (left > right) - (left < right);
}

int Compare(const Load& a, const Load& b) {
  const int first = CompareShares(a.first, a.weight, b.first, b.weight);
  return first != 0 ? first : CompareShares(a.second, a.weight, b.second, b.weight);
}

uint64_t OpenRequests(const FleetView& fleet) {
  uint64_t requests = 0;
  for (const uint32_t position : fleet.eligible()) {
    requests += static_cast<uint64_t>(fleet.worker(position).load.requests());
  }
  return requests;
}

}  // namespace

int CompareLoad(const Worker& a, const Worker& b, LeastLoadMetric metric) {
  return Compare(Load(a, metric), Load(b, metric));
}

std::optional<uint32_t> LeastLoaded(const FleetView& fleet, Random& random, LeastLoadMetric metric) {
  if (fleet.eligible().empty()) return std::nullopt;
  return LeastLoaded(fleet, fleet.eligible(), random, metric);
}

uint32_t LeastLoaded(
    const FleetView& fleet, std::span<const uint32_t> positions, Random& random, LeastLoadMetric metric) {
  const bool alike = fleet.equal_weights();
  uint32_t best = positions.front();
  Load least(fleet.worker(best), metric, alike);
  uint64_t equals = 1;
  for (const uint32_t position : positions.subspan(1)) {
    const Load load(fleet.worker(position), metric, alike);
    const int order = Compare(load, least);
    if (order < 0) {
      best = position;
      least = load;
      equals = 1;
    } else if (order == 0) {
      ++equals;
    }
  }
  if (equals == 1) return best;

  // A second look finds the equal that was drawn, without a list of them. Loads may have moved in between; then the
  // last one that is still equal serves as well as the drawn one.
  uint64_t skip = random.Below(equals);
  for (const uint32_t position : positions) {
    if (Compare(Load(fleet.worker(position), metric, alike), least) != 0) continue;
    best = position;
    if (skip-- == 0) break;
  }
  return best;
}

void FindLeastLoaded(
    const FleetView& fleet, std::span<const uint32_t> positions, std::vector<uint32_t>* equals) {
  equals->clear();
  const bool alike = fleet.equal_weights();
  std::optional<Load> least;
  for (const uint32_t position : positions) {
    const Load load(fleet.worker(position), LeastLoadMetric::kRequests, alike);
    const int order = least ? Compare(load, *least) : -1;
    if (order < 0) {
      equals->clear();
      least = load;
    }
    if (order <= 0) equals->push_back(position);
  }
}

Room::Room(const FleetView& fleet, uint32_t factor_thousandths)
    : bound_(OpenRequests(fleet), fleet.eligible_weight(), factor_thousandths) {}

}  // namespace vllm_router
