// KvPushReceiver: KV events that are handed over instead of heard: by a test, a converter, or an engine
// behind an address translation. Each rank of a worker that pushes is a source of its own.
//
//   Push(w1, number 0, batch)    kAccepted, next 1
//   Push(w1, number 1, batch)    kAccepted, next 2
//   Push(w1, number 5, batch)    kGap, next 2         nothing is applied: push again from 2 on, or with `reset`
//
// So nothing is ever missing in between: a source that began with 0, without a number, or with `reset` is
// exact, any other partial; one more than half of whose events cannot be used is a mismatch. A worker should
// have one way to be heard: with a subscription besides, the one that spoke last sets its trust.
//
// Thread-safe; pushes are applied one after the other, while a mutex is held.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "events/event_applier.h"
#include "events/kv_event.h"
#include "events/kv_source.h"
#include "index/reported_blocks.h"

namespace vllm_router {

class KvPushReceiver {
 public:
  static constexpr uint64_t kMaxBlocks = 1'000'000;  // of a rank; later ones are unusable

  struct Batch {
    WorkerId worker{};
    uint32_t rank = 0;                 // below kMaxKvRanks
    std::optional<uint64_t> number;    // missing: the next one
    bool reset = false;                // what was known of the rank's cache is dropped before
    std::string_view model;            // the base model's name as requests have it; empty: they have none
    std::span<const uint8_t> payload;  // msgpack, as an engine publishes it
  };
  // kOtherModel: the rank's blocks are of another model, which only a reset changes. kTooManyModels: those that
  // were pushed are ReportedBlocks::kMaxPushedModels.
  enum class Verdict : uint8_t { kAccepted, kGap, kMalformed, kWorkerLeft, kOtherModel, kTooManyModels };
  struct Result {
    Verdict verdict;
    uint64_t next;          // number that is expected now
    uint64_t unusable = 0;  // events of this batch that were not applied, most of them because of:
    std::string_view why = {};
    bool cleared = false;  // the cache was emptied
  };

  // One source, as of now.
  struct Status {
    WorkerId worker{};
    uint32_t rank = 0;
    uint64_t next = 0;
    bool complete = true;  // it began at the beginning
    uint64_t events = 0;
    uint64_t unusable = 0;
    uint32_t block_size = 0;  // tokens, of the engine; 0: not known yet
    std::array<uint64_t, kTierCount> blocks{};
  };

  // `blocks` outlives it.
  explicit KvPushReceiver(ReportedBlocks* blocks) : blocks_(*blocks) {}
  ~KvPushReceiver();

  Result Push(const Batch& batch, int64_t now_ns);
  std::vector<Status> Report() const;

 private:
  struct Source {
    Source(ReportedBlocks* blocks, WorkerId worker, std::string_view model)
        : model(model), applier(blocks, worker, {.model = std::string(model), .max_blocks = kMaxBlocks}) {}

    const std::string model;
    EventApplier applier;
    uint64_t next = 0;
    bool complete = true;
    uint64_t events = 0;    // since the last reset or clear
    uint64_t unusable = 0;  // of them
  };

  void SetTrust(WorkerId worker) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  ReportedBlocks& blocks_;
  mutable Mutex mutex_;  // calls the reported blocks while it is held
  std::map<std::pair<WorkerId, uint32_t>, Source> sources_ ABSL_GUARDED_BY(mutex_);  // by worker and rank
  KvBatch batch_ ABSL_GUARDED_BY(mutex_);                                            // reused
};

}  // namespace vllm_router
