// One writer stores, removes, evicts and sweeps while readers match. Before each change of an owner the writer says
// between which depths the owner may be found meanwhile; a reader that finds the same said before and after its match
// holds the depth it found against it. Around them: a reader that sleeps while pinned, readers that come and go, and
// owners whose only purpose is to move cells, arrays and tables about.
#include "index/block_index.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

#include "base/random.h"
#include "stress.h"

namespace vllm_router {
namespace {

constexpr int kChains = 12;
constexpr uint32_t kLength = 96;
constexpr int kOwners = 6;  // that are watched
constexpr int kNoise = 40;  // that are not
constexpr int kChanges = 30'000;
constexpr int kReaders = 2;

// Chains that leave a common trunk at different blocks: chain c shares its first 8 * c blocks with chain 11.
std::vector<std::vector<BlockHash>> MakeChains() {
  Random random(3);
  std::vector<BlockHash> trunk(kLength);
  for (BlockHash& block : trunk) block = random.Next() | 1;
  std::vector<std::vector<BlockHash>> chains(kChains, trunk);
  for (int c = 0; c < kChains; ++c) {
    for (uint32_t i = 8 * static_cast<uint32_t>(c); i < kLength; ++i) chains[c][i] = random.Next() | 1;
  }
  return chains;
}

// The writer's model: which blocks of each chain an owner holds. Blocks of the trunk are the same in many chains.
class Watched {
 public:
  explicit Watched(const std::vector<std::vector<BlockHash>>& chains) : chains_(chains) {
    for (auto& bounds : bounds_) {
      for (auto& word : bounds) word.store(0);
    }
  }

  // What readers may find while the owner goes from one state to the other, and after.
  void Change(int owner, const std::vector<BlockHash>& blocks, bool add, auto change) {
    std::array<uint64_t, kChains> before;
    for (int c = 0; c < kChains; ++c) before[c] = Depth(owner, c);
    for (const BlockHash block : blocks) {
      auto& held = held_[owner];
      const auto at = std::lower_bound(held.begin(), held.end(), block);
      const bool there = at != held.end() && *at == block;
      if (add && !there) held.insert(at, block);
      if (!add && there) held.erase(at);
    }
    ++version_;
    for (int c = 0; c < kChains; ++c) {
      const uint64_t after = Depth(owner, c);
      Say(owner, c, std::min(before[c], after), std::max(before[c], after));
    }
    change();
    ++version_;
    for (int c = 0; c < kChains; ++c) {
      const uint64_t after = Depth(owner, c);
      Say(owner, c, after, after);
    }
  }

  uint64_t Said(int owner, int chain) const { return bounds_[owner][chain].load(); }
  static bool Allows(uint64_t said, uint64_t depth) {
    return depth >= (said >> 8 & 0xff) && depth <= (said & 0xff);
  }
  const std::vector<BlockHash>& held(int owner) const { return held_[owner]; }

 private:
  uint64_t Depth(int owner, int chain) const {
    uint64_t depth = 0;
    for (const BlockHash block : chains_[chain]) {
      if (!std::binary_search(held_[owner].begin(), held_[owner].end(), block)) break;
      ++depth;
    }
    return depth;
  }
  void Say(int owner, int chain, uint64_t least, uint64_t most) {
    bounds_[owner][chain].store(version_ << 16 | least << 8 | most);
  }

  const std::vector<std::vector<BlockHash>>& chains_;
  std::array<std::vector<BlockHash>, kOwners> held_;
  std::array<std::array<std::atomic<uint64_t>, kChains>, kOwners> bounds_;
  uint64_t version_ = 0;
};

class Race {
 public:
  Race() : chains_(MakeChains()), watched_(chains_) {
    for (int i = 0; i < kOwners; ++i) owners_.push_back(index_.AddOwner().value());
    for (int i = 0; i < kNoise; ++i) noise_.push_back(index_.AddOwner().value());
  }

  void Run() {
    RunTogether(1 + kReaders + 2, [this](int thread) {
      if (thread == 0) {
        Write();
      } else if (thread <= kReaders) {
        Read(static_cast<uint64_t>(thread));
      } else if (thread == kReaders + 1) {
        ComeAndGo();
      } else {
        SleepPinned();
      }
    });
    Clear();
    STRESS_CHECK(checked_ > 1000);
  }

