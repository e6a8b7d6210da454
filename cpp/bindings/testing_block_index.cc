// The block index and its parts, for tests.
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "base/epoch.h"
#include "bindings/arguments.h"
#include "bindings/bindings.h"
#include "bindings/errors.h"
#include "index/block_cache_tracker.h"
#include "index/block_index.h"
#include "index/claim_table.h"
#include "index/segment_lru.h"

namespace vllm_router {

namespace py = pybind11;
using namespace py::literals;

namespace {

using Hashes = py::array_t<uint64_t, py::array::c_style | py::array::forcecast>;

std::span<const uint64_t> View(const Hashes& hashes) {
  return {hashes.data(), static_cast<size_t>(hashes.size())};
}

std::vector<BlockRef> Refs(const Hashes& bits) {
  std::vector<BlockRef> refs;
  for (const uint64_t each : View(bits)) refs.emplace_back(each);
  return refs;
}

// An index for tests: owners and refs as integers, tiers as 0 to 2.
class TestIndex {
 public:
  explicit TestIndex(uint64_t max_blocks) : index_({.max_blocks = max_blocks}) {}

  int AddOwner() { return static_cast<int>(ValueOrThrow(index_.AddOwner())); }
  void RemoveOwner(uint16_t owner) { index_.RemoveOwner(WorkerSlot{owner}); }
  bool Sweep(size_t runs) { return index_.Sweep(runs); }

  std::pair<std::string, Hashes> Insert(uint16_t owner, int tier, uint64_t parent, const Hashes& blocks) {
    std::vector<BlockRef> refs(static_cast<size_t>(blocks.size()));
    const InsertResult result = index_.Insert(
        WorkerSlot{owner}, static_cast<Tier>(tier), BlockRef(parent), View(blocks), refs.data());
    Hashes bits(static_cast<py::ssize_t>(result.inserted));
    for (size_t i = 0; i < result.inserted; ++i) bits.mutable_data()[i] = refs[i].bits();
    constexpr const char* kNames[] = {"inserted", "unknown_parent", "unknown_owner", "full"};
    return {kNames[static_cast<int>(result.status)], bits};
  }

  void Remove(uint16_t owner, int tier, const Hashes& refs) {
    index_.Remove(WorkerSlot{owner}, static_cast<Tier>(tier), Refs(refs));
  }
  void RemoveSpan(uint16_t owner, int tier, uint64_t first, uint32_t count) {
    const BlockSpan span{BlockRef(first), count};
    index_.Remove(WorkerSlot{owner}, static_cast<Tier>(tier), std::span(&span, 1));
  }

  std::optional<uint64_t> HashAt(uint64_t ref) const { return index_.HashAt(BlockRef(ref)); }

  py::dict Match(const Hashes& chain) {
    index_.Match(View(chain), &matches_);
    py::dict found;
    for (const BlockMatch& match : matches_.entries()) {
      found[py::int_(static_cast<int>(match.owner))] =
          py::make_tuple(match.blocks[0], match.blocks[1], match.blocks[2]);
    }
    return found;
  }

  std::optional<std::pair<int, uint32_t>> Best(
      const Hashes& chain, const std::optional<std::vector<int>>& eligible) {
    WorkerSlotSet set;
    if (eligible) {
      for (const int owner : *eligible) set.set(static_cast<size_t>(owner));
    }
    const auto best = index_.FindBest(View(chain), eligible ? &set : nullptr, &matches_);
    if (!best) return std::nullopt;
    return std::pair(static_cast<int>(best->owner), best->longest());
  }

  uint64_t BlockCount(uint16_t owner) const { return index_.BlockCount(WorkerSlot{owner}); }
  std::string Check() const { return index_.CheckInvariants(); }

  py::dict Stats() const {
    const BlockIndexStats stats = index_.stats();
    py::dict values;
    values["owners"] = stats.owners;
    values["runs"] = stats.runs;
    values["blocks"] = stats.blocks;
    values["pairs"] = stats.pairs;
    values["pairs_on"] = std::vector<uint64_t>(stats.pairs_on, stats.pairs_on + kTierCount);
    values["irregular"] = stats.irregular;
    values["directory_bytes"] = stats.directory_bytes;
    values["run_bytes"] = stats.run_bytes;
    values["block_bytes"] = stats.block_bytes;
    values["irregular_bytes"] = stats.irregular_bytes;
    values["backlog_bytes"] = stats.backlog_bytes;
    values["bytes"] = stats.bytes;
    values["bytes_per_pair"] = stats.bytes_per_pair();
    values["inserted_blocks"] = stats.inserted_blocks;
    values["removed_blocks"] = stats.removed_blocks;
    values["stale_refs"] = stats.stale_refs;
    values["not_held"] = stats.not_held;
    values["unknown_parents"] = stats.unknown_parents;
    values["refused_blocks"] = stats.refused_blocks;
    return values;
  }

