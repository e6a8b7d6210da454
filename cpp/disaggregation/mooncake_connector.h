// The connector `mooncake`, vLLM's MooncakeConnector: both workers get their requests at once, meet at the prefill
// worker's bootstrap server, and prefill writes the blocks into decode's memory.
//
//   to prefill    {"do_remote_decode": true, "do_remote_prefill": false, "transfer_id": "xfer-…"}
//   to decode     {"do_remote_decode": false, "do_remote_prefill": true, "transfer_id": "xfer-…",
//                  "remote_bootstrap_addr": "http://10.0.0.1:8998", "remote_engine_id": …}
//
// The engine's id, which changes when it restarts, is what its bootstrap server says of the rank
// (mooncake_engines.h). Prefill sends its blocks only if it ends by the limit on its length: after a stop on its one
// token decode would wait until its own timeout.
#pragma once

#include "disaggregation/kv_connector.h"

namespace vllm_router {

const KvConnector& MooncakeConnector();

}  // namespace vllm_router
