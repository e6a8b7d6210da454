// The connector `sglang`: both workers get the same request at once and meet in a room of the prefill worker's
// bootstrap server. Prefill stops by itself, and responds only when decode has come; decode computes no prompt.
//
//   both    "bootstrap_host": "10.0.0.1", "bootstrap_port": 8998, "bootstrap_room": 4611686018427387904
//   a list of two prompts    "bootstrap_host": ["10.0.0.1", "10.0.0.1"], …, "bootstrap_room": [r1, r2]
//
// A room is one sequence's: two that shared one would wait for ever. Of a data-parallel prefill worker the rank is the
// room modulo their number, so the room is drawn for the rank that was chosen. With --pd-sglang-rank-fields the ranks
// are also told by name. The client's own ranks are removed: with another one, decode waits at the wrong rank.
#pragma once

#include <cstdint>

#include "disaggregation/kv_connector.h"

namespace vllm_router {

const KvConnector& SglangConnector();

// In 0 to 2^63-1, and `rank` modulo `dp_size`. `bits`: random. REQUIRES: rank < dp_size.
uint64_t DrawRoom(uint64_t bits, uint32_t rank, uint32_t dp_size);

}  // namespace vllm_router
