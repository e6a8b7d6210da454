// PromptMemory: what each worker was sent, in two trees under one limit: prompts that are text in one,
// prompts that are token ids in the other (index/prefix_tree.h), each behind the name of its model.
//
//   Match(prompt)            which workers have how much of it, in bytes or ids
//   Insert(prompt, owner)    that worker has it from now on; the excess is evicted, in either tree
//
// If a worker's cache is known to hold less than it was sent, its least recently used prompts are
// evicted (SetCapacity). One tree grows at the cost of the other: an insert trims the other one until
// both together keep the limit. The entries of workers that left are evicted in slices, by later inserts
// and, at intervals, by a background thread, which starts with the first worker.
//
// Cost: that of the trees; one lock per tree and call. Thread-safe.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>

#include "base/limits.h"
#include "index/prefix_tree.h"
#include "policy/routing_key.h"

namespace vllm_router {

struct PromptMemoryOptions {
  uint64_t max_size = 64 * 1024 * 1024;  // bytes of distinct text, four per token, of all workers together
  EvictionOrder eviction = EvictionOrder::kLru;
  std::chrono::milliseconds interval = std::chrono::minutes(2);
};

class PromptMemory : public std::enable_shared_from_this<PromptMemory> {
 public:
  // A worker, as each tree knows it.
  struct Owner {
    WorkerSlot of_text;
    WorkerSlot of_tokens;
  };

  static constexpr uint32_t kPageTokens = 16;
  static constexpr uint32_t kBytesPerToken = 4;

  // REQUIRES: max_size >= 1; interval > 0.
  static std::shared_ptr<PromptMemory> Create(const PromptMemoryOptions& options);
  ~PromptMemory();
  PromptMemory(const PromptMemory&) = delete;
  PromptMemory& operator=(const PromptMemory&) = delete;

  // Only one thread at a time adds and removes. REQUIRES: fewer than kMaxWorkers are there.
  Owner AddWorker();
  void RemoveWorker(Owner worker);

  // REQUIRES: the prompt is not missing.
  void Match(const Prompt& prompt, PrefixMatches* matches) const;
  // `walked` is the result of Match() for the same prompt. The claim of an open insert belongs to the
  // tree for this kind of prompt.
  uint64_t Insert(
      const Prompt& prompt, Owner worker, const PrefixInsert& insert, const PrefixMatches& walked);

  // The request of a claim has ended; its worker has processed the prompt, or never did.
  void Settle(Prompt::Kind kind, uint64_t claim, bool reached_worker);

  // The worker's cache holds prompts of `bytes` bytes, four per token; of more, the least recently used
  // are taken to be evicted. At first the only limit is that of all workers together.
  void SetCapacity(Owner worker, uint64_t bytes);

  // The worker has nothing any more, as after a restart.
  void Forget(Owner worker);

  // Bytes that each has, four per token. REQUIRES: as many elements in `sizes` as workers.
  void Sizes(std::span<const Owner> workers, std::span<uint64_t> sizes) const;
  uint64_t size() const;
  // Nodes, sizes and so on, summed over both trees.
  PrefixTreeStats stats() const;

 private:
  struct Bell;

  explicit PromptMemory(const PromptMemoryOptions& options);
  void StartTidying();
  void Tidy();
  void KeepCapacity(Owner worker);
  template <typename Other>
  void MakeRoom(uint64_t grown, Other* other);

  const PromptMemoryOptions options_;
  StringTree texts_;
  TokenTree tokens_;
  // A tree that was always empty is not searched.
  std::atomic<bool> has_texts_{false};
  std::atomic<bool> has_tokens_{false};
  std::array<std::atomic<uint64_t>, kMaxWorkers> capacity_{};  // by owner of text; 0: no limit
  bool tidying_ = false;
  const std::shared_ptr<Bell> bell_;
};

}  // namespace vllm_router
