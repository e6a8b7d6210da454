#include "simulation/block_chain.h"

#include "base/check.h"
#include "hashing/hash.h"

namespace vllm_router {

void AppendBlockChain(std::span<const uint32_t> tokens, size_t block_tokens, std::vector<uint64_t>* chain) {
  ROUTER_CHECK(block_tokens > 0, "a block holds at least one token");
  chain->reserve(chain->size() + tokens.size() / block_tokens);
  // The tokens are hashed in place, and only the two hashes are combined: no copy of the prompt.
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

}  // namespace vllm_router
