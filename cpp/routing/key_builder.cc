#include "routing/key_builder.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/limits.h"
#include "hashing/hash.h"
#include "routing/prefix_digest.h"
#include "routing/prompt_paths.h"
#include "routing/request_fields.h"
#include "routing/routing_text.h"

namespace vllm_router {
namespace {

// The estimates of docs/reference/policies.md, "Load", until a model's own figures are learned.
constexpr uint64_t kBytesPerId = 4;
constexpr uint64_t kMeanOutputTokens = 256;

constexpr uint64_t kTokensPerMedium = 256;

// More than a tokenizer merges across the cut, or a chat template appends to a conversation.
constexpr size_t kIdsLeftOut = 16;

// For a text with ids for a prefix: with more blocks of bytes, the ids of the whole text are wanted.
constexpr size_t kBlocksLeftInBytes = 2;

// A thread that has read a longer text does not keep its memory.
constexpr size_t kKeptTextBytes = 1024 * 1024;

uint64_t TokensOf(uint64_t bytes, double bytes_per_token) {
  return static_cast<uint64_t>(std::ceil(static_cast<double>(bytes) / bytes_per_token));
}

uint32_t AsTokenCount(uint64_t tokens) {
  return static_cast<uint32_t>(std::clamp<uint64_t>(tokens, 1, UINT32_MAX));
}

// ceil(bytes / bytes_per_token), at least 1. A body is more than its prompt, so the mean does not learn
// from it.
uint32_t EstimatePromptTokens(const RequestView& request, double bytes_per_token) {
  uint64_t tokens;
  if (request.token_ids) {
    tokens = request.token_ids->size();
  } else {
    const uint64_t body =
        request.body ? std::max<uint64_t>(request.body->size(), request.body_bytes) : request.body_bytes;
    tokens = request.prompt ? TokensOf(request.prompt->size(), bytes_per_token)
                            : TokensOf(body, BytesPerToken::kAtFirst);
  }
  return AsTokenCount(tokens);
}

// Of a prompt that has been read: text or ids, not both.
uint32_t CountPromptTokens(uint64_t text_bytes, double bytes_per_token, uint64_t ids, uint32_t media) {
  return AsTokenCount(TokensOf(text_bytes, bytes_per_token) + ids + uint64_t{media} * kTokensPerMedium);
}

template <typename T>
void Assign(const T* given, std::optional<T>* part) {
  part->reset();
  if (given != nullptr) *part = *given;
}

void SetLength(BytesPerToken* of_model, RoutingKey* key) {
  key->of_model = of_model;
  key->bytes_per_token = of_model != nullptr ? of_model->value() : BytesPerToken::kAtFirst;
}

}  // namespace

KeyBuilder::KeyBuilder(KeyParts needs, const KeyOptions& options, ModelLengths& lengths)
    : needs_(needs),
      tokenize_(options.tokenize),
      max_prefix_length_(options.max_prefix_length),
      routing_text_limit_(options.routing_text_limit),
      session_keys_(options.session_key),
      hasher_(options.block_size),
      token_cache_(
          options.tokenize != Tokenize::kNever && Has(needs_, KeyParts::kBlocks)
              ? std::make_unique<TokenCache>(kTokenCacheBytes)
              : nullptr),
      hears_events_(options.reported),
      paged_(options.paged),
      tool_orders_(options.tool_orders),
      lengths_(lengths) {}

bool KeyBuilder::NeedsBody(std::span<const HeaderField> headers) const {
  return Has(needs_, KeyParts::kBlocks | KeyParts::kPrefixDigest | KeyParts::kPrompt) ||
         (Has(needs_, KeyParts::kSession | KeyParts::kBodyDigest) && !session_keys_.HasHeader(headers));
}

void KeyBuilder::Build(const RequestView& request, RoutingKey* key) const {
  const RequestView nothing;
  const bool computes = ComputesPrompt(request.path);
  const RequestView& prompted = computes ? request : nothing;
  std::optional<RequestFields> parsed;
  key->lacks_tool_order = false;
  if (Has(needs_, KeyParts::kSharedHits)) Assign(prompted.shared_hits, &key->shared_hits);
  if (Has(needs_, KeyParts::kCostOverride)) Assign(request.cost_override, &key->cost_override);
  if (Has(needs_, KeyParts::kPromptTokens)) {
    SetLength(prompted.token_ids ? nullptr : &lengths_.Of(prompted.model), key);
    key->prompt_bytes = prompted.token_ids ? prompted.token_ids->size() * kBytesPerId
                        : prompted.prompt  ? prompted.prompt->size()
                                           : 0;
    key->prompt_tokens = EstimatePromptTokens(prompted, key->bytes_per_token);
  }
  if (Has(needs_, KeyParts::kPrefixDigest)) FindPrefix(prompted, key, &parsed);
  if (Has(needs_, KeyParts::kBlocks)) MakeBlocks(prompted, &parsed, key);
  if (Has(needs_, KeyParts::kPrompt)) {
    key->endpoint = static_cast<uint8_t>(Xxh3(request.path) % kEndpoints);
    MakePrompt(prompted, &parsed, key);
  }
  if (Has(needs_, KeyParts::kBodyDigest)) {
    session_keys_.Find(request, key, &parsed);
  } else if (Has(needs_, KeyParts::kSession) && !session_keys_.FindSession(request, key, &parsed)) {
    key->hash_key.clear();
    key->hash_key_source = RoutingKey::HashKeySource::kMissing;
  }
  const auto take_model = [&parsed, key] {
    if (parsed && parsed->model) key->model = *std::move(parsed->model);
  };
  key->model = request.model;
  take_model();
  if (key->explanation != nullptr) key->explanation->model = key->model;
  if (!Has(needs_, KeyParts::kPromptTokens)) return;
  if (!computes) {
    key->expected_output = 0;
    return;
  }
  // The limit on the output is worth reading, but a body is not parsed for it alone unless it is small.
  if (request.fields == nullptr && !parsed && request.body && request.body->size() <= kSmallBodyBytes &&
      !Has(needs_, KeyParts::kSession | KeyParts::kBodyDigest)) {
    parsed = ParseRequestFields(*request.body, request.body_is_padded);
    take_model();
  }
  const RequestFields* fields = request.fields != nullptr ? request.fields : parsed ? &*parsed : nullptr;
  uint64_t output = kMeanOutputTokens;
  if (fields != nullptr && fields->max_tokens) output = std::min(output, *fields->max_tokens);
  key->expected_output = static_cast<uint32_t>(output);
}

void KeyBuilder::FindPrefix(
    const RequestView& request, RoutingKey* key, std::optional<RequestFields>* parsed) const {
  const size_t limit = max_prefix_length_;
  PrefixAnchor anchor;
  std::string_view model = request.model;
  if (request.body) {
    const PrefixWanted wanted{limit, &anchor};
    *parsed = ParseRequestFields(*request.body, request.body_is_padded, nullptr, &wanted);
    if ((*parsed)->model) model = *(*parsed)->model;
  } else if (request.prompt) {
    anchor = AnchorOfText(*request.prompt, limit);
  }
  if (anchor.kind == PrefixAnchor::Kind::kMissing && request.token_ids) {
    anchor = AnchorOfTokens(*request.token_ids, limit);
  }
  key->prefix_digest.reset();
  if (anchor.kind != PrefixAnchor::Kind::kMissing) key->prefix_digest = PrefixDigest(model, anchor);
}

// The length of a body's prompt, which has been read.
void KeyBuilder::Measure(
    const RoutingText& read, size_t size, const RequestFields& fields, const RequestView& request,
    RoutingKey* key) const {
  const bool is_text = read.kind == RoutingText::Kind::kText;
  SetLength(is_text ? &lengths_.Of(fields.model ? *fields.model : request.model) : nullptr, key);
  const bool whole = read.media == 0 && (!is_text || size < routing_text_limit_);
  key->prompt_bytes = whole ? size * (is_text ? 1 : kBytesPerId) : 0;
  key->prompt_tokens =
      CountPromptTokens(is_text ? size : 0, key->bytes_per_token, is_text ? 0 : size, read.media);
}

// A view of the caller's memory, unless a model's scope must precede it.
void KeyBuilder::MakePrompt(
    const RequestView& request, std::optional<RequestFields>* parsed, RoutingKey* key) const {
  Prompt& prompt = key->prompt;
  key->priority = 0;
  prompt.kind = Prompt::Kind::kMissing;
  prompt.framed = false;
  prompt.scope = 0;
  prompt.kept_text.reset();
  prompt.kept_tokens.reset();
  if (request.token_ids) {
    prompt.kind = Prompt::Kind::kTokens;
    const std::span<const uint32_t> ids = *request.token_ids;
    if (request.model.empty()) {
      prompt.kept_tokens = ids;
      return;
    }
    const auto scope = TokenScope(request.model, {});
    prompt.scope = scope.size();
    prompt.own_tokens.assign(scope.begin(), scope.end());
    prompt.own_tokens.insert(prompt.own_tokens.end(), ids.begin(), ids.end());
  } else if (request.prompt) {
    prompt.kind = Prompt::Kind::kText;
    const std::string_view text = request.prompt->substr(0, routing_text_limit_);
    if (request.model.empty()) {
      prompt.kept_text = text;
      return;
    }
    prompt.own_text = TextScope(request.model, {});
    prompt.scope = prompt.own_text.size();
    prompt.own_text.append(text);
  } else if (request.body) {
    thread_local RoutingText read;
    const PromptWanted wanted{
        .path = request.path,
        .limit = routing_text_limit_,
        .text = &read,
        .scoped = true,
        .tool_orders = tool_orders_};
    *parsed = ParseRequestFields(*request.body, request.body_is_padded, &wanted);
    key->priority = (*parsed)->priority.value_or(0);
    if (read.kind == RoutingText::Kind::kMissing) return;
    key->lacks_tool_order = read.lacks_tool_order;
    const bool is_text = read.kind == RoutingText::Kind::kText;
    prompt.kind = is_text ? Prompt::Kind::kText : Prompt::Kind::kTokens;
    prompt.framed = read.framed;
    prompt.scope = read.scope;
    prompt.own_text.swap(read.text);
    prompt.own_tokens.swap(read.token_ids);
    if (Has(needs_, KeyParts::kPromptTokens)) Measure(read, prompt.size(), **parsed, request, key);
    if (read.text.capacity() > kKeptTextBytes || read.token_ids.capacity() > kKeptTextBytes) read = {};
  }
}

// Token ids are hashed directly. Otherwise the routing text is cut into blocks of four bytes per token.
void KeyBuilder::MakeBlocks(
    const RequestView& request, std::optional<RequestFields>* parsed, RoutingKey* key) const {
  thread_local RoutingText read;
  std::string_view text;
  std::span<const uint32_t> tokens;
  PromptScope scope{.lora_name = request.model};  // an adapter is requested by its name as model
  bool known = false;
  key->has_blocks = true;
  key->untokenized_prompt.reset();
  key->partly_tokenized_prompt.reset();
  key->pages.clear();
  if (request.token_ids) {
    tokens = *request.token_ids;
  } else if (request.prompt) {
    text = *request.prompt;
    scope.is_text = true;
  } else {
    read.kind = RoutingText::Kind::kMissing;
    if (request.body) {
      const PromptWanted wanted{
          .path = request.path, .limit = routing_text_limit_, .text = &read, .tool_orders = tool_orders_};
      *parsed = ParseRequestFields(*request.body, request.body_is_padded, &wanted);
    }
    if (read.kind == RoutingText::Kind::kMissing) {
      key->has_blocks = false;
      key->blocks_are_tokens = false;
      key->blocks.clear();
      return;
    }
    key->lacks_tool_order = read.lacks_tool_order;
    tokens = read.token_ids;
    text = read.text;
    scope.is_text = read.kind == RoutingText::Kind::kText;
    scope.cache_salt = read.cache_salt;
    if ((*parsed)->model) scope.lora_name = *(*parsed)->model;
    Measure(read, scope.is_text ? text.size() : tokens.size(), **parsed, request, key);
  }
  // Blocks of a base model are known under one of its names.
  std::shared_ptr<const ReportedBlocks::ModelNames> names;
  key->blocks_are_reported = false;
  if (hears_events()) {
    names = hears_events_->model_names();
    if (const auto found = names->find(scope.lora_name); found != names->end()) {
      scope.lora_name = found->second;
      key->blocks_are_reported = true;
    }
  }
  if (scope.is_text && request.body && !request.token_ids && !request.prompt && tokenizes())
    known = MakeKnownBlocks(read, scope, key);
  const BlockHash root = hasher_.Root(scope);
  key->blocks_are_tokens = known || !scope.is_text;
  if (known) {
  } else if (scope.is_text) {
    key->blocks.resize(hasher_.CountBlocks(text));
    hasher_.Hash(root, text, key->blocks);
    key->usable_blocks = (text.size() - !text.empty()) / hasher_.block_bytes();
  } else {
    key->blocks.resize(hasher_.CountBlocks(tokens));
    hasher_.Hash(root, tokens, key->blocks);
    key->usable_blocks = (tokens.size() - !tokens.empty()) / hasher_.block_size();
    if (!request.token_ids && read.media == 0) MakePages(tokens, scope, key);
  }
  if (read.text.capacity() > kKeptTextBytes) read = {};
}

// Near the end of a text its ids may differ from those of a longer text. So the last ids are left out,
// and the rest of the text follows as blocks of bytes. So every turn of a conversation extends the
// blocks of the turn before.
bool KeyBuilder::MakeKnownBlocks(const RoutingText& read, const PromptScope& scope, RoutingKey* key) const {
  if (!read.token_call || read.text.size() < hasher_.block_size()) return false;
  thread_local std::vector<TextPrefix> prefixes;
  NamePrefixes(scope.lora_name, *read.token_call, read.render_options, read.text, &prefixes);
  const TokenCache::Known known = token_cache_->Find(prefixes, key->dry_run);
  const std::span<const uint32_t> ids =
      known.ids != nullptr ? std::span<const uint32_t>(*known.ids) : std::span<const uint32_t>();
  const std::string_view rest = std::string_view(read.text).substr(known.text_size);
  const size_t left_out = rest.empty() ? 0 : std::min(ids.size(), kIdsLeftOut);
  const size_t known_blocks = hasher_.CountBlocks(ids.first(ids.size() - left_out));
  PromptScope of_ids = scope;
  of_ids.is_text = false;
  const BlockHash root = hasher_.Root(of_ids);
  const RoutingKey::UntokenizedPrompt whole{prefixes.back().name, *read.token_call, root};
  if (ids.empty() || (known_blocks == 0 && !rest.empty())) {
    key->untokenized_prompt = whole;
    return false;
  }
  // Engines tell the blocks of their responses by ids, so while they are heard each block counts.
  const size_t left_in_bytes = compares_ids() ? 0 : kBlocksLeftInBytes * hasher_.block_bytes();
  if (rest.size() > left_in_bytes) key->partly_tokenized_prompt = whole;
  key->blocks.resize(known_blocks + hasher_.CountBlocks(rest));
  const std::span<BlockHash> blocks = key->blocks;
  hasher_.Hash(root, ids.first(known_blocks * hasher_.block_size()), blocks.first(known_blocks));
  MakePages(ids.first(ids.size() - left_out), scope, key);
  key->usable_blocks = (ids.size() - 1) / hasher_.block_size();
  if (!rest.empty()) {
    const BlockHash last = blocks[known_blocks - 1];
    const std::string_view parent(reinterpret_cast<const char*>(&last), sizeof last);
    hasher_.Hash(hasher_.Root({.cache_salt = parent, .is_text = true}), rest, blocks.subspan(known_blocks));
    key->usable_blocks = known_blocks + (rest.size() - 1) / hasher_.block_bytes();
  }
  key->prompt_tokens = AsTokenCount(ids.size() + TokensOf(rest.size(), key->bytes_per_token));
  // Ids and bytes are different units, so their mean has no meaning.
  SetLength(nullptr, key);
  key->prompt_bytes = 0;
  return true;
}

void KeyBuilder::MakePages(std::span<const uint32_t> ids, const PromptScope& scope, RoutingKey* key) const {
  const std::shared_ptr<const PagedPrompts::Pages> pages = paged_ != nullptr ? paged_->Get() : nullptr;
  if (pages == nullptr || !scope.cache_salt.empty() || !pages->models.contains(scope.lora_name)) return;
  key->page_form = pages->form;
  HashPages(
      pages->form, ids.first(std::min(ids.size(), kMaxPageResults * size_t{pages->form.tokens})),
      &key->pages);
}

std::vector<BlockHash> KeyBuilder::BlocksOf(
    const RoutingKey::UntokenizedPrompt& text, std::span<const uint32_t> ids) const {
  std::vector<BlockHash> blocks(hasher_.CountBlocks(ids));
  hasher_.Hash(text.root, ids, blocks);
  return blocks;
}

void KeyBuilder::ReadPrompt(const RequestView& request, const RoutingKey& key, PromptReading* reading) const {
  std::optional<RequestFields> parsed;
  if (Has(needs_, KeyParts::kBlocks) && key.has_blocks) {
    reading->blocks = key.blocks;
    reading->tokens = key.prompt_tokens;
  } else {
    RoutingKey own;
    own.prompt_tokens = EstimatePromptTokens(request, BytesPerToken::kAtFirst);
    MakeBlocks(request, &parsed, &own);
    reading->blocks = std::move(own.blocks);
    reading->tokens = own.prompt_tokens;
  }
  if (key.hash_key_source != RoutingKey::HashKeySource::kMissing) {
    const bool named = key.hash_key_source == RoutingKey::HashKeySource::kSession;
    reading->session_key = named ? key.hash_key : std::string();
    return;
  }
  RequestView view = request;
  if (parsed) view.fields = &*parsed;
  RoutingKey whose;
  if (session_keys_.FindSession(view, &whose)) reading->session_key = std::move(whose.hash_key);
}

RequestSummary KeyBuilder::Summarize(const RequestView& request) const {
  RoutingKey key;
  key.dry_run = true;
  key.prompt_tokens = EstimatePromptTokens(request, BytesPerToken::kAtFirst);
  std::optional<RequestFields> parsed;
  FindPrefix(request, &key, &parsed);
  MakePrompt(request, &parsed, &key);
  MakeBlocks(request, &parsed, &key);
  session_keys_.Find(request, &key, &parsed);
  return {
      .session_key = std::move(key.hash_key),
      .prefix_digest = key.prefix_digest,
      .kind = key.prompt.kind,
      .size = key.prompt.size(),
      .blocks = key.blocks.size(),
      .prompt_tokens = key.prompt_tokens};
}

}  // namespace vllm_router
