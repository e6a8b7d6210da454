// What a request's body says about KV blocks that another worker computed or is to have: the member kv_transfer_params,
// as vLLM's NIXL connector reads it.
//
//   {"kv_transfer_params":{"do_remote_prefill":true,"remote_block_ids":[[3,4]],"remote_engine_id":"e1", ...}, ...}
//
// Stricter than an engine: a member that an object has twice is an error, so that a router which adds one to a body that
// has it already is noticed. Pure; any thread. Cost: a second parse of the body.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace vllm_router {

struct TransferParams {
  bool remote_decode = false;
  bool remote_prefill = false;
  bool whole = false;  // all five of those below are there and not null
  std::string engine_id;
  std::string request_id;
  std::string host;
  uint16_t port = 0;
  std::vector<uint32_t> blocks;  // of all groups
  size_t cached_tokens = 0;      // that the prefill worker found in its cache
};

// InvalidArgument for a member that is there twice, at any depth, and for parameters that are no object. Without
// parameters, and of a body that is no JSON, which is left to ParseRequest: nothing is set.
StatusOr<TransferParams> ReadTransferParams(std::string_view body);

}  // namespace vllm_router
