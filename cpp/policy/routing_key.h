// RoutingKey: the parts of a request that a policy may read, already in the form it compares. routing/ builds it;
// only the parts that Policy::Needs() names are filled. Views inside are valid as long as the request is.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "hashing/block_hash.h"
#include "hashing/sha256.h"

namespace vllm_router {

// A set of flags.
enum class KeyParts : uint32_t {
  kNone = 0,
  kSession = 1 << 0,       // session key from headers, then from top-level JSON members
  kBodyDigest = 1 << 1,    // digest of the whole body
  kPromptTokens = 1 << 2,  // size of the prompt
  kBlocks = 1 << 3,        // hashes of the prompt's blocks
  kPrefixDigest = 1 << 4,  // digest of what the prompt begins with
};
constexpr KeyParts operator|(KeyParts a, KeyParts b) {
  return static_cast<KeyParts>(static_cast<uint32_t>(a) | static_cast<uint32_t>(b));
}
constexpr bool Has(KeyParts set, KeyParts part) {
  return (static_cast<uint32_t>(set) & static_cast<uint32_t>(part)) != 0;
}

struct RoutingKey {
  enum class HashKeySource : uint8_t { kMissing, kSession, kBody };

  // "header:x-session-id:abc", "session:…", "user:…", or "request_hash:<16 hex>" (routing/session_key.h).
  std::string hash_key;
  HashKeySource hash_key_source = HashKeySource::kMissing;

  std::vector<BlockHash> blocks;  // of the complete ones
  bool has_blocks = false;        // there is a prompt, be it shorter than a block
  uint64_t usable_blocks = 0;  // how many a cache can save: of the last token an engine wants the computation

  std::optional<Digest256> prefix_digest;  // missing when the request has no text and no token ids

  uint32_t prompt_tokens = 1;      // P, estimated when not counted
  uint32_t expected_output = 256;  // E
};

}  // namespace vllm_router
