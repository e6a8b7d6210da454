// One thread publishes while others read: a reader sees whole values only, never an older one after a newer one, and
// the last one in the end. Every value is freed exactly once (ASan) and never read while written (TSan).
#include "base/snapshot.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "stress.h"

namespace vllm_router {
namespace {

constexpr int kReaders = 3;
constexpr uint64_t kVersions = 20'000;

// A value that shows it when it is torn: every cell repeats its number.
struct Value {
  explicit Value(uint64_t number) : number(number), cells(32, number) {}
  bool Whole() const {
    for (const uint64_t cell : cells) {
      if (cell != number) return false;
    }
    return true;
  }
  uint64_t number;
  std::vector<uint64_t> cells;
};

void ReadersSeeWholeValuesInOrder() {
  Snapshot<Value> snapshot(std::make_shared<const Value>(0));
  std::atomic<uint64_t> reads{0};
  RunTogether(1 + kReaders, [&](int thread) {
    if (thread == 0) {
      for (uint64_t next = 1; next <= kVersions; ++next)
        snapshot.Publish(std::make_shared<const Value>(next));
      return;
    }
    Snapshot<Value>::Cached cached(&snapshot);
    std::shared_ptr<const Value> held = cached.Get();
    uint64_t last = 0;
    uint64_t count = 0;
    while (last < kVersions) {
      const Value& value = *cached.Get();
      STRESS_CHECK(value.Whole());
      STRESS_CHECK(value.number >= last);
      last = value.number;
      // Every other reader goes past the cache; a value that is held must outlive its replacement.
      if (thread % 2 == 0) STRESS_CHECK(snapshot.Load()->number >= last);
      if (++count % 64 == 0) {
        STRESS_CHECK(held->Whole());
        held = cached.Get();
      }
    }
    reads += count;
  });
  STRESS_CHECK(snapshot.version() == kVersions);
  STRESS_CHECK(snapshot.Load()->number == kVersions);
  STRESS_CHECK(reads.load() >= kReaders);
}

}  // namespace
}  // namespace vllm_router

int main() { vllm_router::ReadersSeeWholeValuesInOrder(); }
