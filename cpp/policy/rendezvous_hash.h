// rendezvous_hash: every worker gets a score for the key, and the highest owns it. As stable as a ring,
// which it does not need, and exactly even. When a worker leaves, each of its keys goes to that key's
// second choice.
//
//   furc   score = H("<key>:<url>")                 the reference router's
//   xxh3   score = XXH3(XXH3(key), XXH3(url))       the urls' hashes are made once per change of the fleet
//   unequal weights   -weight / ln((score + 0.5) / 2^64)
//
// Cost: O(members): 6 to 8 ns each with furc where there is AVX-512 (hashing/furc_batch.h), 2 ns with
// xxh3; unequal weights take a logarithm for the few that may be the highest. Thread-safe. Thaler and
// Ravishankar, "A Name-Based Mapping Scheme for Rendezvous" (1996).
#pragma once

namespace vllm_router {

struct PolicyEntry;

PolicyEntry RendezvousHashEntry();

}  // namespace vllm_router
