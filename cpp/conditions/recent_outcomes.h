// RecentOutcomes: how the attempts of the last minute ended, by worker and model. One thread adds, others read.
//
//   outcomes.Add(worker, "m", {.status = 200, .head_ns = …}, now);
//   outcomes.AddTo(&sums, now);              sums[worker].models["m"].codes
//
// A minute has slots of ten seconds; the oldest is dropped when the next one begins, so a sum is of 50 to 60 seconds. A
// worker has at most kMaxModels models at a time, others are counted together under "", and so are those that it refuses:
// clients may name any. Workers without an attempt for a minute are forgotten.
//
// Cost: a look-up and one uncontended mutex per attempt; 2.2 KiB per worker and model. The mutexes are leaves; a reader
// holds that of one worker at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <absl/container/flat_hash_map.h>

#include "base/mutex.h"
#include "worker/response_code.h"
#include "worker/worker.h"

namespace vllm_router {

// Times by powers of the square root of two, from 1 ms on.
class TimeCounts {
 public:
  static constexpr size_t kBuckets = 40;  // the last one: 741 s and more

  void Add(int64_t nanos) { ++counts_[BucketOf(nanos)]; }
  void Add(const TimeCounts& others);
  uint64_t total() const;
  // In nanoseconds, the geometric middle of the bucket in which the quantile is; 0: there are none. 0 < share <= 1.
  int64_t Quantile(double share) const;

 private:
  static size_t BucketOf(int64_t nanos);

  std::array<uint32_t, kBuckets> counts_{};
};

struct AttemptOutcome {
  int status = 0;          // 0: no response, or none that is whole
  std::string_view error;  // why; lives forever
  bool is_stream = false;
  int64_t head_ns = 0;  // from the first byte to the worker to the head of its response; 0: there was none
};

struct Outcomes {
  void Add(const AttemptOutcome& attempt);
  void Add(const Outcomes& others);
  uint64_t attempts() const;
  uint64_t of(ResponseCode code) const { return codes[static_cast<size_t>(code)]; }
  // 5xx, and no response.
  uint64_t failed() const { return of(ResponseCode::k5xx) + of(ResponseCode::kNone); }

  std::array<uint32_t, kResponseCodeCount> codes{};
  // Until the head of a good response. Of a stream that is about its first token, else all of it.
  TimeCounts stream_heads, whole_heads;
};

using ModelOutcomes = std::map<std::string, Outcomes, std::less<>>;
Outcomes SumOf(const ModelOutcomes& models);

// A failed attempt: 5xx or no response.
struct LastFailure {
  int64_t at_ns = 0;       // 0: there was none
  int status = 0;          // 0: no response
  std::string_view error;  // why there was none, or none that is whole; lives forever
  std::string model;
};

struct WorkerOutcomes {
  ModelOutcomes models;
  LastFailure last_failure;  // since a minute without attempts
};

using OutcomeSums = std::map<WorkerId, WorkerOutcomes>;

class RecentOutcomes {
 public:
  static constexpr int64_t kSlotNs = 10'000'000'000;
  static constexpr size_t kSlots = 6;
  static constexpr size_t kMaxModels = 8;

  // By one thread.
  void Add(WorkerId worker, std::string_view model, const AttemptOutcome& attempt, int64_t now_ns);
  // By any.
  void AddTo(OutcomeSums* sums, int64_t now_ns) const;

 private:
  struct Slot {
    int64_t number = -1;  // of ten seconds since the clock's start
    Outcomes outcomes;
  };
  struct Model {
    std::string name;
    std::array<Slot, kSlots> slots{};
    int64_t last = 0;  // number of its newest slot
  };
  struct PerWorker {
    Model& ModelOf(std::string_view name, ResponseCode code, int64_t number)
        ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
    Model* Find(std::string_view name) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);

    mutable Mutex mutex;
    std::vector<Model> models ABSL_GUARDED_BY(mutex);
    LastFailure last_failure ABSL_GUARDED_BY(mutex);
    int64_t last = 0;  // number of the newest slot; the adding thread's
  };

  PerWorker& Of(WorkerId worker, int64_t number);

  mutable Mutex mutex_;  // guards the shape of `workers_` against readers
  absl::flat_hash_map<WorkerId, std::shared_ptr<PerWorker>> workers_;
};

}  // namespace vllm_router
