// TextDigest: the length of a text and a hash of it, kept while the text comes in pieces.
//
//   hash = sum of (b_i + 1) * R^(n-1-i) mod 2^61 - 1, over the bytes b_0 … b_(n-1)
//
// Pieces may end anywhere: the hash is of the text alone. Two different texts of n bytes have one hash with a probability
// of at most n / 2^61 over R (R. Karp, M. Rabin: Efficient randomized pattern-matching algorithms, 1987). R is fixed, so
// texts can be made that have one. Cost: a multiplication per byte. 16 bytes.
#pragma once

#include <cstdint>
#include <string_view>

namespace vllm_router {

class TextDigest {
 public:
  static constexpr uint64_t kPrime = (uint64_t{1} << 61) - 1;
  static constexpr uint64_t kRadix = 0x1b9f4d2c7a5e3861u % kPrime;

  void Add(std::string_view text) {
    for (const char c : text) hash_ = Sum(Product(hash_), static_cast<unsigned char>(c) + uint64_t{1});
    bytes_ += text.size();
  }

  uint64_t bytes() const { return bytes_; }
  uint64_t hash() const { return hash_; }
  bool operator==(const TextDigest&) const = default;

 private:
  __extension__ using Wide = unsigned __int128;

  static uint64_t Sum(uint64_t a, uint64_t b) {
    const uint64_t sum = a + b;
    return sum >= kPrime ? sum - kPrime : sum;
  }
  static uint64_t Product(uint64_t a) {
    const Wide product = Wide{a} * kRadix;
    return Sum(static_cast<uint64_t>(product) & kPrime, static_cast<uint64_t>(product >> 61));
  }

  uint64_t bytes_ = 0;
  uint64_t hash_ = 0;
};

}  // namespace vllm_router
