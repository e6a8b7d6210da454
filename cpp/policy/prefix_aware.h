// prefix_aware: requests with equal prefixes go to one worker, as long as that worker has room.
//
//   digest of the system prompt --+                     (routing/prefix_digest.h)
//                                 v
//   ring     w2 . w1 . . w3 . w1 . w2                   points of workers that are not eligible are skipped
//                    ^ owner w1                         has room: prefix_hash
//                      no room -> w3 has none -> w2     clockwise, the next with room: overflow
//
// Room is a hard bound: fewer open requests than ceil((1 + epsilon) * (all + 1) * weight / all
// weights). Routers that share only their fleet's URLs send a prompt to the same worker.
//
// Cost: the ring's lookup (6..10 ns), 0.1..2 steps, and O(eligible) to sum the loads. Thread-safe.
// Consistent hashing with bounded loads: Mirrokni, Thorup, Zadimoghaddam (SODA 2018).
#pragma once

namespace vllm_router {

struct PolicyEntry;

PolicyEntry PrefixAwareEntry();

}  // namespace vllm_router
