#include "simulation/prefix_cache.h"

#include <limits>

#include "base/check.h"
#include "hashing/hash.h"

namespace vllm_router {

void AppendBlockChain(std::span<const uint32_t> tokens, size_t block_tokens, std::vector<uint64_t>* chain) {
  ROUTER_CHECK(block_tokens > 0, "a block holds at least one token");
  chain->reserve(chain->size() + tokens.size() / block_tokens);
  // The tokens are hashed where they lie, and only the two numbers are put together: no copy of the prompt.
  uint64_t link[2] = {chain->empty() ? 0 : chain->back(), 0};
  for (size_t begin = 0; tokens.size() - begin >= block_tokens; begin += block_tokens) {
    link[1] = Xxh3(tokens.data() + begin, block_tokens * sizeof(uint32_t));
    link[0] = Xxh3(link, sizeof(link));
    chain->push_back(link[0]);
  }
}

std::vector<uint64_t> BlockChain(std::span<const uint32_t> tokens, size_t block_tokens) {
  std::vector<uint64_t> chain;
  AppendBlockChain(tokens, block_tokens, &chain);
  return chain;
}

PrefixCache::PrefixCache(size_t capacity_blocks) : capacity_(capacity_blocks), nodes_(1) {
  ROUTER_CHECK(
      capacity_blocks < std::numeric_limits<uint32_t>::max(), "a cache has fewer than 2^32 - 1 blocks");
}

size_t PrefixCache::Match(std::span<const uint64_t> chain) const {
  size_t matched = 0;
  while (matched < chain.size() && places_.contains(chain[matched])) ++matched;
  return matched;
}

void PrefixCache::Use(std::span<const uint64_t> chain) {
  if (chain.size() > capacity_) chain = chain.first(capacity_);
  // What is resident moves to the front before anything is evicted, so that a block of this very chain never
  // is.
  uint32_t before = 0;
  size_t i = 0;
  for (; i < chain.size(); ++i) {
    auto found = places_.find(chain[i]);
    if (found == places_.end()) break;
    Unlink(found->second);
    LinkAfter(found->second, before);
    before = found->second;
  }
  for (; i < chain.size(); ++i) {
    auto [found, is_new] = places_.try_emplace(chain[i], 0);
    if (!is_new) {  // only if two chains collide in one hash
      Unlink(found->second);
    } else if (places_.size() > capacity_) {  // the oldest block gives its place
      found->second = nodes_[0].previous;
      Unlink(found->second);
      places_.erase(nodes_[found->second].hash);
      ++evicted_;
    } else {
      found->second = static_cast<uint32_t>(nodes_.size());
      nodes_.emplace_back();
    }
    nodes_[found->second].hash = chain[i];
    LinkAfter(found->second, before);
    before = found->second;
  }
}

void PrefixCache::Clear() {
  places_.clear();
  nodes_.assign(1, Node());
}

void PrefixCache::Unlink(uint32_t place) {
  const Node& node = nodes_[place];
  nodes_[node.previous].next = node.next;
  nodes_[node.next].previous = node.previous;
}

void PrefixCache::LinkAfter(uint32_t place, uint32_t before) {
  nodes_[place].previous = before;
  nodes_[place].next = nodes_[before].next;
  nodes_[nodes_[place].next].previous = place;
  nodes_[before].next = place;
}

}  // namespace vllm_router
