// KvClaim: KV blocks that a prefill worker P holds for one request until a decode worker has fetched them.
// It guarantees that they are forgotten on no path: it ends exactly once, and its destructor ends it as
// orphaned, so that the keeper of claims can have P free them before their lease (30 s in vLLM) does.
//
//   KvClaim claim(keeper, clock, {.prefill = worker, .parameters = "{\"remote_block_ids\":…}", .made_ns = now});
//   claim.Redeem();                       // a D has fetched them
//   claim.Reject();                       // a D's engine rejected the request, and told P to free them
//   claim.Expire();                       // a D may have fetched them, or they are too old
//   KvClaim next = claim.Reuse();         // no D has seen them: they are the next attempt's, at their age
//
// Blocks must never be fetched a second time: P may have given them to another request meanwhile, and the
// response would be wrong with status 200. Only orphaned ones are known to be unseen; expired ones may be
// returned by a request that D rejects without fetching.
//
// Move-only. One thread. The keeper and the clock must outlive it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/clock.h"
#include "worker/worker.h"

namespace vllm_router {

enum class KvClaimEnd : uint8_t { kRedeemed, kRejected, kReused, kExpired, kOrphaned };
inline constexpr int kKvClaimEndCount = static_cast<int>(KvClaimEnd::kOrphaned) + 1;
std::string_view KvClaimEndName(KvClaimEnd end);  // redeemed, rejected, …

// For those who free orphaned blocks.
struct KvFreeing {
  // A request with which a decode worker fetches them for one token; empty: none was made.
  std::string path = {};
  std::string request = {};
  std::optional<WorkerId> avoid = {};  // a decode worker that could not be reached
  std::string authorization = {};      // the client's, if workers get it; else theirs is sent
};

struct KvBlocks {
  std::shared_ptr<Worker> prefill;
  std::string parameters;  // P's JSON object, unchanged
  std::string model;       // the request's, as JSON; may be empty
  int64_t made_ns = 0;
  KvFreeing freeing = {};
};

// What counts claims, and what frees orphaned ones.
class KvClaimKeeper {
 public:
  virtual ~KvClaimKeeper() = default;
  // Called once per claim, and must not throw. A reused claim's blocks have gone to the next one already.
  virtual void Ended(KvClaimEnd end, KvBlocks blocks, int64_t age_ns) = 0;
};

class KvClaim {
 public:
  KvClaim() = default;  // holds nothing
  KvClaim(KvClaimKeeper& keeper, const Clock& clock, KvBlocks blocks);
  KvClaim(KvClaim&& other) noexcept;
  KvClaim& operator=(KvClaim&& other) noexcept;  // what it held is orphaned
  ~KvClaim();

  explicit operator bool() const { return keeper_ != nullptr; }
  // REQUIRES for all that follow: it holds blocks.
  const KvBlocks& blocks() const { return blocks_; }
  int64_t age_ns() const { return clock_->NowNanos() - blocks_.made_ns; }

  void Redeem() { End(KvClaimEnd::kRedeemed); }
  void Reject() { End(KvClaimEnd::kRejected); }
  void Expire() { End(KvClaimEnd::kExpired); }
  void Orphan(KvFreeing freeing = {}) {
    blocks_.freeing = std::move(freeing);
    End(KvClaimEnd::kOrphaned);
  }
  [[nodiscard]] KvClaim Reuse();

 private:
  void End(KvClaimEnd end);

  KvClaimKeeper* keeper_ = nullptr;  // null: it holds nothing
  const Clock* clock_ = nullptr;
  KvBlocks blocks_;
};

}  // namespace vllm_router
