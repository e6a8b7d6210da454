// KeyBuilder: makes the RoutingKey of a request: only the parts that a policy needs, each in the form in
// which the policy compares it.
//
//   RequestView --headers--> session        --body or prompt--> prefix digest, blocks, prompt, lengths
//
// Cost: one pass over the headers, and one over the body for each of prefix, blocks and prompt that the
// policy needs (none needs two), or else for a session without a header; hashing of the blocks. A key
// that is built again keeps its memory. Thread-safe: the token cache and the models' lengths, which
// change, are so themselves.
//
//   KeyBuilder keys(policy.Needs(), options, lengths);
//   RoutingKey key;
//   keys.Build({.headers = headers, .path = "/v1/chat/completions", .body = body}, &key);
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/header_field.h"
#include "hashing/block_hash.h"
#include "hashing/sha256.h"
#include "index/reported_blocks.h"
#include "policy/routing_key.h"
#include "routing/model_lengths.h"
#include "routing/paged_prompts.h"
#include "routing/prompt_reading.h"
#include "routing/request_view.h"
#include "routing/session_key.h"
#include "routing/token_cache.h"
#include "routing/tool_order.h"

namespace vllm_router {

enum class Tokenize : uint8_t {
  kAuto,  // as kWorker while `reported` is active, else as kNever
  kNever,
  kWorker,  // text prompts are blocks of the token ids that token_cache() knows; the caller fills it
};

// The defaults are RouterOptions'.
struct KeyOptions {
  uint32_t block_size;  // token ids of a block
  Tokenize tokenize;
  const SessionKeyOptions& session_key;
  size_t max_prefix_length;                  // bytes of the prompt that a prefix digest is of
  size_t routing_text_limit;                 // bytes of a prompt that are matched
  const ReportedBlocks* reported = nullptr;  // of the pool; outlives the builder
  const PagedPrompts* paged = nullptr;       // likewise
  const ToolOrders* tool_orders = nullptr;   // likewise
};

// A summary of a request for people, without its content.
struct RequestSummary {
  std::string session_key;  // RoutingKey::hash_key; empty for a request without anything to hash
  std::optional<Digest256> prefix_digest;
  Prompt::Kind kind = Prompt::Kind::kMissing;
  uint64_t size = 0;  // of the routing text in bytes, or of the prompt in ids
  uint64_t blocks = 0;
  uint32_t prompt_tokens = 1;
};

struct RequestFields;
struct RoutingText;

class KeyBuilder {
 public:
  // `lengths` must outlive the builder and the tickets of its keys, which learn there.
  KeyBuilder(KeyParts needs, const KeyOptions& options, ModelLengths& lengths);

  // The parts that Build() fills; nothing else of a request is used.
  KeyParts needs() const { return needs_; }
  size_t block_bytes() const { return hasher_.block_bytes(); }
  const SessionKeyFinder& session_keys() const { return session_keys_; }

  // True when these headers alone do not suffice, so the body must be read first.
  bool NeedsBody(std::span<const HeaderField> headers) const;

  void Build(const RequestView& request, RoutingKey* key) const;

  // See Router.
  void ReadPrompt(const RequestView& request, const RoutingKey& key, PromptReading* reading) const;
  RequestSummary Summarize(const RequestView& request) const;
  TokenCache* token_cache() const { return token_cache_.get(); }
  // Text prompts are turned into token ids.
  bool tokenizes() const {
    return token_cache_ != nullptr && (tokenize_ == Tokenize::kWorker || compares_ids());
  }
  // A worker publishes KV events, which name blocks of ids.
  bool hears_events() const { return hears_events_ != nullptr && hears_events_->active(); }
  // Only prompts of ids can match what workers tell of their caches, or what they share.
  bool compares_ids() const { return hears_events() || (paged_ != nullptr && paged_->awaited()); }

  // Of the ids that a worker returned for `text`.
  std::vector<BlockHash> BlocksOf(
      const RoutingKey::UntokenizedPrompt& text, std::span<const uint32_t> ids) const;

 private:
  // Each of these fills its part of the key, and *parsed when there is a body to parse.
  void FindPrefix(const RequestView& request, RoutingKey* key, std::optional<RequestFields>* parsed) const;
  void MakePrompt(const RequestView& request, std::optional<RequestFields>* parsed, RoutingKey* key) const;
  void MakeBlocks(const RequestView& request, std::optional<RequestFields>* parsed, RoutingKey* key) const;
  // The same for text whose ids, or those of a prefix, are known; false: neither.
  bool MakeKnownBlocks(const RoutingText& read, const PromptScope& scope, RoutingKey* key) const;
  // Of a prompt with these ids.
  void MakePages(std::span<const uint32_t> ids, const PromptScope& scope, RoutingKey* key) const;
  void Measure(
      const RoutingText& read, size_t size, const RequestFields& fields, const RequestView& request,
      RoutingKey* key) const;

  const KeyParts needs_;
  const Tokenize tokenize_;
  const size_t max_prefix_length_;
  const size_t routing_text_limit_;
  const SessionKeyFinder session_keys_;
  const BlockHasher hasher_;
  const std::unique_ptr<TokenCache> token_cache_;
  const ReportedBlocks* const hears_events_;  // null: there is no index
  const PagedPrompts* const paged_;           // null: no pool is shared
  const ToolOrders* const tool_orders_;
  ModelLengths& lengths_;
};

}  // namespace vllm_router
