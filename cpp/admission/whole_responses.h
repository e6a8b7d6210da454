// WholeResponses: per worker, the requests whose responses come in one piece and whose prompts are computed by now.
//
// Of such a response the first token is not seen, so its request counts as waiting for its whole generation
// (worker/worker_load.h), and a class that needs an idle worker would have one request at a time there. Hence each is taken
// to be past its prompt after kLeastNs and its uncached tokens at kTokensPerSecond, which is slow: engines of 2025 compute
// 3,000 to 30,000 per second. One that is not yet past it closes the worker as before.
//
// Slots by a worker's number modulo kSlots, twice what a fleet may have: numbers are dense, so one slot has two workers only
// if the first has left long ago. Thread-safe, relaxed.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>

#include "base/limits.h"
#include "worker/worker.h"

namespace vllm_router {

class WholeResponses {
 public:
  static constexpr int64_t kLeastNs = 200'000'000;
  static constexpr int64_t kTokensPerSecond = 3'000;

  struct Sums {
    int64_t requests = 0;
    int64_t tokens = 0;  // of their prompts, uncached
  };

  // From the choice of the worker on, until the prompt is taken to be computed.
  static constexpr int64_t PrefillNs(uint32_t tokens) {
    return kLeastNs + int64_t{tokens} * 1'000'000'000 / kTokensPerSecond;
  }

  void Add(WorkerId worker, uint32_t tokens, int sign) {
    Slot& slot = slots_[static_cast<size_t>(worker) % kSlots];
    slot.requests.fetch_add(sign, std::memory_order_relaxed);
    slot.tokens.fetch_add(sign * int64_t{tokens}, std::memory_order_relaxed);
  }
  Sums Of(WorkerId worker) const {
    const Slot& slot = slots_[static_cast<size_t>(worker) % kSlots];
    return {
        std::max<int64_t>(0, slot.requests.load(std::memory_order_relaxed)),
        std::max<int64_t>(0, slot.tokens.load(std::memory_order_relaxed))};
  }

 private:
  static constexpr size_t kSlots = 2 * kMaxWorkers;
  struct Slot {
    std::atomic<int64_t> requests{0};
    std::atomic<int64_t> tokens{0};
  };
  std::array<Slot, kSlots> slots_;
};

}  // namespace vllm_router
