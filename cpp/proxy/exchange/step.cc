#include "proxy/exchange/step.h"

#include <algorithm>

namespace vllm_router {

Pipeline::Pipeline(std::span<const Step* const> steps, OwnEndpoints& own_endpoints)
    : own_endpoints(own_endpoints), steps_(steps) {
  const auto take = [](auto hook, auto* hooks) {
    if (hook != nullptr) hooks->push_back(hook);
  };
  for (const Step* const step : steps) {
    take(step->needs, &needs_);
    take(step->add_fields, &add_fields_);
    take(step->on_response, &on_response_);
    take(step->takes_back, &takes_back_);
    take(step->tap, &taps_);
    take(step->on_relayed, &on_relayed_);
    take(step->on_fan_out, &on_fan_out_);
    take(step->on_end, &on_end_);
  }
  std::ranges::reverse(on_end_);
}

uint64_t Pipeline::BodyNeeded(const Request& request) const {
  uint64_t bytes = 0;
  for (const auto hook : needs_) bytes = std::max(bytes, hook(request));
  return bytes;
}

}  // namespace vllm_router
