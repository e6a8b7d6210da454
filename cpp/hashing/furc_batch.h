// FurcBatch: furc's ring hash of one stem with each of many suffixes, such as "<key>:" and the URLs of a
// fleet.
//
//   FurcBatch urls({"http://w0:8000", "http://w1:8000"});
//   urls.Hash("abc:", hashes);             hashes[1] == RingHash(HashFunction::kFurc, "abc:http://w1:8000")
//
// One such hash is a chain of some 40 multiplications, each of which depends on the one before it. So
// many hashes are computed in parallel, in the lanes of vector registers. The stem is hashed once per
// length of suffix:
//
//   block    eight suffixes of one length, word by word     [ http://w ] x 8   [ 10:8000. ] x 8
//   walk     the bits of furc's stream that tell the place stand 23 apart, behind a start that differs by lane; moved
//            there, they stand at the same places in all lanes
//
// Cost, relative to one hash at a time: a tenth with AVX-512 (7 ns for a suffix of 14 bytes), a sixth
// with AVX2, a third without. Fewer than nine suffixes take 250 ns together. Immutable; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace vllm_router {

class FurcBatch {
 public:
  FurcBatch() = default;
  explicit FurcBatch(std::span<const std::string_view> suffixes);

  // Elements that Hash() writes: one for each suffix, then padding without meaning.
  size_t room() const { return room_; }
  // REQUIRES: hashes.size() >= room().
  void Hash(std::string_view stem, std::span<uint64_t> hashes) const;

 private:
  static constexpr size_t kBlock = 8;

  struct Block {
    size_t size;                          // bytes of each suffix
    size_t words;                         // offset of their words
    std::array<uint32_t, kBlock> places;  // in hashes; the last one may be repeated
  };

  struct Variants;  // per instruction set
  template <size_t kLanes>
  bool HashInLanes(std::string_view stem, uint64_t* hashes) const;
  void Redraw(std::string_view stem, std::span<uint64_t> hashes) const;

  size_t size_ = 0;
  size_t room_ = 0;
  std::vector<Block> blocks_;  // ascending by size
  std::vector<uint64_t>
      words_;  // of a block: the first of each suffix, the second of each ...; then one of zeros
};

}  // namespace vllm_router
