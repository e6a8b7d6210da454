// IdentityMap: for each block that one engine's cache holds, from the engine's hash of it to its place in a
// BlockIndex and the tiers it is on.
//
//   entry   | engine hash 64 | BlockRef 60 | external 1 | host 1 | GPU copies 2 |        16 bytes
//
// An engine's block may be several blocks of the index: the entry has the place of the first, and the others
// usually follow it in the same run. Places that do not, and counts of 3 copies and more, are in side tables.
//
// Open addressing with linear probing; the table grows by half at a load of 0.8, and erasing moves the entries
// behind back, so it has no tombstones. Any hash is legal. Places depend on a random seed, so a stream cannot
// choose hashes that collide.
//
// Cost: one cache miss; growing moves 5 to 10 ns per entry at once. 20 to 29 bytes per block. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <absl/container/flat_hash_map.h>

#include "events/kv_event.h"
#include "index/block_ref.h"
#include "index/worker_slot.h"

namespace vllm_router {

class IdentityMap {
 public:
  class Entry {
   public:
    EngineHash hash() const { return hash_; }
    bool IsOn(Tier tier) const { return (bits_ & MaskOf(tier)) != 0; }
    bool IsOnAny() const { return (bits_ & kTierMask) != 0; }

   private:
    friend class IdentityMap;
    static constexpr uint64_t kCopiesMask = 3;
    static constexpr uint64_t kTierMask = 15;
    static constexpr int kTierBits = 4;
    static constexpr uint64_t MaskOf(Tier tier) {
      return tier == Tier::kGpu ? kCopiesMask : uint64_t{2} << static_cast<int>(tier);
    }

    EngineHash hash_;
    uint64_t bits_;  // 0: the place is empty
  };

  IdentityMap(uint64_t max_entries, uint64_t seed) : max_entries_(max_entries), seed_(seed) {}

  // Valid until the next Add, Erase or Clear.
  Entry* Find(EngineHash hash);
  void Prefetch(EngineHash hash) const;
  // An entry on no tier. Null if the map is full. REQUIRES: the hash is not in it, and `refs` is not empty.
  Entry* Add(EngineHash hash, std::span<const BlockRef> refs);
  void Erase(Entry* entry);
  void Clear();

  // REQUIRES: `refs` is not empty. An entry has the same number of places for its life.
  void SetRefs(Entry* entry, std::span<const BlockRef> refs);
  bool HasRefs(const Entry& entry, std::span<const BlockRef> refs) const;
  void AppendRefs(const Entry& entry, uint32_t count, std::vector<BlockRef>* refs) const;
  BlockRef LastRef(const Entry& entry, uint32_t count) const;

  // Physical copies on the GPU; a tier that is no GPU has one at most.
  uint32_t Copies(const Entry& entry) const;
  void AddCopy(Entry* entry);
  // It is on the tier, with one copy if it was not.
  void Put(Entry* entry, Tier tier);
  // One copy fewer. REQUIRES: it is on the tier.
  void Take(Entry* entry, Tier tier);
  void TakeAll(Entry* entry);  // from every tier

  size_t size() const { return size_; }
  size_t on_gpu() const { return on_gpu_; }  // entries, whatever their copies
  size_t capacity() const { return capacity_; }
  bool full() const { return size_ >= max_entries_; }
  size_t bytes() const;

 private:
  __extension__ using Wide = unsigned __int128;
  // Instead of the place of an entry whose places are in `scattered_`; run 0 does not exist.
  static constexpr uint64_t kScattered = 1 << 16;
  static constexpr size_t kLeastCapacity = 64;

  static BlockRef FirstRef(const Entry& entry) { return BlockRef(entry.bits_ >> Entry::kTierBits); }
  static bool IsScattered(const Entry& entry) { return entry.bits_ >> Entry::kTierBits == kScattered; }
  size_t HomeOf(EngineHash hash) const;
  size_t After(size_t place) const { return place + 1 == capacity_ ? 0 : place + 1; }
  void Grow();

  const uint64_t max_entries_;
  const uint64_t seed_;
  size_t size_ = 0;
  size_t on_gpu_ = 0;
  size_t capacity_ = 0;
  std::unique_ptr<Entry[]> entries_;
  absl::flat_hash_map<EngineHash, uint32_t> many_copies_;  // 3 and more
  absl::flat_hash_map<EngineHash, std::vector<BlockRef>> scattered_;
};

}  // namespace vllm_router
