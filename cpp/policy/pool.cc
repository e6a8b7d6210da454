#include "policy/pool.h"

namespace vllm_router {

void Pool::SetCacheSize(WorkerId worker, const CacheSize& size) {
  if (index_ != nullptr) index_->SetCacheSize(worker, size);
  policy_->SetCacheSize(worker, size);
}

void Pool::RecordBlocks(WorkerId worker, std::span<const BlockHash> blocks) {
  if (index_ != nullptr) index_->RecordBlocks(worker, blocks);
}

void Pool::ForgetCache(WorkerId worker) {
  if (index_ != nullptr) index_->Forget(worker);
  policy_->ForgetCache(worker);
}

void Pool::Report(const FleetView& fleet, StatsWriter* writer) const {
  policy_->Report(fleet, writer);
  if (index_ != nullptr) index_->Report(fleet, writer);
}

}  // namespace vllm_router
