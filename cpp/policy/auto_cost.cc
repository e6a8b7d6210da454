#include "policy/auto_cost.h"

#include <algorithm>

namespace vllm_router {
namespace {

constexpr double kMostStretch = 20;
constexpr double kEvict = 10;
constexpr double kMostEvict = 8;
constexpr double kPlace = 0.01;
constexpr double kWhole = 0.03;
constexpr double kWholeTtft = 0.01;

}  // namespace

AutoPrices::AutoPrices(const AutoMeans& means, AutoObjective objective, const AutoWeights& weights) {
  const AutoEngine& engine = kAutoEngine;
  const double rate = means.rate * engine.token_s;
  const double busy = std::min(kAutoMostBusy, rate * means.mean_uncached);
  const double step =
      engine.step + engine.request * means.mean_requests + engine.context * means.mean_context;
  const double stretch = std::min(kMostStretch, step / engine.step / (1 - busy));
  least_uncached = means.least_uncached;
  copied = 1 / (1 + weights.sharers * means.sharers);
  more = engine.request + engine.context * means.prompt;
  later = rate * stretch * weights.later;
  decode = 1.5 * more * stretch;
  waiting = std::min(1.0, busy * stretch) * means.mean_uncached;
  place = kPlace * means.mean_prompt / (means.mean_requests + 1);
  output = means.mean_output;
  whole = objective == AutoObjective::kTtft ? kWholeTtft : kWhole;
  work = output * more;
  most_sent = weights.most_sent;
  // A turn adds at least as much to a prompt as it computes, or as its response has.
  const double turn = std::max({1.0, means.mean_uncached, means.mean_output});
  own = 1 + work / turn;
  evict = std::min(kMostEvict, kEvict * means.lost);
}

}  // namespace vllm_router
