// The connector `nixl_push`, vLLM's NixlPushConnector: the decode worker registers at the prefill worker, which writes
// the blocks into its memory when they are computed.
//
//   to prefill    {"do_remote_decode": true, …, "transfer_id": "xfer-…"}          its response says who it is
//   to decode     {"do_remote_prefill": true, "remote_engine_id": …, "remote_host": …, "remote_port": …, "tp_size": …,
//                  "remote_request_id": the pair's id, "transfer_id": "xfer-…"}
//
// The first request of a prefill worker and rank is serial, since only its response tells who it is
// (push_identity.h); later ones go to both workers at once. Versions pair the two requests by their id or by
// transfer_id, so both are sent.
#pragma once

#include <string>
#include <string_view>

#include "disaggregation/kv_connector.h"

namespace vllm_router {

const KvConnector& NixlPushConnector();

// The object for decode. `transfer_id`: empty if prefill was told none.
std::string PushParameters(
    const PushIdentity& identity, std::string_view request_id, std::string_view transfer_id);

}  // namespace vllm_router
