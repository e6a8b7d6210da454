// RoutingKey: the parts of a request that a policy may read, already in the form it compares. routing/
// builds it; only the parts that Policy::Needs() names are filled. Views inside are valid as long as the
// request is.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hashing/block_hash.h"
#include "hashing/hash.h"
#include "hashing/page_keys.h"
#include "hashing/sha256.h"
#include "index/prefix_table.h"
#include "index/shared_hits.h"
#include "policy/cost_override.h"
#include "policy/decision.h"
#include "worker/bytes_per_token.h"

namespace vllm_router {

// A set of flags.
enum class KeyParts : uint32_t {
  kNone = 0,
  kSession = 1 << 0,       // session key from headers, then from top-level JSON members
  kBodyDigest = 1 << 1,    // else a digest of the conversation's opening, or of the whole body
  kPromptTokens = 1 << 2,  // size of the prompt
  kBlocks = 1 << 3,        // hashes of the prompt's blocks
  kPrefixDigest = 1 << 4,  // digest of the prompt's prefix
  kPrompt = 1 << 5,        // the prompt itself: its token ids, else its text
  kSharedHits = 1 << 6,    // blocks that a shared pool holds
  kCostOverride = 1 << 7,  // what the request sets of the policy's cost
};
constexpr KeyParts operator|(KeyParts a, KeyParts b) {
  return static_cast<KeyParts>(static_cast<uint32_t>(a) | static_cast<uint32_t>(b));
}
constexpr bool Has(KeyParts set, KeyParts part) {
  return (static_cast<uint32_t>(set) & static_cast<uint32_t>(part)) != 0;
}

// The prompt itself, for policies that compare it: token ids if the request has them, else its routing
// text (docs/reference/routing_text.md). Prompts of different models must not match, so the model's
// name, if there is one, precedes the prompt as its scope:
//
//   text     m o d e l 0x00 | prompt ...        tokens    16 ids made of the model's name | ids ...
struct Prompt {
  enum class Kind : uint8_t { kMissing, kText, kTokens };
  static constexpr size_t kScopeTokens = 16;  // a page, so that pages of the prompt stay pages

  Kind kind = Kind::kMissing;
  bool framed = false;  // a conversation: items that begin with RS; otherwise one string
  size_t scope = 0;     // bytes or ids

  // With the scope. A view of the caller's memory if that could be used.
  std::string_view text() const { return kept_text ? std::string_view(*kept_text) : own_text; }
  std::span<const uint32_t> tokens() const {
    return kept_tokens ? *kept_tokens : std::span<const uint32_t>(own_tokens);
  }
  size_t size() const {
    if (kind == Kind::kMissing) return 0;
    return (kind == Kind::kText ? text().size() : tokens().size()) - scope;
  }

  std::optional<std::string_view> kept_text;
  std::optional<std::span<const uint32_t>> kept_tokens;
  std::string own_text;
  std::vector<uint32_t> own_tokens;
};

inline constexpr uint32_t kEndpoints = 64;  // different values of RoutingKey::endpoint

// How a worker gives the token ids of a prompt (routing/tokenize_call.h): it tokenizes a text or a chat, or renders a
// request to /v1/messages or /v1/responses.
enum class TokenCall : uint8_t { kPrompt, kChat, kMessages, kResponses };

class Policy;

struct RoutingKey {
  enum class HashKeySource : uint8_t { kMissing, kSession, kBody };

  // "header:x-session-id:abc", "session:…", "user:…", "opening:<16 hex>" or "request_hash:<16 hex>"
  // (routing/session_key.h).
  std::string hash_key;
  std::vector<BlockHash> blocks;  // of the complete ones
  bool has_blocks = false;        // there is a prompt, even if shorter than a block
  // All of the blocks, or the leading ones, are of token ids; otherwise of bytes.
  bool blocks_are_tokens = false;
  // And KV events name all of them that a worker holds: the prompt is for a base model.
  bool blocks_are_reported = false;
  bool lacks_tool_order = false;  // RoutingText's
  uint8_t endpoint = 0;           // of the path, below kEndpoints: requests with one path have the same
  // The blocks are of bytes, but a worker could tokenize the text; the ids are cached under this name.
  struct UntokenizedPrompt {
    Hash128 name;
    TokenCall call;
    BlockHash root;  // of the blocks that the ids make
  };
  std::optional<UntokenizedPrompt> untokenized_prompt;
  // The blocks start with those of ids and end with more than two of bytes: not worth waiting for, but
  // the next turn can use its ids.
  std::optional<UntokenizedPrompt> partly_tokenized_prompt;
  uint64_t usable_blocks = 0;  // how many a cache can save: an engine computes the last token in any case

  // Of the blocks, those that every worker can load from a pool; missing when that is not known.
  std::optional<SharedHits> shared_hits;
  std::optional<CostOverride> cost_override;
  // The keys of the prompt's pages in a pool that workers share (routing/paged_prompts.h); empty: it has none.
  std::vector<Digest256> pages;
  PageForm page_form;

  std::optional<Digest256> prefix_digest;  // missing when the request has no text and no token ids
  // Workers that hold that prefix, as other routers know; besides what the prefix index of this one has.
  std::vector<PrefixTable::Held> shared_holders;

  // Of a request that is held out: this policy chooses the worker, and the router's own decides among that one alone, so
  // that it learns what the worker has then. Null: the request is not held out.
  Policy* baseline = nullptr;
  Arm arm = Arm::kNone;

  // Of the last turn of its session: where a request that says no prompt belongs; missing if it says one, or that is not
  // known.
  std::optional<WorkerId> last_worker;

  Prompt prompt;
  int32_t priority = 0;  // the body's; 0 if it has none
  HashKeySource hash_key_source = HashKeySource::kMissing;

  // A dry run: the policy learns and counts nothing, and leaves its random state as it is.
  bool dry_run = false;
  int64_t now_ns = 0;  // of a steady clock; 0: a policy that needs the time asks base/clock.h

  std::shared_ptr<Explanation> explanation;  // to be filled with the decision's candidates; null: not wanted

  uint32_t prompt_tokens = 1;      // P, estimated when not counted
  uint32_t expected_output = 256;  // E
  // Used for the estimates of prompt and blocks; 4 with token ids.
  double bytes_per_token = BytesPerToken::kAtFirst;
  uint64_t prompt_bytes = 0;  // of text, or four per token id; 0: not all of the prompt is text or ids
  std::string model;          // of the request, if its body was read
  BytesPerToken* of_model = nullptr;  // learns from the prompt's token count, once that is known
};

}  // namespace vllm_router
