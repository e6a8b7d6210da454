// consistent_hash: one session, one worker, and a worker that comes or goes moves only its own sessions.
//
//   ring     w2 . w1 . . w3 . w1 . w2        all members, eligible or not: a key's home never depends on health
//   key ---------^ home w1; not eligible: the next eligible one clockwise (failover)
//                           no room:      the next one with room clockwise (overflow)
//
// Cost: hash of the key (65 ns furc, 4 ns xxh3, for 50 bytes) and a ring lookup (4..10 ns); bounded loads add O(n).
// 12 to 16 bytes per point; the ring is built when a member joins or leaves and kept while health changes.
// Thread-safe. Karger et al. (STOC 1997); bounded loads: Mirrokni, Thorup, Zadimoghaddam (SODA 2018).
#pragma once

#include <cstdint>
#include <memory>

#include "hashing/hash.h"
#include "policy/policy.h"

namespace vllm_router {

// Where the key goes when its home is not eligible: on along the ring, or to the first eligible in fleet order.
enum class HashFailover : uint8_t { kNext, kFirst };

struct ConsistentHashOptions {
  uint32_t virtual_nodes = 160;  // points per weight 1
  HashFunction hash_function = HashFunction::kFurc;
  HashFailover failover = HashFailover::kNext;
  uint32_t load_factor = 0;  // thousandths; 0 = loads are ignored
};

std::unique_ptr<Policy> MakeConsistentHash(
    const ConsistentHashOptions& options, std::unique_ptr<Policy> fallback);

// Points of one ring, all members together: as many as furc has places, 100..130 MB. Above, every member's points are
// scaled down alike.
inline constexpr uint64_t kMaxRingPoints = uint64_t{1} << 23;
inline constexpr uint32_t kMaxVirtualNodes = 65'536;

}  // namespace vllm_router
