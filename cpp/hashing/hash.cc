#include "hashing/hash.h"

#include <array>
#include <cstring>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/check.h"
#include "hashing/murmur.h"

namespace vllm_router {
namespace {

constexpr uint32_t kFurcTries = 32;  // mcrouter's, as those in murmur.h

// An attempt reads at most one bit per level, kFurcShift apart.
constexpr uint32_t kFurcMaxBits = kFurcMaxDepth + kFurcTries * kFurcMaxDepth * kFurcShift + 1;
constexpr uint32_t kFurcMaxWords = (kFurcMaxBits + 63) / 64;

// The hash is defined on little-endian words; memcpy reads them so on every supported machine.
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the hashes read words in little-endian order");

uint64_t Murmur64A(const void* bytes, size_t size, uint64_t seed) {
  const auto* next = static_cast<const unsigned char*>(bytes);
  uint64_t h = MurmurStart(size, seed);
  for (; size >= 8; size -= 8, next += 8) {
    uint64_t word;
    std::memcpy(&word, next, 8);
    MurmurMixWord(word);
    h = (h ^ word) * kMurmurMultiplier;
  }
  if (size > 0) {
    uint64_t tail = 0;
    for (size_t i = 0; i < size; ++i) tail |= static_cast<uint64_t>(next[i]) << (8 * i);
    h = (h ^ tail) * kMurmurMultiplier;
  }
  MurmurMixEnd(h);
  return h;
}

// The stream of bits that furc reads, in words made on demand: word 0 is the hash of the key, each
// further word the hash of the one before it. Bits are read out of order, so earlier words are kept.
class FurcBits {
 public:
  explicit FurcBits(std::string_view key) : count_(1) {
    words_[0] = Murmur64A(key.data(), key.size(), kFurcSeed);
  }

  uint32_t operator[](uint32_t i) {
    for (const uint32_t word = i >> 6; count_ <= word; ++count_) {
      words_[count_] = words_[count_ - 1];
      MurmurNextWord(words_[count_]);
    }
    return static_cast<uint32_t>(words_[i >> 6] >> (i & 63)) & 1;
  }

 private:
  std::array<uint64_t, kFurcMaxWords> words_;
  uint32_t count_;
};

}  // namespace

uint64_t Xxh3(std::string_view bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

uint64_t Xxh3(const void* bytes, size_t size) { return XXH3_64bits(bytes, size); }

Hash128 Xxh3Of128(std::string_view bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return {hash.high64, hash.low64};
}

uint64_t Murmur64A(std::string_view bytes, uint64_t seed) {
  return Murmur64A(bytes.data(), bytes.size(), seed);
}

uint32_t FurcHash(std::string_view bytes, uint32_t m) {
  ROUTER_CHECK(m <= 1u << kFurcMaxDepth, "furc can tell at most 2^23 places apart");
  if (m <= 1) return 0;
  uint32_t depth = 0;
  while (m > 1u << depth) ++depth;

  FurcBits bits(bytes);
  uint32_t at = depth;
  for (uint32_t attempt = 0; attempt < kFurcTries; ++attempt) {
    while (bits[at] == 0) {
      if (--depth == 0) return 0;
      at = depth;
    }
    at += kFurcShift;
    uint32_t place = 1;
    for (uint32_t level = 1; level < depth; ++level, at += kFurcShift) place = 2 * place + bits[at];
    if (place < m) return place;
  }
  return 0;
}

uint64_t RingHash(HashFunction function, std::string_view bytes) {
  if (function == HashFunction::kXxh3) return Xxh3(bytes);
  const uint32_t place = FurcHash(bytes);
  return Murmur64A(&place, sizeof(place), kFurcSeed);
}

std::string_view HashFunctionName(HashFunction function) {
  return function == HashFunction::kFurc ? "furc" : "xxh3";
}

std::optional<HashFunction> HashFunctionByName(std::string_view name) {
  for (const HashFunction function : {HashFunction::kFurc, HashFunction::kXxh3}) {
    if (name == HashFunctionName(function)) return function;
  }
  return std::nullopt;
}

}  // namespace vllm_router
