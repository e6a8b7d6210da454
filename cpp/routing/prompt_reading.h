// PromptReading: what the traffic log keeps of a request: the blocks of its prompt, its length, and its
// session key. Router::ReadPrompt() fills it, whatever the policy reads; so equal prompts have equal
// blocks under every policy.
//
//   with token ids             blocks of block_size ids
//   text, and ids not known    blocks of 4 * block_size bytes of the routing text, each counted as block_size tokens
//
// The values are in clear and must not leave the process unchanged.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "hashing/block_hash.h"

namespace vllm_router {

struct PromptReading {
  std::vector<BlockHash> blocks;  // of the complete ones
  uint32_t tokens = 1;            // estimated if they are not known
  std::string session_key;        // empty: the request has none
};

}  // namespace vllm_router
