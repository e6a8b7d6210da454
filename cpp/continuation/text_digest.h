// TextDigest: the length of a text and a hash of it, kept while the text comes in pieces.
//
//   hash = sum of (b_i + 1) * R^(n-1-i) mod 2^61 - 1, over the bytes b_0 … b_(n-1)
//
// Pieces may end anywhere: the hash is of the text alone. Two different texts of n bytes have one hash with a probability
// of at most n / 2^61 over R (R. Karp, M. Rabin: Efficient randomized pattern-matching algorithms, 1987). R is fixed, so
// texts can be made that have one. Cost: a multiplication per byte, eight of which do not wait for each other.
// 16 bytes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace vllm_router {

class TextDigest {
 public:
  static constexpr uint64_t kPrime = (uint64_t{1} << 61) - 1;
  static constexpr uint64_t kRadix = 0x1b9f4d2c7a5e3861u % kPrime;

  void Add(std::string_view text) {
    bytes_ += text.size();
    for (; text.size() >= kStride; text.remove_prefix(kStride)) {
      Wide sum = Wide{hash_} * kPowers[kStride];
      for (size_t i = 0; i < kStride; ++i) sum += Wide{Value(text[i])} * kPowers[kStride - 1 - i];
      hash_ = Reduced(sum);
    }
    for (const char c : text) hash_ = Reduced(Wide{hash_} * kRadix + Value(c));
  }

  uint64_t bytes() const { return bytes_; }
  uint64_t hash() const { return hash_; }
  bool operator==(const TextDigest&) const = default;

 private:
  __extension__ using Wide = unsigned __int128;

  static constexpr size_t kStride = 8;

  static uint64_t Value(char c) { return static_cast<unsigned char>(c) + uint64_t{1}; }
  // `number`: below 2^123, as a sum of kStride + 1 products is.
  static uint64_t Reduced(Wide number) {
    const uint64_t once = (static_cast<uint64_t>(number) & kPrime) + static_cast<uint64_t>(number >> 61);
    const uint64_t twice = (once & kPrime) + (once >> 61);
    return twice >= kPrime ? twice - kPrime : twice;
  }
  static constexpr std::array<uint64_t, kStride + 1> kPowers = [] {
    std::array<uint64_t, kStride + 1> powers{1};
    for (size_t i = 1; i <= kStride; ++i) {
      powers[i] = static_cast<uint64_t>(Wide{powers[i - 1]} * kRadix % kPrime);
    }
    return powers;
  }();

  uint64_t bytes_ = 0;
  uint64_t hash_ = 0;
};

}  // namespace vllm_router