 private:
  void Write() {
    Random random(11);
    std::vector<BlockRef> refs(kLength);
    for (int change = 0; change < kChanges; ++change) {
      if (change % 2 == 1) {
        Disturb(&random);
        continue;
      }
      const int owner = static_cast<int>(random.Below(kOwners));
      const std::vector<BlockHash>& chain = chains_[random.Below(kChains)];
      const auto size = static_cast<size_t>(random.Below(kLength + 1));
      std::vector<BlockHash> blocks(chain.begin(), chain.begin() + static_cast<std::ptrdiff_t>(size));
      if (random.Below(2) == 0) {
        watched_.Change(owner, blocks, true, [&] {
          index_.Insert(owners_[owner], Tier::kGpu, BlockRef(), blocks, refs.data());
        });
        for (size_t i = 0; i < size; ++i) Remember(blocks[i], refs[i]);
      } else {
        // A stretch from the tail, the head or the middle.
        const size_t begin = static_cast<size_t>(random.Below(size + 1));
        blocks.erase(blocks.begin(), blocks.begin() + static_cast<std::ptrdiff_t>(begin));
        std::erase_if(blocks, [&](BlockHash block) {
          return !std::binary_search(watched_.held(owner).begin(), watched_.held(owner).end(), block);
        });
        if (random.Below(2) == 0) std::reverse(blocks.begin(), blocks.end());
        std::vector<BlockRef> gone;
        for (const BlockHash block : blocks) gone.push_back(refs_.at(block));
        watched_.Change(owner, blocks, false, [&] { index_.Remove(owners_[owner], Tier::kGpu, gone); });
      }
    }
    done_ = true;
  }

  // Owners that nobody watches: the same runs, other tiers, runs of their own, removal and sweeps.
  void Disturb(Random* random) {
    WorkerSlot& owner = noise_[random->Below(kNoise)];
    const std::vector<BlockHash>& chain = chains_[random->Below(kChains)];
    std::vector<BlockRef> refs(kLength);
    switch (random->Below(8)) {
      case 0:
        index_.RemoveOwner(owner);
        while (index_.Sweep(16)) {
        }
        owner = index_.AddOwner().value();
        break;
      case 1: {
        std::vector<BlockHash> own(1 + random->Below(200));
        for (BlockHash& block : own) block = random->Next();
        refs.resize(own.size());
        index_.Insert(owner, Tier::kGpu, BlockRef(), own, refs.data());
        if (random->Below(4) != 0) index_.Remove(owner, Tier::kGpu, refs);
        break;
      }
      default: {
        const auto tier = static_cast<Tier>(random->Below(kTierCount));
        const std::span<const BlockHash> some(chain.data(), 1 + random->Below(kLength));
        index_.Insert(owner, tier, BlockRef(), some, refs.data());
        for (size_t i = 0; i < some.size(); ++i) Remember(some[i], refs[i]);
        refs.resize(some.size());
        if (random->Below(3) == 0)
          refs.erase(refs.begin(), refs.begin() + static_cast<std::ptrdiff_t>(some.size() / 2));
        index_.Remove(owner, tier, refs);
        break;
      }
    }
  }

  void Remember(BlockHash block, BlockRef ref) { refs_[block] = ref; }

  void MatchAndCheck(Random* random, BlockMatches* matches) {
    const int chain = static_cast<int>(random->Below(kChains));
    std::array<uint64_t, kOwners> before;
    for (int owner = 0; owner < kOwners; ++owner) before[owner] = watched_.Said(owner, chain);
    index_.Match(chains_[chain], matches);
    for (int owner = 0; owner < kOwners; ++owner) {
      const BlockMatch* const match = std::as_const(*matches).Find(owners_[owner]);
      const uint64_t said = watched_.Said(owner, chain);
      if (said != before[owner]) continue;
      STRESS_CHECK(Watched::Allows(said, match == nullptr ? 0 : match->on(Tier::kGpu)));
      STRESS_CHECK(match == nullptr || match->on(Tier::kGpu) == match->longest());
      ++checked_;
    }
    for (const BlockMatch& match : matches->entries()) {
      STRESS_CHECK(match.blocks[0] <= match.blocks[1] && match.blocks[1] <= match.blocks[2]);
      STRESS_CHECK(match.blocks[2] <= kLength);
    }
  }

  void Read(uint64_t seed) {
    Random random(seed);
    BlockMatches matches;
    while (!done_) MatchAndCheck(&random, &matches);
  }

  void ComeAndGo() {
    for (uint64_t seed = 100; !done_; ++seed) {
      std::thread([this, seed] {
        Random random(seed);
        BlockMatches matches;
        for (int i = 0; i < 20 && !done_; ++i) MatchAndCheck(&random, &matches);
      }).join();
    }
  }

  void SleepPinned() {
    while (!done_) {
      const ReadGuard guard;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }

  void Clear() {
    STRESS_CHECK(index_.CheckInvariants().empty());
    for (const WorkerSlot owner : owners_) index_.RemoveOwner(owner);
    for (const WorkerSlot owner : noise_) index_.RemoveOwner(owner);
    while (index_.Sweep(100)) {
    }
    STRESS_CHECK(index_.CheckInvariants().empty());
    const BlockIndexStats stats = index_.stats();
    STRESS_CHECK(stats.runs == 0 && stats.blocks == 0 && stats.pairs == 0 && stats.block_bytes == 0);
  }

  const std::vector<std::vector<BlockHash>> chains_;
  BlockIndex index_;
  Watched watched_;
  std::vector<WorkerSlot> owners_;
  std::vector<WorkerSlot> noise_;
  absl::flat_hash_map<BlockHash, BlockRef> refs_;
  std::atomic<bool> done_{false};
  std::atomic<uint64_t> checked_{0};
};

}  // namespace
}  // namespace vllm_router

int main() { vllm_router::Race().Run(); }
