// PlaceQueues: requests that wait for a place at a worker before they have a permit. A feature that has such queues refers to
// them in ServerLimits::features, so that what counts waiting requests finds them. Any thread.
#pragma once

#include <cstdint>
#include <string_view>

namespace vllm_router {

class PlaceQueues {
 public:
  // Those that more workers would serve at once, of this model; empty: of all.
  virtual int64_t WaitingFor(std::string_view model) const = 0;

 protected:
  ~PlaceQueues() = default;
};

}  // namespace vllm_router
