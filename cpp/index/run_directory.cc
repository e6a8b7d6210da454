#include "index/run_directory.h"

#include <algorithm>
#include <bit>

namespace vllm_router {

RunDirectory::RunDirectory(MemoryPool* pool, EpochReclaimer* reclaimer)
    : pool_(pool), reclaimer_(reclaimer), current_(NewTable(kFirstSlots)) {}

RunDirectory::~RunDirectory() {
  Table* const table = current_.load(std::memory_order_relaxed);
  if (Table* const previous = table->previous.load(std::memory_order_relaxed))
    pool_->Free(previous, Table::Bytes(previous->slot_count));
  pool_->Free(table, Table::Bytes(table->slot_count));
}

void RunDirectory::PutInto(Table& table, BlockHash head, RunCell* cell) {
  Slot& slot = Probe(table, head);
  slot.cell.store(cell, std::memory_order_release);
  if (slot.head.load(std::memory_order_relaxed) == head) return;
  // A reader that sees the hash sees the cell.
  slot.head.store(head, std::memory_order_release);
  ++table.used;
}

void RunDirectory::Put(BlockHash head, RunCell* cell) {
  ++size_;
  if (head == kNoBlock) return of_zero_.store(cell, std::memory_order_release);
  MoveSome(kMovedPerPut);
  Table* table = current_.load(std::memory_order_relaxed);
  if ((table->used + 1) * 5 > table->slot_count * 3) {
    Grow();
    table = current_.load(std::memory_order_relaxed);
  }
  PutInto(*table, head, cell);
}

void RunDirectory::SetLive(BlockHash head, RunCell* cell) {
  if (head == kNoBlock) return of_zero_.store(cell, std::memory_order_release);
  Table* const table = current_.load(std::memory_order_relaxed);
  for (Table* each : {table, table->previous.load(std::memory_order_relaxed)}) {
    if (each == nullptr) continue;
    Slot& slot = Probe(*each, head);
    if (slot.cell.load(std::memory_order_relaxed) != nullptr)
      slot.cell.store(cell, std::memory_order_release);
  }
}

void RunDirectory::Replace(BlockHash head, RunCell* cell) { SetLive(head, cell); }

void RunDirectory::Erase(BlockHash head) {
  SetLive(head, nullptr);
  --size_;
}

void RunDirectory::MoveSome(size_t slots) {
  Table* const table = current_.load(std::memory_order_relaxed);
  Table* const previous = table->previous.load(std::memory_order_relaxed);
  if (previous == nullptr) return;
  const size_t end = std::min(table->moved + slots, previous->slot_count);
  for (; table->moved < end; ++table->moved) {
    Slot& slot = previous->slots()[table->moved];
    RunCell* const cell = slot.cell.load(std::memory_order_relaxed);
    if (cell != nullptr) PutInto(*table, slot.head.load(std::memory_order_relaxed), cell);
  }
  if (end < previous->slot_count) return;
  table->previous.store(nullptr, std::memory_order_release);
  reclaimer_->Retire(previous, Table::Bytes(previous->slot_count));
}

void RunDirectory::Grow() {
  Table* const full = current_.load(std::memory_order_relaxed);
  MoveSome(SIZE_MAX - full->moved);
  // Present entries take at most three tenths of the new table. Moving them takes slot_count /
  // kMovedPerPut puts. With a new table of at least a quarter of the old one, those puts fill another
  // quarter of it, still below three fifths.
  const size_t wanted = std::max({kFirstSlots, (size_ + 1) * 10 / 3, full->slot_count / 4});
  Table* const table = NewTable(std::bit_ceil(wanted));
  table->previous.store(full, std::memory_order_relaxed);
  current_.store(table, std::memory_order_release);
  ++growths_;
}

RunDirectory::Table* RunDirectory::NewTable(size_t slot_count) {
  auto* const table = static_cast<Table*>(pool_->AllocateZeroed(Table::Bytes(slot_count)));
  table->slot_count = slot_count;
  table->shift = 64 - std::bit_width(slot_count - 1);
  return table;
}

size_t RunDirectory::capacity() const { return current_.load(std::memory_order_relaxed)->slot_count; }

size_t RunDirectory::bytes() const {
  Table* const table = current_.load(std::memory_order_relaxed);
  Table* const previous = table->previous.load(std::memory_order_relaxed);
  return Table::Bytes(table->slot_count) + (previous == nullptr ? 0 : Table::Bytes(previous->slot_count));
}

}  // namespace vllm_router
