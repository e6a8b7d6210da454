// FindHolders: the workers that hold the largest shares of a prompt, as far as a router's policy knows their caches.
//
//   PromptHolders held = FindHolders(router, &key, fleet);   // held.front(): the largest share; 0: no further one
//
// For a request that waits until one of several workers has room. Nothing is learned, counted or reserved. Any thread; the
// key is that thread's own, and afterwards as it was.
#pragma once

#include <array>

#include "worker/worker.h"

namespace vllm_router {

class FleetView;
class Router;
struct RoutingKey;

struct PromptHolder {
  WorkerId worker{};
  float share = 0;  // of the prompt, 0 to 1
};
using PromptHolders = std::array<PromptHolder, 4>;

// Those that may be chosen, whether or not they have room. All shares are 0 where the policy compares no prompts.
PromptHolders FindHolders(Router& router, RoutingKey* key, const FleetView& fleet);

}  // namespace vllm_router
