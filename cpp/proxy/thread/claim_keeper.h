// ClaimKeeper: what becomes of KV blocks at a prefill worker once a request needs them no more (routing/kv_claim.h).
// It counts how claims end, and frees orphaned blocks, which no decode worker has seen, before their lease does: a
// decode worker gets their parameters with a request that its engine rejects,
//
//   POST /v1/completions   {"model": …, "prompt": "x", "max_tokens": -3, "kv_transfer_params": {…}}     -> 400
//
// and tells the prefill worker to free them, without a transfer or a token (vLLM 0.32: within 0.5 s; the lease is 30 s).
// One that does not respond is followed by another. With --pd-orphan collect a decode worker fetches them instead, for
// one token, with a request that the claim brings.
//
// The request has the client's Authorization, if workers get that, since engines may check it. The key is kept with the
// claim from its end until then, and wiped.
//
// Limits: --pd-orphan-max at once, and only blocks that are younger than --pd-handoff-limit-ms; what is beyond them, or
// fails, is left to its lease and counted as expired. Belongs to one I/O thread.
#pragma once

#include <cstdint>

#include "net/task.h"
#include "routing/kv_claim.h"

namespace vllm_router {

struct IoThread;

class ClaimKeeper final : public KvClaimKeeper {
 public:
  explicit ClaimKeeper(IoThread& thread) : thread_(thread) {}

  void Ended(KvClaimEnd end, KvBlocks blocks, int64_t age_ns) override;

 private:
  Task<void> Free(KvBlocks blocks);

  IoThread& thread_;
  uint32_t freeing_ = 0;
};

}  // namespace vllm_router
