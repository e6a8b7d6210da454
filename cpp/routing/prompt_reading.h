// PromptReading: what the record log keeps of a request: which blocks its prompt begins with, how long it is, and whose it
// is. Router::ReadPrompt() fills it, whatever the policy reads; so equal prompts have equal blocks under every policy.
//
//   with token ids             blocks of block_size ids
//   text, and ids not known    blocks of 4 * block_size bytes of the routing text, each counted as block_size tokens
//
// Nothing here is secret from the router, and nothing of it is to leave the process as it is.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "hashing/block_hash.h"

namespace vllm_router {

struct PromptReading {
  std::vector<BlockHash> blocks;  // of the complete ones
  uint32_t tokens = 1;            // estimated where they are not known
  std::string session_key;        // empty: the request names none
};

}  // namespace vllm_router
