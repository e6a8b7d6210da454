#include "hashing/furc_batch.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>
#include <string>

#include "hashing/hash.h"
#include "hashing/murmur.h"

// Vectors wider than the machine's are passed between functions that are all inlined.
#pragma GCC diagnostic ignored "-Wpsabi"
#pragma GCC diagnostic ignored "-Wunknown-pragmas"  // to unroll

namespace vllm_router {
namespace {

constexpr size_t kWord = sizeof(uint64_t);
constexpr size_t kMostLanes = 64;                          // the maximum of any Walk below
constexpr uint32_t kRejected = (1u << kFurcMaxDepth) - 1;  // the one place for which furc draws again

template <size_t kLanes>
struct Lanes {
  typedef uint64_t Words __attribute__((vector_size(kLanes * sizeof(uint64_t))));
  typedef double Doubles __attribute__((vector_size(kLanes * sizeof(double))));
};

// Turns the first words of furc's streams into ring hashes, in place. True: at least one place was
// kRejected; it is hashed like the others.
template <size_t kLanes>
[[gnu::always_inline]] inline bool WalkLanes(uint64_t* hashes) {
  using Words = typename Lanes<kLanes>::Words;
  using Doubles = typename Lanes<kLanes>::Doubles;
  Words word;
  std::memcpy(&word, hashes, sizeof(word));

  // The depth is the highest set bit, from 23 down to 1; the place without any is 0. A double of that
  // value has the number of the bit as its exponent: 2^52 + value, as bits, is the value behind the
  // exponent of 2^52.
  constexpr uint64_t kTwoTo52 = 0x4330000000000000u;
  const Words low = word & ((1u << (kFurcMaxDepth + 1)) - 2);
  const Doubles value = reinterpret_cast<Doubles>(low | kTwoTo52) - std::bit_cast<double>(kTwoTo52);
  const Words none = reinterpret_cast<Words>(low == 0);
  Words depth = (reinterpret_cast<Words>(value) >> 52) - 1023;
  depth = (depth & ~none) | (none & kFurcMaxDepth);

  // Bit j of the stream behind the depth, for j = 23, 46 ... 506, tells the next lower bit of the place.
  Words place = Words{} + (1u << (kFurcMaxDepth - 1));
#pragma GCC unroll 8
  for (uint32_t i = 0; i < 8; ++i) {
    Words next = word;
    MurmurNextWord(next);
    const Words bits = word >> depth | next << (64 - depth);
    word = next;
#pragma GCC unroll 22
    for (uint32_t level = 1; level < kFurcMaxDepth; ++level) {
      const uint32_t from = level * kFurcShift % 64;
      const uint32_t to = kFurcMaxDepth - 1 - level;
      if (level * kFurcShift / 64 != i) continue;
      const Words moved = from >= to ? bits >> (from - to) : bits << (to - from);
      place |= moved & (uint64_t{1} << to);
    }
  }
  place = (place >> (kFurcMaxDepth - depth)) & ~none;

  // Its Murmur64A, as of four bytes.
  Words hash = (place ^ MurmurStart(sizeof(uint32_t), kFurcSeed)) * kMurmurMultiplier;
  MurmurMixEnd(hash);
  std::memcpy(hashes, &hash, sizeof(hash));
  const auto rejected = place == kRejected;
  int64_t any = 0;
  for (size_t lane = 0; lane < kLanes; ++lane) any |= rejected[lane];
  return any != 0;
}

// `size` is rounded up to whole vectors. A few hashes do not need a wide vector, which a narrower
// machine processes in turns.
template <size_t kLanes>
[[gnu::always_inline]] inline bool WalkAll(uint64_t* hashes, size_t size) {
  bool rejected = false;
  size_t i = 0;
  for (; i + kLanes / 4 < size; i += kLanes) rejected |= WalkLanes<kLanes>(hashes + i);
  for (; i < size; i += 8) rejected |= WalkLanes<8>(hashes + i);
  return rejected;
}

uint64_t WordAt(std::string_view bytes, size_t at) {
  uint64_t word = 0;
  if (at < bytes.size()) std::memcpy(&word, bytes.data() + at, std::min(kWord, bytes.size() - at));
  return word;
}

}  // namespace

FurcBatch::FurcBatch(std::span<const std::string_view> suffixes)
    : size_(suffixes.size()), room_((size_ + kMostLanes - 1) / kMostLanes * kMostLanes) {
  std::vector<uint32_t> order(size_);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    return suffixes[a].size() < suffixes[b].size();
  });
  for (size_t i = 0, end = 0; i < size_; i = end) {
    const auto at = [&](size_t place) { return suffixes[order[place]]; };
    while (end < std::min(i + kBlock, size_) && at(end).size() == at(i).size()) ++end;
    Block block{.size = at(i).size(), .words = words_.size(), .places = {}};
    for (size_t lane = 0; lane < kBlock; ++lane) block.places[lane] = order[std::min(i + lane, end - 1)];
    for (size_t byte = 0; byte < block.size + kWord; byte += kWord) {
      for (const uint32_t place : block.places) words_.push_back(WordAt(suffixes[place], byte));
    }
    blocks_.push_back(block);
  }
}

