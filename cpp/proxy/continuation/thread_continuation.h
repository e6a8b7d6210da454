// ThreadContinuation: what a thread that serves clients keeps for streams that go on. Used by that thread; any other may
// read the counters. ContinueMemory: the memory that such streams of all threads hold; any thread.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "proxy/continuation/stream_cut.h"
#include "proxy/telemetry/buckets.h"
#include "proxy/telemetry/counters.h"

namespace vllm_router {

class ContinueMemory {
 public:
  explicit ContinueMemory(uint64_t limit_bytes) : limit_bytes_(limit_bytes) {}

  // For a stream. False: there is no room below the limit, and nothing was taken.
  bool Take(uint64_t bytes) {
    if (!Grow(bytes)) return false;
    streams_.fetch_add(1, std::memory_order_relaxed);
    return true;
  }
  void Return(uint64_t bytes) {
    Shrink(bytes);
    streams_.fetch_sub(1, std::memory_order_relaxed);
  }
  // The same for more bytes of a stream.
  bool Grow(uint64_t bytes) {
    uint64_t held = bytes_.load(std::memory_order_relaxed);
    do {
      if (bytes > limit_bytes_ - held) return false;
    } while (!bytes_.compare_exchange_weak(held, held + bytes, std::memory_order_relaxed));
    return true;
  }
  void Shrink(uint64_t bytes) { bytes_.fetch_sub(bytes, std::memory_order_relaxed); }
  uint64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }
  uint64_t streams() const { return streams_.load(std::memory_order_relaxed); }

 private:
  const uint64_t limit_bytes_;
  std::atomic<uint64_t> bytes_{0};    // never more than the limit
  std::atomic<uint64_t> streams_{0};  // that hold some
};

// Models whose engines reject return_token_ids, for a while. One thread.
class RefusedModels {
 public:
  bool Has(const std::string& model, int64_t now_ns) const {
    const auto found = until_ns_.find(model);
    return found != until_ns_.end() && now_ns < found->second;
  }
  void Add(const std::string& model, int64_t until_ns) {
    if (until_ns_.size() >= kMost) until_ns_.clear();
    until_ns_[model] = until_ns;
  }

 private:
  static constexpr size_t kMost = 64;

  std::map<std::string, int64_t> until_ns_;
};

struct ThreadContinuation {
  explicit ThreadContinuation(ContinueMemory& shared) : memory(shared) {}

  ContinueMemory& memory;  // the server's
  // Streams that went on, by what ended the worker's, and by the last method.
  std::array<std::array<Counter, kContinueMethods>, kStreamCuts> continued{};
  Counter recomputed;  // tokens that were in the prompt of the rest of a stream, beside its own prompt
  RefusedModels refused;
  LabeledCounters cut;               // streams that did not, by why
  Counter without_memory;            // streams that may not go on for want of memory
  std::atomic<uint32_t> waiting{0};  // streams that wait for a worker with room
  LabeledCounters drain_handovers;   // hand-overs that have ended, by how
  LabeledCounters stall_handovers;
  DurationHistogram gap;  // the longest time without anything new, of streams that went on
};

}  // namespace vllm_router
