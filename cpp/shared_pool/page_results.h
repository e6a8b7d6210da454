// PageResults: what a shared pool's master told of pages a moment ago, so that prompts with a prefix in common
// cost few queries, or none.
//
//   kFirst, kWhole   true for a second: pages are written and evicted all the time
//   kAbsent          for 0.2 s: a page that was just computed is written soon
//
// At most kMaxPageResults, the least recently used first out; about 120 bytes each. O(1). One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>

#include <absl/container/flat_hash_map.h>

#include "hashing/sha256.h"

namespace vllm_router {

// What is known of a page in a pool.
enum class PageState : uint8_t {
  kUnknown,
  kAbsent,
  kFirst,  // its first object is there, so the others probably are
  kWhole,  // all that a hit needs which ends here
};

class PageResults {
 public:
  static constexpr int64_t kPresentNanos = 1'000'000'000;
  static constexpr int64_t kAbsentNanos = 200'000'000;

  explicit PageResults(size_t limit) : limit_(limit) {}

  // kUnknown if it is not known any more. Counts as a use.
  PageState Find(const Digest256& page, int64_t now_ns);
  // Replaces what was known. `state`: not kUnknown.
  void Store(const Digest256& page, PageState state, int64_t now_ns);
  void Clear();
  size_t size() const { return by_page_.size(); }

 private:
  struct Entry {
    Digest256 page;
    PageState state;
    int64_t until_ns;
  };

  const size_t limit_;
  std::list<Entry> entries_;  // the most recently used first
  absl::flat_hash_map<Digest256, std::list<Entry>::iterator> by_page_;
};

}  // namespace vllm_router