// True: some place was rejected.
template <size_t kLanes>
[[gnu::always_inline]] inline bool FurcBatch::HashInLanes(std::string_view stem, uint64_t* hashes) const {
  using Words = Lanes<kBlock>::Words;
  const size_t whole = stem.size() / kWord * kWord;
  const uint64_t tail = WordAt(stem, whole);
  const uint64_t shift = 8 * (stem.size() - whole);  // bits
  size_t size = SIZE_MAX;
  uint64_t start = 0;
  for (const Block& block : blocks_) {
    if (block.size != size) {
      size = block.size;
      start = MurmurStart(stem.size() + size, kFurcSeed);
      for (size_t at = 0; at < whole; at += kWord) {
        uint64_t word = WordAt(stem, at);
        MurmurMixWord(word);
        start = (start ^ word) * kMurmurMultiplier;
      }
    }
    // The tail of the stem and the suffix, as words.
    Words hash = Words{} + start;
    Words carried = Words{} + tail;
    const uint64_t* from = &words_[block.words];
    for (size_t left = stem.size() - whole + size; left > 0; from += kBlock) {
      Words read;
      std::memcpy(&read, from, sizeof(read));
      Words word = read << shift | carried;
      carried = (read >> 1) >> (63 - shift);
      if (left >= kWord) MurmurMixWord(word);
      hash = (hash ^ word) * kMurmurMultiplier;
      left -= std::min(left, kWord);
    }
    MurmurMixEnd(hash);
    for (size_t lane = 0; lane < kBlock; ++lane) hashes[block.places[lane]] = hash[lane];
  }
  return WalkAll<kLanes>(hashes, size_);
}

// As many lanes as hide the latency of a multiplication, and as fit into the registers.
struct FurcBatch::Variants {
  using Hash = bool (*)(const FurcBatch& batch, std::string_view stem, uint64_t* hashes);

  static bool Anywhere(const FurcBatch& batch, std::string_view stem, uint64_t* hashes) {
    return batch.HashInLanes<8>(stem, hashes);
  }
#if defined(__x86_64__)
  [[gnu::target("avx2")]] static bool Avx2(const FurcBatch& batch, std::string_view stem, uint64_t* hashes) {
    return batch.HashInLanes<32>(stem, hashes);
  }
  [[gnu::target("avx512f,avx512dq")]] static bool Avx512(
      const FurcBatch& batch, std::string_view stem, uint64_t* hashes) {
    return batch.HashInLanes<kMostLanes>(stem, hashes);
  }
#endif

  static Hash Find() {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512dq")) return Avx512;
    if (__builtin_cpu_supports("avx2")) return Avx2;
#endif
    return Anywhere;
  }
};

void FurcBatch::Hash(std::string_view stem, std::span<uint64_t> hashes) const {
  static const Variants::Hash hash = Variants::Find();
  if (hash(*this, stem, hashes.data())) Redraw(stem, hashes);
}

// One in 2^23 draws the place that does not exist, and then draws again: too rarely for SIMD.
void FurcBatch::Redraw(std::string_view stem, std::span<uint64_t> hashes) const {
  const std::string_view place(reinterpret_cast<const char*>(&kRejected), sizeof(kRejected));
  const uint64_t rejected = Murmur64A(place, kFurcSeed);
  for (const Block& block : blocks_) {
    for (size_t lane = 0; lane < kBlock; ++lane) {
      uint64_t& hash = hashes[block.places[lane]];
      if (hash != rejected) continue;
      std::string text(stem);
      for (size_t byte = 0; byte < block.size; byte += kWord) {
        const uint64_t word = words_[block.words + byte / kWord * kBlock + lane];
        text.append(reinterpret_cast<const char*>(&word), std::min(kWord, block.size - byte));
      }
      hash = RingHash(HashFunction::kFurc, text);
    }
  }
}

}  // namespace vllm_router
