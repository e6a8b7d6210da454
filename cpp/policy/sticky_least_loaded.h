// sticky_least_loaded: a session stays with its first worker. A new one goes to the worker with the
// fewest sessions for its weight; of equals to the least loaded, and of these to the one that rendezvous
// hashing ranks first.
//
//   session a --> w1    until it is finished, or has not been used for session_ttl, or w1 is not eligible (failover: it moves)
//   session b --> w2
//   session c --> w1 (1), w2 (1), w3 (0): w3
//
// Unlike consistent_hash it balances sessions exactly, needs no ring, and moves nothing when a worker
// joins; but its memory is in this process alone, and lost with it.
//
// Cost: a look-up in a stick table (index/stick_table.h) under one short mutex; a new session reads all
// workers. 90 bytes per session. Thread-safe: requests of one new session get one worker.
#pragma once

namespace vllm_router {

struct PolicyEntry;

PolicyEntry StickyLeastLoadedEntry();

}  // namespace vllm_router
