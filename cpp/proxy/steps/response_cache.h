// The response cache's steps (docs/explanation/response_cache.md).
#pragma once

namespace vllm_router {

struct Request;

// A request that changes weights or adapters, by its path: what was made before must not be used afterwards, nor what a
// worker makes before it has changed; so it counts again when it has ended. REQUIRES: its body has been read.
void OutdateCache(Request& request);

}  // namespace vllm_router
