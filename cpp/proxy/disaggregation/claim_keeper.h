// ClaimKeeper: what becomes of KV blocks at a prefill worker once a request needs them no more (disaggregation/kv_claim.h).
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
// Limits: --pd-orphan-max at once, while others wait in up to kMostWaitingBytes, and only blocks that are younger than
// --pd-handoff-limit-ms; what is beyond them, or fails, is left to its lease and counted as expired. Belongs to one I/O
// thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <set>
#include <vector>

#include "disaggregation/kv_claim.h"
#include "net/task.h"

namespace vllm_router {

struct IoThread;

class ClaimKeeper final : public KvClaimKeeper {
 public:
  static constexpr size_t kMostWaitingBytes = 16 << 20;

  explicit ClaimKeeper(IoThread& thread) : thread_(thread) {}
  ~ClaimKeeper() override;

  void Ended(KvClaimEnd end, KvBlocks blocks, int64_t age_ns) override;

 private:
  void FreeWaiting();
  Task<void> Free(KvBlocks blocks);
  std::vector<std::shared_ptr<Worker>> WorkersFor(const KvBlocks& blocks);
  void LeaveToLease(KvBlocks* blocks);

  IoThread& thread_;
  uint32_t freeing_ = 0;
  bool starting_ = false;
  std::deque<KvBlocks> waiting_;  // oldest first
  size_t waiting_bytes_ = 0;
  std::set<WorkerId> silent_;  // decode workers that did not respond, and are asked last
};

}  // namespace vllm_router
