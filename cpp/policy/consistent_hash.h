// consistent_hash: one session, one worker, and a worker that comes or goes moves only its own sessions.
//
//   ring     w2 . w1 . . w3 . w1 . w2        all members, eligible or not: a key's home never depends on health
//   key ---------^ home w1; not eligible: the next eligible one clockwise (failover)
//                           no room:      the next one with room clockwise (overflow)
//
// Cost: hash of the key (65 ns furc, 4 ns xxh3, for 50 bytes) and a ring lookup (4..10 ns); bounded loads add O(n).
// 16 to 20 bytes per point; the ring changes when a member joins or leaves and is kept while health changes.
// Thread-safe. Karger et al. (STOC 1997); bounded loads: Mirrokni, Thorup, Zadimoghaddam (SODA 2018).
#pragma once

#include <cstdint>

namespace vllm_router {

struct PolicyEntry;

// Where the key goes when its home is not eligible: on along the ring, or to the first eligible in fleet order.
enum class HashFailover : uint8_t { kNext, kFirst };

PolicyEntry ConsistentHashEntry();

}  // namespace vllm_router
