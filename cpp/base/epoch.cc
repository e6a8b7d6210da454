#include "base/epoch.h"

#include <atomic>

namespace vllm_router {
namespace {

constexpr uint64_t kIdle = UINT64_MAX;

// One thread's slot, on a cache line of its own. Slots form a list that only grows; `taken` says whether
// a thread uses the slot.
struct alignas(64) Line {
  std::atomic<uint64_t> pinned{kIdle};
  std::atomic<bool> taken{true};
  Line* next = nullptr;
  uint32_t guards = 0;  // nested guards; written by the owning thread only
};

std::atomic<uint64_t> global_epoch{1};
std::atomic<Line*> lines{nullptr};

// Orders everything before it against everything after it in every thread, stores against loads too.
void FullFence() {
#if defined(__SANITIZE_THREAD__)
  // ThreadSanitizer knows no fences. The acquire and release operations on the slots give it the order.
  static std::atomic<int> meeting{0};
  meeting.fetch_add(1, std::memory_order_seq_cst);
#else
  std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

Line* TakeLine() {
  for (Line* line = lines.load(std::memory_order_acquire); line != nullptr; line = line->next) {
    bool free = false;
    if (line->taken.compare_exchange_strong(free, true, std::memory_order_acquire)) return line;
  }
  Line* const line = new Line;
  line->next = lines.load(std::memory_order_relaxed);
  while (!lines.compare_exchange_weak(line->next, line, std::memory_order_release)) {
  }
  return line;
}

constinit thread_local Line* own_line = nullptr;

// Frees the slot when its thread ends.
struct LineReturner {
  Line* line = nullptr;
  ~LineReturner() {
    if (line == nullptr) return;
    own_line = nullptr;
    line->taken.store(false, std::memory_order_release);
  }
};
thread_local LineReturner line_returner;

// The epoch of the oldest pin; `otherwise` if there is no pin or only later ones.
uint64_t OldestPin(uint64_t otherwise) {
  uint64_t oldest = otherwise;
  for (const Line* line = lines.load(std::memory_order_acquire); line != nullptr; line = line->next) {
    const uint64_t pinned = line->pinned.load(std::memory_order_acquire);
    if (pinned < oldest) oldest = pinned;
  }
  return oldest;
}

}  // namespace

ReadGuard::ReadGuard() {
  if (own_line == nullptr) own_line = line_returner.line = TakeLine();
  if (own_line->guards++ > 0) return;
  own_line->pinned.store(global_epoch.load(std::memory_order_relaxed), std::memory_order_release);
  // Either a writer that reads the slots after its own fence sees this pin, or this reader sees
  // everything that the writer had unlinked before that fence.
  FullFence();
}

ReadGuard::~ReadGuard() {
  if (--own_line->guards == 0) own_line->pinned.store(kIdle, std::memory_order_release);
}

EpochReclaimer::~EpochReclaimer() {
  while (!retired_.empty()) FreeFront();
}

void EpochReclaimer::Retire(void* memory, size_t bytes) {
  retired_.push_back({memory, bytes, 0});
  backlog_bytes_ += bytes;
  if (++unmarked_ == kRetiredPerCollect) Collect();
}

void EpochReclaimer::Collect() {
  // A reader that pins a later epoch than the one read here cannot see what was unlinked before: had its
  // fence come before this one, the epoch read here would be that later one.
  const uint64_t now = Now();
  for (; unmarked_ > 0; --unmarked_) retired_[retired_.size() - unmarked_].epoch = now;
  const uint64_t oldest = OldestPin(global_epoch.fetch_add(1, std::memory_order_seq_cst) + 1);
  while (!retired_.empty() && retired_.front().epoch < oldest) FreeFront();
}

uint64_t EpochReclaimer::Now() {
  FullFence();
  return global_epoch.load(std::memory_order_relaxed);
}

bool EpochReclaimer::AllLeftSince(uint64_t moment) {
  FullFence();
  return moment < OldestPin(global_epoch.fetch_add(1, std::memory_order_seq_cst) + 1);
}

void EpochReclaimer::FreeFront() {
  const Retired& front = retired_.front();
  backlog_bytes_ -= front.bytes;
  free_(context_, front.memory, front.bytes);
  retired_.pop_front();
}

}  // namespace vllm_router
