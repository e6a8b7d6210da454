// The connector `p2p_nccl`, vLLM's P2pNcclConnector (before 0.24): prefill sends its blocks to the decode worker whose
// ZMQ address it reads in the request id, and decode waits for those of the prefill worker that it reads there. So a
// pair cannot be told before both have registered (disaggregation/pd_registration.h). The parameters say nothing more; prefill
// gets those of nixl, as the reference router sends them, and decode what prefill's response has, if anything.
//
// Neither worker serves a request alone: where the id names no address, vLLM raises ValueError in the engine, on
// either side, and its process ends. So what two workers cannot share is rejected.
#pragma once

#include "disaggregation/kv_connector.h"

namespace vllm_router {

const KvConnector& P2pNcclConnector();

}  // namespace vllm_router
