#include "events/removed_blocks.h"

#include <algorithm>

namespace vllm_router {

void RemovedBlocks::Add(EngineHash name, const ParentBlock& parent, std::span<const BlockHash> hashes) {
  if (max_blocks_ == 0) return;
  size_t place = ring_.size();
  if (place < max_blocks_) {
    ring_.push_back({name, parent});
    hashes_.insert(hashes_.end(), hashes.begin(), hashes.end());
  } else {
    place = oldest_;
    oldest_ = oldest_ + 1 == max_blocks_ ? 0 : oldest_ + 1;
    const auto old = place_of_.find(ring_[place].name);
    if (old != place_of_.end() && old->second == place) place_of_.erase(old);
    ring_[place] = {name, parent};
    std::ranges::copy(hashes, hashes_.begin() + static_cast<std::ptrdiff_t>(place * hashes.size()));
  }
  place_of_[name] = place;
}

std::optional<RemovedBlocks::Block> RemovedBlocks::Find(EngineHash name) const {
  const auto found = place_of_.find(name);
  if (found == place_of_.end()) return std::nullopt;
  const size_t each = hashes_.size() / ring_.size();
  return Block{ring_[found->second].parent, std::span(hashes_).subspan(found->second * each, each)};
}

void RemovedBlocks::Clear() {
  oldest_ = 0;
  ring_ = std::vector<Entry>();
  hashes_ = std::vector<BlockHash>();
  place_of_ = {};
}

size_t RemovedBlocks::bytes() const {
  return ring_.capacity() * sizeof(Entry) + hashes_.capacity() * sizeof(BlockHash) +
         place_of_.capacity() * 17;
}

}  // namespace vllm_router
