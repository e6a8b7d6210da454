// BlockChain: names for the blocks of a prompt. A block's hash is chained to the one before it, so that
// it identifies all tokens up to its end:
//
//   tokens   | a a a a | b b b b | c c        block_tokens = 4; the last two tokens fill no block
//   chain      h0 ----->  h1                  h1 = XXH3(h0, XXH3(b b b b))
//
// Pure; any thread. Cost: a hash of each block and one of 16 bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace vllm_router {

// Appends the hashes of the full blocks of `tokens` to `chain`, whose last hash is the block before the first
// of them. REQUIRES: block_tokens > 0.
void AppendBlockChain(std::span<const uint32_t> tokens, size_t block_tokens, std::vector<uint64_t>* chain);
std::vector<uint64_t> BlockChain(std::span<const uint32_t> tokens, size_t block_tokens);

}  // namespace vllm_router
