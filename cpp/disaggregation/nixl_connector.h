// The connector `nixl`, vLLM's NixlPullConnector: the prefill worker keeps the prompt's blocks and says where they
// are; the decode worker pulls them.
//
//   to prefill    "kv_transfer_params": {"do_remote_decode": true, "do_remote_prefill": false, …}
//   its response  "kv_transfer_params": {"do_remote_prefill": true, "remote_block_ids": [[1, 2]], "remote_host": …}
//   to decode     the same object, byte for byte, so that members of later versions arrive
//
// Seen with vLLM 0.32 (NIXL 1.5): without parameters decode computes the prompt itself. With an object that lacks its
// host, or names fewer blocks than the prompt needs, decode's process ends. So an object counts only if all that
// decode reads is there: remote_engine_id, remote_request_id and remote_host as text, remote_port as a port, and
// numbers in remote_block_ids, one or more, each of them once.
//
// A prefill worker whose response says "transfer_mode": "push" is served as by nixl_push (nixl_push_connector.h): its
// decode worker is told who it is, and from then on both are told at once.
#pragma once

#include "disaggregation/kv_connector.h"

namespace vllm_router {

const KvConnector& NixlConnector();

}  // namespace vllm_router
