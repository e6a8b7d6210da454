// Epochs: how a writer reclaims memory from readers that never lock. Unlinked memory is retired first;
// it is freed when every reader that may still see it has left.
//
//   global epoch    7          8                      9
//   reader A        |--- pinned at 7 ------------|
//   reader B                      |- pinned at 8 -|
//   writer          unlink X, retire X      Collect(): A is pinned at 7, X stays      Collect(): X is freed
//
// A pin is one store and one fence in the thread's own cache line. A slot is made when a thread first
// pins and is reused after the thread ended, so there may be any number of threads. A thread that sleeps
// while pinned keeps memory from being freed; it delays no other thread. All indexes of a process share
// the epochs.
//
//   const ReadGuard guard;                  // reader: pointers read from here on stay valid
//   reclaimer.Retire(old_cell, bytes);      // writer, after the last link to old_cell is gone
//
// Cost: ReadGuard 5 to 10 ns; Retire a few ns, and every 64th reads each thread's slot. ReadGuard: any
// thread, may be nested. EpochReclaimer: one writer at a time. Fraser, "Practical lock-freedom" (2004),
// chapter 5.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>

namespace vllm_router {

class ReadGuard {
 public:
  ReadGuard();
  ~ReadGuard();
  ReadGuard(const ReadGuard&) = delete;
  ReadGuard& operator=(const ReadGuard&) = delete;
};

class EpochReclaimer {
 public:
  using Free = void (*)(void* context, void* memory, size_t bytes);

  EpochReclaimer(Free free, void* context) : free_(free), context_(context) {}
  // REQUIRES: no reader is left. Frees everything.
  ~EpochReclaimer();
  EpochReclaimer(const EpochReclaimer&) = delete;
  EpochReclaimer& operator=(const EpochReclaimer&) = delete;

  // REQUIRES: no reader that pins from now on can reach `memory`.
  void Retire(void* memory, size_t bytes);

  // Frees everything that no reader can see any more.
  void Collect();

  // A moment, and whether every reader that was pinned then has left since.
  static uint64_t Now();
  static bool AllLeftSince(uint64_t moment);

  size_t backlog() const { return retired_.size(); }
  size_t backlog_bytes() const { return backlog_bytes_; }

 private:
  struct Retired {
    void* memory;
    size_t bytes;
    uint64_t epoch;
  };

  void FreeFront();

  static constexpr size_t kRetiredPerCollect = 64;

  const Free free_;
  void* const context_;
  std::deque<Retired> retired_;  // oldest first; the last `unmarked_` have no epoch yet
  size_t unmarked_ = 0;
  size_t backlog_bytes_ = 0;
};

}  // namespace vllm_router