 private:
  BlockIndex index_;
  BlockMatches matches_;
};

// A directory over cells that are only distinguished.
class TestDirectory {
 public:
  TestDirectory()
      : reclaimer_(
            [](void* pool, void* memory, size_t bytes) {
              static_cast<MemoryPool*>(pool)->Free(memory, bytes);
            },
            &pool_),
        directory_(&pool_, &reclaimer_) {}

  std::optional<uint32_t> Find(BlockHash head) const {
    const ReadGuard guard;
    const RunCell* const cell = directory_.Find(head);
    if (cell == nullptr) return std::nullopt;
    return cell->run;
  }
  void Put(BlockHash head, uint32_t run) { directory_.Put(head, MakeCell(run)); }
  void Replace(BlockHash head, uint32_t run) { directory_.Replace(head, MakeCell(run)); }
  void Erase(BlockHash head) { directory_.Erase(head); }
  size_t size() const { return directory_.size(); }
  size_t capacity() const { return directory_.capacity(); }
  size_t bytes() const { return directory_.bytes(); }
  uint64_t growths() const { return directory_.growths(); }

 private:
  RunCell* MakeCell(uint32_t run) {
    cells_.push_back(std::make_unique<RunCell>());
    cells_.back()->run = run;
    return cells_.back().get();
  }

  std::vector<std::unique_ptr<RunCell>> cells_;
  MemoryPool pool_;
  EpochReclaimer reclaimer_;
  RunDirectory directory_;
};

// Retires numbers, and reports which have been freed.
class TestReclaimer {
 public:
  TestReclaimer()
      : reclaimer_(
            [](void* self, void* number, size_t /*bytes*/) {
              static_cast<TestReclaimer*>(self)->freed.push_back(reinterpret_cast<uintptr_t>(number));
            },
            this) {}

  void Retire(uintptr_t number, size_t bytes) { reclaimer_.Retire(reinterpret_cast<void*>(number), bytes); }
  void Collect() { reclaimer_.Collect(); }
  size_t backlog() const { return reclaimer_.backlog(); }
  size_t backlog_bytes() const { return reclaimer_.backlog_bytes(); }

  std::vector<uintptr_t> freed;

 private:
  EpochReclaimer reclaimer_;
};

// Pieces by number, each filled with its own byte, to detect overlaps.
class TestPool {
 public:
  size_t Allocate(size_t bytes, bool zeroed) {
    auto* const piece =
        static_cast<unsigned char*>(zeroed ? pool_.AllocateZeroed(bytes) : pool_.Allocate(bytes));
    bool clean = true;
    for (size_t i = 0; zeroed && i < bytes; ++i) clean = clean && piece[i] == 0;
    pieces_.push_back({piece, bytes});
    std::fill_n(piece, bytes, Mark(pieces_.size() - 1));
    if (!clean) throw py::value_error("the piece was not zeroed");
    return pieces_.size() - 1;
  }
  bool IsWhole(size_t number) const {
    const auto& [piece, bytes] = pieces_[number];
    return std::all_of(piece, piece + bytes, [&](unsigned char byte) { return byte == Mark(number); });
  }
  bool IsAligned(size_t number, size_t to) const {
    return reinterpret_cast<uintptr_t>(pieces_[number].first) % to == 0;
  }
  void Free(size_t number) { pool_.Free(pieces_[number].first, pieces_[number].second); }
  size_t live_bytes() const { return pool_.live_bytes(); }

 private:
  static unsigned char Mark(size_t number) { return static_cast<unsigned char>(number % 251 + 1); }

