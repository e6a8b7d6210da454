#include "response_cache/hit_rate.h"

namespace vllm_router {

void HitRate::Count(bool hit, int64_t now_ns) {
  const int64_t number = now_ns / kStepNs;
  const MutexLock lock(mutex_);
  Step& step = steps_[static_cast<size_t>(number % kSteps)];
  if (step.number != number) step = {.number = number};
  ++step.lookups;
  if (hit) ++step.hits;
}

double HitRate::Of(int64_t now_ns) const {
  const int64_t oldest = now_ns / kStepNs - kSteps + 1;
  uint64_t hits = 0;
  uint64_t lookups = 0;
  const MutexLock lock(mutex_);
  for (const Step& step : steps_) {
    if (step.number < oldest) continue;
    hits += step.hits;
    lookups += step.lookups;
  }
  return lookups == 0 ? 0 : static_cast<double>(hits) / static_cast<double>(lookups);
}

}  // namespace vllm_router
