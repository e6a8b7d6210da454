// The connector `moriio`, vLLM's MoRIIOConnector for AMD GPUs. Workers register with the router
// (disaggregation/pd_registration.h), and say there which of two modes the fleet has:
//
//   READ     prefill keeps the blocks and names them; decode reads them. Prefill first.
//   WRITE    prefill writes into decode's memory. Both at once.
//
// In both, each worker is told how many data-parallel and tensor-parallel ranks its peer has, and both find each other
// by the ZMQ addresses in the request id and by transfer_id.
//
// Decode serves no request alone: it takes every prompt for one that prefill has computed. Without parameters it waits
// for ever (WRITE), or generates from blocks that nobody has filled (READ). Prefill hands blocks over only if it ends
// by its length.
#pragma once

#include "disaggregation/kv_connector.h"

namespace vllm_router {

const KvConnector& MoriioConnector();

}  // namespace vllm_router
