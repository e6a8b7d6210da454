// WorkerSlot: one cache that holds blocks, dense and small. A worker with data-parallel ranks has one per
// rank. A worker whose cache was emptied gets a new one, so that what was known of the old contents is
// dropped with its id.
#pragma once

#include <bitset>
#include <cstdint>

#include "base/limits.h"

namespace vllm_router {

enum class WorkerSlot : uint16_t {};
using WorkerSlotSet = std::bitset<kMaxWorkers>;

// The tier of a block, the fastest first.
enum class Tier : uint8_t { kGpu, kHost, kExternal };
inline constexpr int kTierCount = 3;

}  // namespace vllm_router