  MemoryPool pool_;
  std::vector<std::pair<unsigned char*, size_t>> pieces_;
};

}  // namespace

void BindTestingBlockIndex(py::module_& testing) {
  py::class_<TestIndex>(testing, "BlockIndex")
      .def(py::init<uint64_t>(), "max_blocks"_a = 100'000'000)
      .def("add_owner", &TestIndex::AddOwner)
      .def("remove_owner", &TestIndex::RemoveOwner)
      .def("sweep", &TestIndex::Sweep)
      .def("insert", &TestIndex::Insert)
      .def("remove", &TestIndex::Remove)
      .def("remove_span", &TestIndex::RemoveSpan)
      .def("hash_at", &TestIndex::HashAt)
      .def("match", &TestIndex::Match)
      .def("best", &TestIndex::Best, "chain"_a, "eligible"_a = py::none())
      .def("block_count", &TestIndex::BlockCount)
      .def("stats", &TestIndex::Stats)
      .def("check", &TestIndex::Check);
  testing.attr("MAX_RUN_BLOCKS") = kMaxRunBlocks;

  py::class_<TestDirectory>(testing, "RunDirectory")
      .def(py::init<>())
      .def("find", &TestDirectory::Find)
      .def("put", &TestDirectory::Put)
      .def("replace", &TestDirectory::Replace)
      .def("erase", &TestDirectory::Erase)
      .def("__len__", &TestDirectory::size)
      .def_property_readonly("capacity", &TestDirectory::capacity)
      .def_property_readonly("bytes", &TestDirectory::bytes)
      .def_property_readonly("growths", &TestDirectory::growths);

  py::class_<Coverage>(testing, "Coverage")
      .def(py::init<>())
      .def_static("leading", &Coverage::Leading)
      .def(
          "add",
          [](Coverage& self, int tier, uint32_t begin, uint32_t end) {
            const Coverage::Change change = self.Add(static_cast<Tier>(tier), begin, end);
            return std::pair(change.on_tier, change.held);
          })
      .def(
          "remove",
          [](Coverage& self, int tier, uint32_t begin, uint32_t end) {
            const Coverage::Change change = self.Remove(static_cast<Tier>(tier), begin, end);
            return std::pair(change.on_tier, change.held);
          })
      .def_property_readonly("cuts", &Coverage::cuts)
      .def_property_readonly("end", &Coverage::end)
      .def_property_readonly("is_leading", &Coverage::IsLeading)
      .def_property_readonly("empty", &Coverage::empty)
      .def("count", [](const Coverage& self) { return self.Count(); })
      .def("count_on", [](const Coverage& self, int tier) { return self.Count(static_cast<Tier>(tier)); });

  // A tracker with workers by number, whose records may be open.
  py::class_<BlockCacheTracker>(testing, "ClaimTracker")
      .def(
          py::init(
              [](uint64_t capacity) { return new BlockCacheTracker({.max_blocks_per_worker = capacity}); }),
          "capacity"_a)
      .def(
          "add_worker",
          [](BlockCacheTracker& self) { return static_cast<uint32_t>(ValueOrThrow(self.AddWorker())); })
      .def(
          "remove_worker",
          [](BlockCacheTracker& self, uint16_t worker) { self.RemoveWorker(WorkerSlot{worker}); })
      .def(
          "record",
          [](BlockCacheTracker& self, uint16_t worker, const Hashes& chain, size_t unnamed) {
            self.Record(WorkerSlot{worker}, View(chain), unnamed);
          },
          "worker"_a, "chain"_a, "unnamed"_a = 0)
      .def(
          "record_open",
          [](BlockCacheTracker& self, uint16_t worker, const Hashes& chain, size_t unnamed) {
            return self.RecordOpen(WorkerSlot{worker}, View(chain), unnamed);
          },
          "worker"_a, "chain"_a, "unnamed"_a = 0)
      .def(
          "reloaded",
          [](BlockCacheTracker& self) {
            ImageWriter writer;
            self.Save(&writer);
            const std::string image = SealIndexImage(IndexKind::kBlockCacheTracker, std::move(writer));
            ImageReader reader(OpenIndexImage(IndexKind::kBlockCacheTracker, image).value());
            return ValueOrThrow(BlockCacheTracker::Load(&reader));
          })
      // Gives a worker of this one what one of `other` has.
      .def(
          "adopt", [](BlockCacheTracker& self, uint16_t worker, const BlockCacheTracker& other,
                      uint16_t theirs) { self.Adopt(WorkerSlot{worker}, other, WorkerSlot{theirs}); })
      .def("confirm", &BlockCacheTracker::Confirm)
      .def("withdraw", &BlockCacheTracker::Withdraw)
      .def(
          "evict", [](BlockCacheTracker& self, uint16_t worker,
                      uint64_t max_blocks) { return self.Evict(WorkerSlot{worker}, max_blocks); })
      .def(
          "block_count",
          [](BlockCacheTracker& self, uint16_t worker) { return self.BlockCount(WorkerSlot{worker}); })
      .def(
          "match",
          [](BlockCacheTracker& self, const Hashes& chain) {
            BlockMatches matches;
            self.Match(View(chain), &matches);
            py::dict held;
            for (const BlockMatch& match : matches.entries()) {
              held[py::int_(static_cast<uint32_t>(match.owner))] = match.longest();
            }
            return held;
          })
      .def(
          "stats",
          [](BlockCacheTracker& self) {
            const BlockCacheTrackerStats stats = self.stats();
            return py::dict(
                "segments"_a = stats.segments, "pairs"_a = stats.index.pairs,
                "unnamed"_a = stats.unnamed_blocks, "bytes"_a = stats.bytes);
          })
      .def("check", [](BlockCacheTracker& self) { return self.index().CheckInvariants(); });

  using Claims = ClaimTable<int>;
  py::class_<Claims>(testing, "ClaimTable")
      .def(py::init<>())
      // The claim, and the payload of a confirmed one whose slot it took.
      .def(
          "add",
          [](Claims& self, int payload) {
            std::optional<int> settled;
            const uint64_t claim =
                self.Add([&](int& place) { place = payload; }, [&](int confirmed) { settled = confirmed; });
            return std::pair(claim, settled);
          })
      .def("confirm", &Claims::Confirm)
      .def("drop", &Claims::Drop)
      .def("drop_if_even", [](Claims& self) { self.DropIf([](int payload) { return payload % 2 == 0; }); })
      .def("is_open", &Claims::IsOpen)
      .def(
          "find",
          [](Claims& self, uint64_t claim) {
            const int* const found = self.Find(claim);
            return found != nullptr ? std::optional(*found) : std::nullopt;
          })
      .def_property_readonly("slots", &Claims::slots);
  testing.attr("MAX_CLAIMS") = kMaxClaims;

  py::class_<SegmentLru>(testing, "SegmentLru")
      .def(py::init<>())
      .def(
          "touch", [](SegmentLru& self, uint32_t run,
                      uint32_t end) { self.Touch({.first = BlockRef(run, 1, 0), .count = end}); })
      .def("add_unnamed", &SegmentLru::AddUnnamed, "count"_a, "claim"_a = 0)
      .def("withdraw_unnamed", &SegmentLru::WithdrawUnnamed)
      .def(
          "take_oldest",
          [](SegmentLru& self, uint64_t most) -> std::optional<std::tuple<uint32_t, uint32_t, uint32_t>> {
            const BlockSpan taken = self.TakeOldest(most);
            if (taken.count == 0) return std::nullopt;
            return std::tuple(taken.first.run(), taken.first.offset(), taken.count);
          })
      .def_property_readonly("segments", &SegmentLru::segments)
      .def_property_readonly("unnamed", &SegmentLru::unnamed_blocks)
      .def_property_readonly("empty", &SegmentLru::empty);

  py::class_<TestReclaimer>(testing, "EpochReclaimer")
      .def(py::init<>())
      .def("retire", &TestReclaimer::Retire, "number"_a, "bytes"_a = 1)
      .def("collect", &TestReclaimer::Collect)
      .def_readonly("freed", &TestReclaimer::freed)
      .def_property_readonly("backlog", &TestReclaimer::backlog)
      .def_property_readonly("backlog_bytes", &TestReclaimer::backlog_bytes);
  py::class_<ReadGuard>(testing, "ReadGuard").def(py::init<>());
  testing.def("epoch_now", &EpochReclaimer::Now);
  testing.def("epoch_all_left_since", &EpochReclaimer::AllLeftSince);
  testing.def("threads_that_pin_once", [](int threads) {
    const py::gil_scoped_release release;
    for (int i = 0; i < threads; ++i) std::thread([] { const ReadGuard guard; }).join();
  });

  py::class_<TestPool>(testing, "MemoryPool")
      .def(py::init<>())
      .def_static("round_up", &MemoryPool::RoundUp)
      .def("allocate", &TestPool::Allocate, "bytes"_a, "zeroed"_a = false)
      .def("is_whole", &TestPool::IsWhole)
      .def("is_aligned", &TestPool::IsAligned)
      .def("free", &TestPool::Free)
      .def_property_readonly("live_bytes", &TestPool::live_bytes);

  testing.def("common_prefix", [](const Hashes& a, const Hashes& b) {
    return CommonPrefix(a.data(), b.data(), static_cast<size_t>(std::min(a.size(), b.size())));
  });
  testing.def("holder", [](uint16_t owner, const Cuts& cuts) {
    const Holder holder(WorkerSlot{owner}, cuts);
    return py::make_tuple(
        holder.empty(), static_cast<int>(holder.owner()), holder.cut(0), holder.cut(1), holder.cut(2),
        holder.Is(WorkerSlot{owner}));
  });
  testing.def(
      "best_match",
      [](const std::vector<std::pair<int, std::array<uint32_t, kTierCount>>>& entries,
         const std::optional<std::vector<int>>& eligible) -> std::optional<int> {
        BlockMatches matches;
        {
          BlockMatches::Adder adder(&matches);
          for (const auto& [owner, blocks] : entries) adder.Add(static_cast<WorkerSlot>(owner), blocks);
        }
        WorkerSlotSet set;
        for (const int owner : eligible.value_or(std::vector<int>{})) set.set(static_cast<size_t>(owner));
        const BlockMatch* const best = matches.Best(eligible ? &set : nullptr);
        if (best == nullptr) return std::nullopt;
        return static_cast<int>(best->owner);
      });
  testing.def("block_ref", [](uint32_t run, uint16_t generation, uint32_t offset) {
    const BlockRef ref(run, generation, offset);
    return py::make_tuple(ref.bits(), ref.run(), ref.generation(), ref.offset(), ref.is_root());
  });
}

}  // namespace vllm_router
