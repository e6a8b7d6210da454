// Generations: counters that are part of the key of every cached response (request_digest.h), so that responses from
// before an invalidation are found no more. There is one for all models and one for each model that was invalidated;
// a model's generation is their sum. They only grow, so a generation of a model never comes back.
//
//   BumpAll()      every model's generation is another          Bump("a")      the one of "a" is
//
// A step is a random number. So two routers that invalidate at the same time do not come to the same generation, in which
// each would take the other's responses of before for new ones.
//
// Routers that share a Redis keep the counters in a hash there, as the maximum that any of them has seen:
//
//   count = the largest seen in Redis + pending       pending: steps of this router that Redis does not have yet
//
//   Pending()  ──▶ HINCRBY field by ──▶ Written(field, by, the new count)
//   Merge(HGETALL) ──▶ Repairs: counters that Redis has lost, after a restart or a failover
//
// A step may reach Redis twice, when its reply was lost: that invalidates once too often, and never too seldom.
//
// At most kMaxModels models have a counter of their own, and names have at most kMaxNameBytes; for others Bump() is
// BumpAll(). Cost: Of() is two loads until a model is bumped, then a look-up of 20 ns; it takes no lock. Memory: 130 KB,
// and 100 bytes for each model. Thread-safe: a leaf lock.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/mutex.h"
#include "base/random.h"

namespace vllm_router {

class Generations {
 public:
  static constexpr size_t kMaxModels = 4'096;
  static constexpr size_t kMaxTracked = 8'191;  // with those that other routers bumped
  static constexpr size_t kMaxNameBytes = 256;
  static constexpr std::string_view kAll = "*";             // the field of the counter for all models
  static constexpr uint64_t kMaxCount = uint64_t{1} << 62;  // of a field; a larger number is none
  static constexpr uint64_t kLargestStep = 1 << 24;         // so it takes 2^38 steps at least

  explicit Generations(uint64_t seed = Random::EntropySeed(), uint64_t largest_step = kLargestStep);
  Generations(const Generations&) = delete;
  Generations& operator=(const Generations&) = delete;

  uint64_t Of(std::string_view model) const;
  // The generation of the model, or of all, afterwards.
  uint64_t Bump(std::string_view model);
  uint64_t BumpAll();

  struct Increment {
    std::string field;
    uint64_t by;
  };
  std::vector<Increment> Pending() const;
  // Redis has these increments, and replied `count`.
  void Written(std::string_view field, uint64_t by, uint64_t count);

  struct Field {
    std::string_view name;
    std::optional<uint64_t> count;  // nullopt: it is no number
  };
  struct Repair {
    // SetIfMissing: HSETNX, so that one of the routers that see the loss repairs it. Add: HINCRBY, so that what others
    // add meanwhile is not undone, and beyond what was lost, since a step of another router may be in what is there.
    // Set: HSET, of what is no number.
    enum class How : uint8_t { kAdd, kSetIfMissing, kSet };
    std::string field;
    How how;
    uint64_t number;
  };
  // All fields that Redis has. Afterwards no count is below Redis's; returns what Redis has to be told.
  std::vector<Repair> Merge(std::span<const Field> fields);

  struct Count {
    std::string field;
    uint64_t count;
  };
  std::vector<Count> Counts() const;  // of those above 0

 private:
  static constexpr size_t kSlots = 16'384;  // a power of two, at most half full

  struct Counter {
    explicit Counter(std::string_view name) : name(name) {}
    const std::string name;
    std::atomic<uint64_t> count{0};
    uint64_t pending = 0;    // guarded by mutex_
    uint64_t merged_at = 0;  // guarded by mutex_: the Merge() that had it last
    // What Redis had, as far as was seen.
    uint64_t shared() const { return count.load(std::memory_order_relaxed) - pending; }
  };

  Counter* Find(std::string_view model) const;
  Counter* FindOrAdd(std::string_view model, size_t most) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // By the name of its field.
  Counter* OfField(std::string_view field) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static void Raise(Counter* counter, uint64_t least);
  uint64_t Step() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return 1 + random_.Below(largest_step_); }
  // The count afterwards.
  uint64_t Advance(Counter* counter) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Counter all_{kAll};
  std::vector<std::atomic<Counter*>> slots_;  // by hash, with linear probing; none is removed
  std::atomic<size_t> tracked_{0};
  mutable Mutex mutex_;
  std::deque<Counter> models_ ABSL_GUARDED_BY(mutex_);  // whose counters do not move
  uint64_t merges_ ABSL_GUARDED_BY(mutex_) = 0;
  Random random_ ABSL_GUARDED_BY(mutex_);
  const uint64_t largest_step_;
};

}  // namespace vllm_router
