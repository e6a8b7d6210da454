// SeqlockRing: the last values that one thread has added, for readers on any thread. The writer never waits, and a reader
// never sees a part of one value and a part of another:
//
//   number   4      5      6      3           of the value in the slot: 7 were added, 4 are kept
//   slot     0      1      2      3
//   sequence 10     12     13 !   8           2 n + 2: value n is whole; 2 n + 1: it is being written
//
//   SeqlockRing<Receipt> ring(8192);
//   ring.Add(receipt);                          the writer
//   if (ring.Read(number, &receipt)) …          a reader: numbers are added() - 1, added() - 2, …
//
// A reader takes the sequence, the words, and the sequence again: if it is another one, the slot was written meanwhile, and
// its former value is gone. Words are stored with release and loaded with acquire, which orders them against the sequence
// without a fence (on x86 these are plain moves) and which TSan understands. After Lameter's seqlocks; the orders are
// discussed in Boehm, "Can seqlocks get along with programming language memory models?" (2012).
//
// Cost: one store per 8 bytes, one more cache line at most. Memory: slots come in chunks of kChunk, as they are needed, and
// stay.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>

namespace vllm_router {

template <typename T>
class SeqlockRing {
 public:
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) % sizeof(uint64_t) == 0);

  // REQUIRES: capacity > 0.
  explicit SeqlockRing(size_t capacity)
      : capacity_(capacity),
        chunks_(std::make_unique<std::atomic<Slot*>[]>((capacity + kChunk - 1) / kChunk)) {}
  ~SeqlockRing() {
    for (size_t chunk = 0; chunk * kChunk < capacity_; ++chunk)
      delete[] chunks_[chunk].load(std::memory_order_relaxed);
  }
  SeqlockRing(const SeqlockRing&) = delete;
  SeqlockRing& operator=(const SeqlockRing&) = delete;

  // By one thread.
  void Add(const T& value) {
    const uint64_t number = added_.load(std::memory_order_relaxed);
    Slot& slot = SlotAt(next_);
    next_ = next_ + 1 == capacity_ ? 0 : next_ + 1;
    const auto words = std::bit_cast<Words>(value);
    slot.sequence.store(2 * number + 1, std::memory_order_relaxed);
    for (size_t i = 0; i < words.size(); ++i) slot.words[i].store(words[i], std::memory_order_release);
    slot.sequence.store(2 * number + 2, std::memory_order_release);
    added_.store(number + 1, std::memory_order_release);
  }

  size_t capacity() const { return capacity_; }
  uint64_t added() const { return added_.load(std::memory_order_acquire); }

  // False: it has been overwritten, or was not added yet.
  bool Read(uint64_t number, T* value) const {
    const size_t index = number % capacity_;
    const Slot* const chunk = chunks_[index / kChunk].load(std::memory_order_acquire);
    if (chunk == nullptr) return false;
    const Slot& slot = chunk[index % kChunk];
    const uint64_t whole = 2 * number + 2;
    if (slot.sequence.load(std::memory_order_acquire) != whole) return false;
    Words words;
    for (size_t i = 0; i < words.size(); ++i) words[i] = slot.words[i].load(std::memory_order_acquire);
    if (slot.sequence.load(std::memory_order_relaxed) != whole) return false;
    *value = std::bit_cast<T>(words);
    return true;
  }

 private:
  using Words = std::array<uint64_t, sizeof(T) / sizeof(uint64_t)>;
  struct Slot {
    std::atomic<uint64_t> sequence{0};
    std::array<std::atomic<uint64_t>, sizeof(T) / sizeof(uint64_t)> words{};
  };

  Slot& SlotAt(size_t index) {
    std::atomic<Slot*>& chunk = chunks_[index / kChunk];
    Slot* slots = chunk.load(std::memory_order_relaxed);
    if (slots == nullptr) {
      slots = new Slot[kChunk];
      chunk.store(slots, std::memory_order_release);
    }
    return slots[index % kChunk];
  }

  static constexpr size_t kChunk = 64;

  const size_t capacity_;
  const std::unique_ptr<std::atomic<Slot*>[]> chunks_;  // null: not needed yet
  size_t next_ = 0;                                     // the writer's
  std::atomic<uint64_t> added_{0};
};

}  // namespace vllm_router
