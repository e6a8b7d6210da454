#include "routing/pd_bypass.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "policy/load_order.h"

namespace vllm_router {
namespace {

constexpr uint32_t kRoomThousandths = 1250;

}  // namespace

std::optional<PdBypassChoice> ChooseBypass(
    const PdBypassRule& rule, const FleetView& decode, std::span<const uint32_t> uncached, Random& random) {
  if (rule.uncached_tokens == 0 || decode.eligible().empty()) return std::nullopt;
  const LoadCap cap(decode, kRoomThousandths);
  uint32_t least = std::numeric_limits<uint32_t>::max();
  std::vector<uint32_t> equals;
  for (size_t i = 0; i < uncached.size(); ++i) {
    const uint32_t position = decode.eligible()[i];
    if (uncached[i] > std::min(least, rule.uncached_tokens) || !cap.Has(decode.worker(position))) continue;
    if (uncached[i] < least) equals.clear();
    least = uncached[i];
    equals.push_back(position);
  }
  if (equals.empty()) return std::nullopt;
  const uint32_t position = LeastLoaded(decode, equals, random, LeastLoadMetric::kTokens);
  const int64_t queued = decode.worker(position).load.queued_prefill() + least;
  if (queued > rule.queued_tokens) return std::nullopt;
  return PdBypassChoice{.position = position, .uncached = least};
}

}  // namespace vllm_router
