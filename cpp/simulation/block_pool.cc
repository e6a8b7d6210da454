#include "simulation/block_pool.h"

#include <algorithm>
#include <limits>

#include "base/check.h"

namespace vllm_router {
namespace {

constexpr uint32_t kNowhere = std::numeric_limits<uint32_t>::max();

}  // namespace

BlockPool::BlockPool(uint64_t capacity) : capacity_(capacity), blocks_(1) {
  ROUTER_CHECK(capacity < kNowhere, "a cache has fewer than 2^32 - 1 blocks");
}

size_t BlockPool::Match(std::span<const uint64_t> names) const {
  size_t matched = 0;
  for (; matched < names.size(); ++matched) {
    const auto found = places_.find(names[matched]);
    if (found == places_.end() || !blocks_[found->second].computed) break;
  }
  return matched;
}

bool BlockPool::Reserve(std::span<const uint64_t> names, size_t nameless, Reservation* out) {
  names = names.first(std::min<uint64_t>(names.size(), capacity_));
  nameless = std::min<uint64_t>(nameless, capacity_ - names.size());
  std::vector<uint32_t>& places = out->places;
  places.clear();
  out->hit = 0;
  uint64_t needed = nameless;
  for (const uint64_t name : names) {
    const auto found = name == 0 ? places_.end() : places_.find(name);
    const uint32_t place = found == places_.end() ? kNowhere : found->second;
    if (place == kNowhere || blocks_[place].references == 0) ++needed;
    if (place != kNowhere && out->hit == places.size() && blocks_[place].computed) ++out->hit;
    places.push_back(place);
  }
  if (needed > Free()) return false;

  // Blocks that are present are held before any is evicted, so that none of them is.
  for (const uint32_t place : places) {
    if (place != kNowhere && blocks_[place].references++ == 0) Unlink(place);
  }
  for (size_t i = 0; i < names.size(); ++i) {
    if (places[i] != kNowhere) continue;
    const uint32_t place = Take();
    places[i] = place;
    blocks_[place].references = 1;
    if (names[i] == 0) continue;
    const auto [at, is_new] = places_.try_emplace(names[i], place);
    if (is_new) blocks_[place].name = names[i];  // else the name is twice in this request
  }
  for (size_t i = 0; i < nameless; ++i) {
    const uint32_t place = Take();
    blocks_[place].references = 1;
    places.push_back(place);
  }
  held_ += needed;
  return true;
}

void BlockPool::SetComputed(uint32_t place) {
  Block& block = blocks_[place];
  if (block.computed || block.name == 0) return;
  block.computed = true;
  ++resident_;
  if (log_ != nullptr) log_->push_back({block.name, true});
}

void BlockPool::Release(std::span<const uint32_t> places, size_t computed) {
  for (size_t i = places.size(); i-- > 0;) {
    Block& block = blocks_[places[i]];
    if (--block.references != 0) continue;
    --held_;
    if (block.computed || (block.name == 0 && i < computed)) {
      LinkBefore(places[i], kEnds);
    } else {  // holds nothing: taken next
      Forget(block);
      LinkBefore(places[i], blocks_[kEnds].next);
    }
  }
}

void BlockPool::Wipe() {
  for (uint32_t place = blocks_[kEnds].next; place != kEnds; place = blocks_[place].next) {
    Forget(blocks_[place]);
  }
}

void BlockPool::Unlink(uint32_t place) {
  const Block& block = blocks_[place];
  blocks_[block.previous].next = block.next;
  blocks_[block.next].previous = block.previous;
}

void BlockPool::LinkBefore(uint32_t place, uint32_t next) {
  const uint32_t previous = blocks_[next].previous;
  blocks_[place].previous = previous;
  blocks_[place].next = next;
  blocks_[previous].next = place;
  blocks_[next].previous = place;
}

uint32_t BlockPool::Take() {
  // A place that was never used holds nothing, so nothing is evicted while there is one.
  if (blocks_.size() <= capacity_) {
    blocks_.emplace_back();
    return static_cast<uint32_t>(blocks_.size() - 1);
  }
  const uint32_t place = blocks_[kEnds].next;
  Unlink(place);
  if (blocks_[place].computed) ++evicted_;
  Forget(blocks_[place]);
  return place;
}

void BlockPool::Forget(Block& block) {
  if (block.name != 0) places_.erase(block.name);
  if (block.computed) {
    --resident_;
    if (log_ != nullptr) log_->push_back({block.name, false});
  }
  block.name = 0;
  block.computed = false;
}

}  // namespace vllm_router
