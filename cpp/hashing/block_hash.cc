#include "hashing/block_hash.h"

#include <cstring>
#include <string>
#include <type_traits>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/check.h"
#include "base/limits.h"

namespace vllm_router {
namespace {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "block hashes are defined on little-endian words");

// A length known to the compiler lets XXH3 unroll without a branch on it; 16 tokens is the common block
// size.
using CommonBlock = std::integral_constant<size_t, 64>;

BlockHash Link(BlockHash parent, uint64_t local, uint64_t seed) {
  const uint64_t pair[2] = {parent, local};
  const BlockHash hash = XXH3_64bits_withSeed(pair, sizeof(pair), seed);
  return hash == kNoBlock ? 1 : hash;
}

template <typename Size>
void HashPlain(
    BlockHash parent, const char* bytes, Size block_bytes, uint64_t seed, std::span<BlockHash> out) {
  for (BlockHash& hash : out) {
    parent = hash = Link(parent, XXH3_64bits_withSeed(bytes, block_bytes, seed), seed);
    bytes += block_bytes;
  }
}

std::string_view BytesOf(std::span<const uint32_t> tokens) {
  return {reinterpret_cast<const char*>(tokens.data()), tokens.size_bytes()};
}

void AppendField(char letter, std::string_view value, std::string* fields) {
  const auto size = static_cast<uint32_t>(value.size());
  fields->push_back(letter);
  fields->append(reinterpret_cast<const char*>(&size), sizeof(size));
  fields->append(value);
}

}  // namespace

BlockHasher::BlockHasher(uint32_t block_size, uint64_t seed) : block_size_(block_size), seed_(seed) {
  ROUTER_CHECK(block_size > 0 && block_size <= kMaxBlockSize, "a block has 1 to kMaxBlockSize tokens");
}

BlockHash BlockHasher::Root(const PromptScope& scope) const {
  std::string fields;
  if (!scope.lora_name.empty()) AppendField('L', scope.lora_name, &fields);
  if (!scope.cache_salt.empty()) AppendField('S', scope.cache_salt, &fields);
  if (scope.is_text) AppendField('T', {}, &fields);
  return fields.empty() ? seed_ : XXH3_64bits_withSeed(fields.data(), fields.size(), seed_);
}

void BlockHasher::Hash(BlockHash parent, std::string_view text, std::span<BlockHash> out) const {
  ROUTER_CHECK(out.size() == CountBlocks(text), "one hash per complete block");
  if (block_bytes() == CommonBlock::value) {
    HashPlain(parent, text.data(), CommonBlock(), seed_, out);
  } else {
    HashPlain(parent, text.data(), block_bytes(), seed_, out);
  }
}

void BlockHasher::Hash(
    BlockHash parent, std::string_view text, std::span<const BlockExtra> extras,
    std::span<BlockHash> out) const {
  ROUTER_CHECK(out.size() == CountBlocks(text), "one hash per complete block");
  std::string joined;
  size_t done = 0;  // blocks
  for (const BlockExtra& extra : extras) {
    if (extra.block >= out.size()) break;  // it belongs to a block that is not complete
    ROUTER_CHECK(extra.block >= done, "extras ascend by block, at most one per block");
    const size_t before = extra.block - done;
    Hash(parent, text.substr(done * block_bytes(), before * block_bytes()), out.subspan(done, before));
    if (extra.block > 0) parent = out[extra.block - 1];
    joined.assign(text.substr(extra.block * block_bytes(), block_bytes())).append(extra.bytes);
    parent = out[extra.block] =
        Link(parent, XXH3_64bits_withSeed(joined.data(), joined.size(), seed_), seed_);
    done = extra.block + 1;
  }
  Hash(parent, text.substr(done * block_bytes()), out.subspan(done));
}

void BlockHasher::Hash(BlockHash parent, std::span<const uint32_t> tokens, std::span<BlockHash> out) const {
  Hash(parent, BytesOf(tokens), out);
}

void BlockHasher::Hash(
    BlockHash parent, std::span<const uint32_t> tokens, std::span<const BlockExtra> extras,
    std::span<BlockHash> out) const {
  Hash(parent, BytesOf(tokens), extras, out);
}

void BlockHasher::HashPositions(std::string_view text, std::span<BlockHash> out) const {
  ROUTER_CHECK(out.size() == CountBlocks(text), "one hash per complete block");
  std::string joined(sizeof(uint64_t) + block_bytes(), '\0');
  for (uint64_t position = 0; position < out.size(); ++position) {
    std::memcpy(joined.data(), &position, sizeof(position));
    std::memcpy(joined.data() + sizeof(position), text.data() + position * block_bytes(), block_bytes());
    out[position] = XXH3_64bits(joined.data(), joined.size());
  }
}

void BlockHasher::HashPositions(std::span<const uint32_t> tokens, std::span<BlockHash> out) const {
  HashPositions(BytesOf(tokens), out);
}

}  // namespace vllm_router
