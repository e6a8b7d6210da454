// prefix_hash: requests with equal first tokens go to one worker; it needs a ring and no memory of
// prompts.
//
//   prompt   [ first 256 ids, or 1 KiB of text ][ the rest, never read ]
//                       | XXH3-64
//   ring     w2 . w1 . . w3 . w1 . w2         points of workers that are not eligible are skipped
//                    ^ owner w1               not overloaded: prefix_hash
//                      overloaded             the least loaded of those that are not: overflow
//
// Overloaded: r/s > max(a * factor, a + threshold), r open requests, s weight, a the mean with this
// request. The second term keeps prefixes together under low load.
//
// Cost: the hash of 1 KiB (30 ns), the ring's lookup (6..10 ns), and O(eligible) to sum the loads.
// Thread-safe.
#pragma once

namespace vllm_router {

struct PolicyEntry;

PolicyEntry PrefixHashEntry();

}  // namespace vllm_router
