// Turn: what a hold-out keeps of one request, and TurnBuffer: those of one thread until they are taken.
//
//   I/O thread       buffer.Add(turn)      at the end of a request
//   control thread   buffer.Take()         all of them, in the order of their ends
//
// The lock is held for a copy of a turn, or for a swap. Turns for which there is no room are dropped and counted.
// Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "base/mutex.h"

namespace vllm_router {

struct Turn {
  uint64_t conversation = 0;  // its hash (routing/conversation.h)
  int64_t begin_ns = 0;       // of a steady clock: the request's head, and its end
  int64_t end_ns = 0;
  uint64_t body_bytes = 0;
  // Of the engine; missing: it did not say.
  std::optional<uint32_t> prompt_tokens = {};
  std::optional<uint32_t> cached_tokens = {};
  std::optional<float> first_token_s = {};  // of an event stream: seconds since the request
  bool is_held_out = false;
  bool has_failed = false;  // by a worker, or by the router
};

class TurnBuffer {
 public:
  static constexpr size_t kMost = 65'536;

  void Add(const Turn& turn) {
    const MutexLock lock(mutex_);
    if (turns_.size() < kMost) {
      turns_.push_back(turn);
    } else {
      ++dropped_;
    }
  }

  std::vector<Turn> Take() {
    const MutexLock lock(mutex_);
    return std::exchange(turns_, {});
  }
  uint64_t dropped() const {
    const MutexLock lock(mutex_);
    return dropped_;
  }

 private:
  mutable Mutex mutex_;  // leaf
  std::vector<Turn> turns_ ABSL_GUARDED_BY(mutex_);
  uint64_t dropped_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace vllm_router
