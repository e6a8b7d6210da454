// cache_aware: the worker that saw the longest part of this prompt, unless load or a hot prefix
// requires another.
//
//   prompt, 1000 bytes, threshold 0.3          w0 saw 600    w1 saw 200    w2 saw nothing
//   open requests 60, 3, 2                     w0            prefix_hit
//   open requests 70, 3, 2                     w2            load_balance    68 > 64 and 70 > 1.5 * 2
//   no worker saw more than 300 bytes          w2            prefix_miss     the least loaded
//   half of all new conversations start so,    w2            prefix_spread   the prefix belongs on half of
//   and w0 alone has seen it                                                 the workers, so another one learns it
//
// A conversation that continues (its text extends an earlier one by a response) stays where it was;
// only new conversations are spread. The worker that gets the request has seen its prompt from that
// moment on (policy/prompt_memory.h), so that a burst with one prefix stays together. The rules are in
// docs/reference/policies.md, their reasons in docs/explanation/cache_aware.md.
//
// Cost: one walk over the prompt up to where it is new, O(eligible) to compare, and an insert that
// resumes the walk. Thread-safe.
#pragma once

#include <cstdint>
#include <memory>

#include "policy/policy.h"
#include "policy/prompt_memory.h"

namespace vllm_router {

struct PolicyEntry;

enum class BalanceGate : uint8_t {
  kWorker,  // the holder's load against the minimum: one hot worker does not end affinity for all
  kFleet,   // the maximum load against the minimum, as the reference does it
};

enum class MissChoice : uint8_t {
  kLeastLoad,     // of equals the one that has seen least
  kSmallestTree,  // the one that has seen least, of equals the least loaded
};

PolicyEntry CacheAwareEntry();

}  // namespace vllm_router
