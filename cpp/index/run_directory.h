// RunDirectory: hash of a run's first block -> the run's cell. Open addressing; readers never wait.
//
//   slots   [ h(a) -> cell ]  [ 0 ]  [ h(x) -> null ]  [ h(b) -> cell ]      0: never used; null: removed
//
// A removed entry keeps its hash, so that probes continue past it; its slot serves the same hash again.
// When three fifths are used, a new table is published at once, and each Put moves a few slots of the
// old one. Until all are moved, readers search both, and every change is made in both:
//
//   current    [ new entries, and those moved ]          searched first
//   previous   [ all entries that were there before ]    kept in step, then retired
//
// Cost: 16 bytes per slot, 15 to 60 % of them in use; Find one cache line mostly, Put as much and its
// share of moving. Find: any thread that is pinned (base/epoch.h). The rest: one writer at a time.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/epoch.h"
#include "hashing/block_hash.h"
#include "index/memory_pool.h"
#include "index/run.h"

namespace vllm_router {

class RunDirectory {
  struct Table;

 public:
  RunDirectory(MemoryPool* pool, EpochReclaimer* reclaimer);
  ~RunDirectory();
  RunDirectory(const RunDirectory&) = delete;
  RunDirectory& operator=(const RunDirectory&) = delete;

  // The present tables, for several lookups: for a reader while it is pinned, for the writer until its
  // next change.
  class View {
   public:
    explicit View(const RunDirectory& directory)
        : directory_(directory),
          current_(directory.current_.load(std::memory_order_acquire)),
          // Read before any lookup: an entry that is not yet in `current_` then is still in `previous_`.
          previous_(current_->previous.load(std::memory_order_acquire)) {}

    // Null if there is none.
    RunCell* Find(BlockHash head) const {
      if (head == kNoBlock) return directory_.of_zero_.load(std::memory_order_acquire);
      RunCell* cell = Probe(*current_, head).cell.load(std::memory_order_acquire);
      if (cell == nullptr && previous_ != nullptr)
        cell = Probe(*previous_, head).cell.load(std::memory_order_acquire);
      return cell;
    }
    void Prefetch(BlockHash head) const { __builtin_prefetch(&current_->slots()[current_->Home(head)]); }

   private:
    const RunDirectory& directory_;
    Table* const current_;
    Table* const previous_;
  };

  RunCell* Find(BlockHash head) const { return View(*this).Find(head); }

  // REQUIRES: Find(head) == nullptr.
  void Put(BlockHash head, RunCell* cell);
  // REQUIRES: Find(head) != nullptr.
  void Replace(BlockHash head, RunCell* cell);
  void Erase(BlockHash head);

  size_t size() const { return size_; }
  size_t capacity() const;  // slots
  size_t bytes() const;
  uint64_t growths() const { return growths_; }

 private:
  struct Slot {
    std::atomic<BlockHash> head;
    std::atomic<RunCell*> cell;
  };
  struct alignas(16) Table {  // so that no slot lies across two cache lines
    std::atomic<Table*> previous;
    size_t slot_count;  // a power of two
    int shift;
    size_t moved;  // slots of `previous` that have been moved here
    size_t used;   // slots with a hash, removed entries among them

    Slot* slots() { return reinterpret_cast<Slot*>(this + 1); }
    // Hashes are uniform already; the multiplication is for callers with worse ones.
    size_t Home(BlockHash head) const { return (head * 0x9e3779b97f4a7c15u) >> shift; }
    static size_t Bytes(size_t slot_count) { return sizeof(Table) + slot_count * sizeof(Slot); }
  };

  static constexpr size_t kFirstSlots = 256;
  static constexpr size_t kMovedPerPut = 16;

  // The slot of `head`, or the empty one where it would go.
  static Slot& Probe(Table& table, BlockHash head) {
    for (size_t i = table.Home(head);; i = (i + 1) & (table.slot_count - 1)) {
      Slot& slot = table.slots()[i];
      const BlockHash known = slot.head.load(std::memory_order_acquire);
      if (known == head || known == kNoBlock) return slot;
    }
  }
  // Sets the cell of `head` wherever it has one.
  void SetLive(BlockHash head, RunCell* cell);
  static void PutInto(Table& table, BlockHash head, RunCell* cell);
  void MoveSome(size_t slots);
  void Grow();
  Table* NewTable(size_t slot_count);

  MemoryPool* const pool_;
  EpochReclaimer* const reclaimer_;
  std::atomic<Table*> current_;
  std::atomic<RunCell*> of_zero_{nullptr};  // hash 0 marks slots that were never used, so it lives here
  size_t size_ = 0;
  uint64_t growths_ = 0;
};

}  // namespace vllm_router
