// StripTransferMembers: takes what steers the transfer of KV blocks out of a client's request.
//
//   {"prompt": "hi", "kv_transfer_params": {"remote_host": "10.9.9.9", …}}   ->   {"prompt": "hi"}
//
// These members name hosts and blocks. With them a client can make a worker connect to any address, read another
// prompt's KV cache, or end the worker's process: vLLM 0.32 asserts that enough blocks are named. Only the router sets
// them, so they are removed from every copy of a request.
//
//   kv_transfer_params, ec_transfer_params, bootstrap_*     at the top level
//   vllm_xargs, extra_args, sampling_params.extra_args      the same names inside; vLLM merges these into the arguments
//                                                           from which its connectors take kv_transfer_params
//
// Pure; any thread.
#pragma once

#include <cstddef>

#include "routing/body_patch.h"

namespace vllm_router {

// How many of each were removed, wherever they stood.
struct StrippedMembers {
  size_t kv_transfer_params = 0;
  size_t ec_transfer_params = 0;
  size_t bootstrap = 0;
  // An object that may hold some has more members than BodyMap reads: reject the request.
  bool unreadable = false;

  size_t all() const { return kv_transfer_params + ec_transfer_params + bootstrap; }
};

// Adds to `patch` what is to be removed. An object that loses a member inside moves to the front of the body.
// REQUIRES: body.ok().
StrippedMembers StripTransferMembers(const BodyMap& body, BodyPatch* patch);

// The same for the value of the top-level member `sampling_params`.
StrippedMembers StripSamplingParams(const BodyMap& sampling_params, BodyPatch* patch);

}  // namespace vllm_router
