// PairClaim: the blocks that prefill holds for decode, as a KvClaim (disaggregation/kv_claim.h), with the limit of their
// hand-over. It ends as the machine says; blocks that no decode worker has seen are freed as --pd-orphan says.
//
//   claim.Make(request, source, &OnLate, context);    prefill's response has parameters; OnLate is called if they grow old
//   claim.End(KvClaimEnd::kRedeemed, …);              how each may end: kv_claim.h
//
// Belongs to one exchange. One thread.
#pragma once

#include <optional>

#include "disaggregation/kv_claim.h"
#include "net/timer_wheel.h"
#include "proxy/disaggregation/stage_leg.h"
#include "proxy/disaggregation/upstream_pair.h"

namespace vllm_router {

struct IoThread;
struct PdInfo;
struct Settings;

class PairClaim {
 public:
  // All must outlive it. `info` records how the claim ended.
  PairClaim(IoThread& thread, const Settings& settings, PdInfo& info)
      : thread_(thread), settings_(settings), info_(info) {}

  void Make(const PairRequest& request, const StageLeg& source, Timer::Callback late, void* context);
  // REQUIRES for both: it was made. The blocks are those of the next attempt, at their age.
  void Reuse() { claim_ = claim_.Reuse(); }
  // `avoid`: a decode worker that cannot be sent what frees the blocks.
  void End(
      KvClaimEnd end, const PairRequest& request, const UpstreamPair& pair, std::optional<WorkerId> avoid);

 private:
  KvFreeing Freeing(const PairRequest& request, const UpstreamPair& pair) const;

  IoThread& thread_;
  const Settings& settings_;
  PdInfo& info_;
  KvClaim claim_;
  Timer handoff_;
};

}  // namespace vllm_router
