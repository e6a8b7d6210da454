// StripTransferMembers: takes what steers the transfer of KV blocks out of a client's request.
//
//   {"prompt": "hi", "kv_transfer_params": {"remote_host": "10.9.9.9", …}}   ->   {"prompt": "hi"}
//
// Most of these members name hosts and blocks. With them a client can make a worker connect to any address, read another
// prompt's KV cache, or end the worker's process: vLLM 0.32 asserts that enough blocks are named. Only the router sets
// them, so they are removed from every copy of a request.
//
//   kv_transfer_params, ec_transfer_params, bootstrap_*   everywhere
//   kv_hints                                              everywhere: vLLM's, by which an engine is told which blocks to
//                                                         fetch, keep or move
//   request_id, rid                                       of the request: some connectors read their peers' addresses in
//                                                         its id, which vLLM takes from the body of /v1/responses
//   data_parallel_rank and its kin                        of the request: the rank that peers meet at
//
// "Everywhere" is the top level and the members in which engines look for further arguments: vllm_xargs, extra_args,
// extra_body, parameters (SGLang's /vertex_generate) and sampling_params, as an object or as a list of them, also one
// within another. "Of the request" is the top level, extra_body and parameters. What stands elsewhere, such as in the
// schema of a tool, stays. Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "routing/body_patch.h"

namespace vllm_router {

enum class StripScope : uint8_t {
  kTransfers,  // the first two rows above
  kStaged,     // all rows: the fleet has stages
};

// How many of each were removed, wherever they stood.
struct StrippedMembers {
  size_t kv_transfer_params = 0;
  size_t ec_transfer_params = 0;
  size_t bootstrap = 0;
  size_t kv_hints = 0;
  size_t request_id = 0;
  size_t rank = 0;
  // A member that may hold some has more members or elements than are read: reject the request.
  bool unreadable = false;

  size_t all() const {
    return kv_transfer_params + ec_transfer_params + bootstrap + kv_hints + request_id + rank;
  }
};

// Adds to `patch` what is to be removed. A member that loses something inside moves to the front of the body.
// REQUIRES: body.ok().
StrippedMembers StripTransferMembers(const BodyMap& body, StripScope scope, BodyPatch* patch);

// The same for the value of the top-level member `sampling_params`.
StrippedMembers StripSamplingParams(const BodyMap& sampling_params, BodyPatch* patch);

}  // namespace vllm_router
