// LiveEngine: a BatchEngine that keeps pace with a clock, for the threads of a simulated worker. The
// replay knows all arrivals and jumps from event to event. Here requests arrive in real time, and a
// waiter for a token is told when to poll again.
//
//   clock     --------------------- now ------->
//   engine    |== step ==|== step ==|=            the first call ends the steps that are over by now
//                  ^ Submit: from the next step on
//                                   ^ ProgressOf: tokens so far, and not before when there is one more
//
// No thread has to drive it: a step begins where the last one ended, whenever a call notices that.
//
// A job is one HTTP request: a part for each of its prompts, which are separate requests to the engine.
// A job that is cancelled frees its blocks at the end of the step under way, as in the engine; the names
// of its blocks are kept until then.
//
// Thread-safe; one mutex, a leaf. Cost: that of the engine's steps, and 0.2 us per call. A clock that
// runs for 106 days reaches the end of the range of picoseconds.
//
//   LiveEngine engine({.cache_blocks = 4096}, clock);
//   const LiveEngine::JobId job = engine.Submit({{.prompt_tokens = 100, .output_tokens = 16, .blocks = names}});
//   LiveEngine::Progress progress = engine.ProgressOf(job);   // wait until progress.next_token, poll again …
//   engine.Leave(job);                                        // done, or cancelled
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include <absl/container/flat_hash_map.h>

#include "base/clock.h"
#include "base/mutex.h"
#include "simulation/batch_engine.h"

namespace vllm_router {

class LiveEngine {
 public:
  using JobId = uint64_t;  // never reused

  // One prompt and its response.
  struct Part {
    uint32_t prompt_tokens = 0;
    uint32_t output_tokens = 0;
    std::vector<uint64_t> blocks;  // BlockChain() of the prompt, continued over the response
    size_t prompt_blocks = 0;
    std::vector<uint32_t> tokens;  // of all blocks; only for KeepCacheSteps()
  };

  // A KV event.
  struct CacheEvent {
    enum class Kind : uint8_t { kStored, kRemoved, kCleared };
    Kind kind;
    std::vector<uint64_t> blocks;  // stored: one behind the other; removed: one
    std::optional<uint64_t> parent;
    std::vector<uint32_t> tokens;  // of the blocks stored
  };
  using CacheStep = std::vector<CacheEvent>;  // what one step changed; never empty

  // Times are nanoseconds of the clock.
  struct Progress {
    bool ended = false;      // all responses
    size_t tokens = 0;       // that every response has
    size_t hit_tokens = 0;   // of all prompts; known once there are tokens, or it has ended
    int64_t next_token = 0;  // no earlier time gives every response one more
    // No part starts or ends before this. It comes nearer only when another job leaves.
    int64_t next_event = 0;
  };

  // REQUIRES: as BatchEngine's; the clock outlives it.
  LiveEngine(const BatchEngineOptions& options, const Clock& clock);

  const BatchEngineOptions& options() const ABSL_NO_THREAD_SAFETY_ANALYSIS {  // they never change
    return engine_.options();
  }

  JobId Submit(std::vector<Part> parts);
  // REQUIRES: submitted and not left.
  Progress ProgressOf(JobId id);
  // The job has ended, or is cancelled. True: the next event came nearer, so waiters for it should poll
  // again. REQUIRES: submitted and not left.
  bool Leave(JobId id);

  // Forgets the blocks that no request holds, as /reset_prefix_cache does.
  void WipeCache();

  // From now on steps are kept for TakeCacheSteps(), which must be called to bound them. REQUIRES: no part
  // was submitted; those to come have tokens.
  void KeepCacheSteps();
  // Overwrites `steps` with what the steps that are over by now changed. Returns when the next one may be
  // over, in nanoseconds of the clock; a call of another function may bring it nearer.
  int64_t TakeCacheSteps(std::vector<CacheStep>* steps);

  // As WipeCache(), but what the cache has forgotten, and steps not taken yet, are not kept.
  void ForgetCache();

  struct State {
    BatchEngine::Load load;        // in prompts
    uint64_t held_blocks = 0;      // by requests
    uint64_t resident_blocks = 0;  // that can be hit
    uint64_t evicted_blocks = 0;   // ever
  };
  State ReadState();

 private:
  struct Running {
    Part part;
    BatchEngine::RequestId id = 0;
    bool ended = false;
    uint32_t hit = 0;  // once ended
  };
  using Job = std::vector<Running>;  // never grows: the engine's tags are addresses of its elements
  struct Leaving {
    Picos until;
    Job job;
  };

  Picos Advance() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);  // to now
  void KeepChanges() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  int64_t NanosOf(Picos time) const;

  const Clock& clock_;
  const int64_t origin_;  // of the engine's time, on the clock

  Mutex mutex_;
  BatchEngine engine_ ABSL_GUARDED_BY(mutex_);
  JobId last_job_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::flat_hash_map<JobId, Job> jobs_ ABSL_GUARDED_BY(mutex_);
  // The engine may still read their names; in order of time.
  std::deque<Leaving> leaving_ ABSL_GUARDED_BY(mutex_);
  std::vector<BatchEngine::Event> events_ ABSL_GUARDED_BY(mutex_);
  std::vector<BatchEngine::CacheChange> changes_ ABSL_GUARDED_BY(mutex_);
  CacheStep step_ ABSL_GUARDED_BY(mutex_);  // that is not over
  std::vector<CacheStep> cache_steps_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace vllm_router
