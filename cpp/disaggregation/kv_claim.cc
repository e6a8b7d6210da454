#include "disaggregation/kv_claim.h"

#include <iterator>
#include <utility>

#include "base/check.h"

namespace vllm_router {

std::string_view KvClaimEndName(KvClaimEnd end) {
  constexpr std::string_view kNames[] = {"redeemed", "rejected", "reused", "expired", "orphaned"};
  static_assert(std::size(kNames) == kKvClaimEndCount);
  return kNames[static_cast<size_t>(end)];
}

KvClaim::KvClaim(KvClaimKeeper& keeper, const Clock& clock, KvBlocks blocks)
    : keeper_(&keeper), clock_(&clock), blocks_(std::move(blocks)) {}

KvClaim::KvClaim(KvClaim&& other) noexcept
    : keeper_(std::exchange(other.keeper_, nullptr)),
      clock_(other.clock_),
      blocks_(std::exchange(other.blocks_, {})) {}

KvClaim& KvClaim::operator=(KvClaim&& other) noexcept {
  if (this == &other) return *this;
  if (keeper_ != nullptr) Orphan();
  keeper_ = std::exchange(other.keeper_, nullptr);
  clock_ = other.clock_;
  blocks_ = std::exchange(other.blocks_, {});
  return *this;
}

KvClaim::~KvClaim() {
  if (keeper_ != nullptr) Orphan();
}

KvClaim KvClaim::Reuse() {
  ROUTER_CHECK(keeper_ != nullptr, "a claim ends once");
  KvClaim next(*keeper_, *clock_, std::exchange(blocks_, {}));
  blocks_.made_ns = next.blocks_.made_ns;
  End(KvClaimEnd::kReused);
  return next;
}

void KvClaim::End(KvClaimEnd end) {
  ROUTER_CHECK(keeper_ != nullptr, "a claim ends once");
  const int64_t age = age_ns();
  KvClaimKeeper& keeper = *std::exchange(keeper_, nullptr);
  keeper.Ended(end, std::exchange(blocks_, {}), age);
}

}  // namespace vllm_router
