// PushIdentities: who the prefill workers are that push their blocks (disaggregation/push_identity.h), as one thread has learned
// from their responses. Forgotten when a pair with the worker fails, since its engine may have started anew. A worker
// that is added again has another id, so what is left of removed ones is dropped when there are too many.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <utility>

#include "base/limits.h"
#include "disaggregation/push_identity.h"
#include "worker/worker.h"

namespace vllm_router {

class PushIdentities {
 public:
  // Valid until the next change.
  const PushIdentity* Find(WorkerId worker) const {
    const auto found = identities_.find(static_cast<uint32_t>(worker));
    return found == identities_.end() ? nullptr : &found->second;
  }
  void Learn(WorkerId worker, PushIdentity identity) {
    if (identities_.size() >= kLimit) identities_.clear();
    identities_.insert_or_assign(static_cast<uint32_t>(worker), std::move(identity));
  }
  void Forget(WorkerId worker) { identities_.erase(static_cast<uint32_t>(worker)); }

 private:
  static constexpr size_t kLimit = 2 * kMaxWorkers;
  std::unordered_map<uint32_t, PushIdentity> identities_;
};

}  // namespace vllm_router
