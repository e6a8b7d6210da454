// The conditional bypass of prefill: whether one decode worker serves a request alone, because it has most of the
// prompt's blocks in its cache, or because the prompt is short.
//
//   U   tokens of the prompt that the decode worker would have to compute      q   those that are queued there
//
//   among eligible workers with room    take the least U, of equals the least loaded
//   iff U <= uncached_tokens and q + U <= queued_tokens    it gets the request; else two workers do
//
// With 256 and 4,096, a prompt of 4,096 tokens: 3,900 of them at a worker with q 0, U 196: bypass. 2,048 of them: two
// stages. 3,900 of them, q 4,000: two stages, since its running requests would wait for all that.
//
// Pure; any thread. O(eligible).
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "base/random.h"
#include "worker/fleet_view.h"

namespace vllm_router {

struct PdBypassRule {
  uint32_t uncached_tokens = 0;  // 0: no request bypasses prefill
  uint32_t queued_tokens = 4096;
};

struct PdBypassChoice {
  uint32_t position = 0;  // in the fleet
  uint32_t uncached = 0;
};

// `uncached`: U of each worker, in the order of decode.eligible(). nullopt: two stages.
std::optional<PdBypassChoice> ChooseBypass(
    const PdBypassRule& rule, const FleetView& decode, std::span<const uint32_t> uncached, Random& random);

}  // namespace vllm_router
