// LiveEngine: a BatchEngine that keeps pace with a clock, for the threads of a simulated worker. The replay knows what
// comes and jumps from event to event; here requests come when they come, and whoever waits for a token is told when
// to look again.
//
//   clock     --------------------- now ------->
//   engine    |== step ==|== step ==|=            whoever looks first ends the steps that are over by now
//                  ^ Submit: from the next step on
//                                   ^ ProgressOf: tokens so far, and not before when there is one more
//
// Nobody has to drive it: a step begins where the last one ended, so it makes no difference when that is noticed.
//
// A job is what one HTTP request brings: a part for each of its prompts, which the engine takes for requests of their
// own. A job that leaves in the middle frees its places at the end of the step under way, as in the engine; the names
// of its blocks are kept until then.
//
// Thread-safe; one mutex, a leaf. Cost: that of the engine's steps, and 0.2 us per call. A clock that runs for 106 days
// is at the end of what picoseconds can count.
//
//   LiveEngine engine({.cache_blocks = 4096}, clock);
//   const LiveEngine::JobId job = engine.Submit({{.prompt_tokens = 100, .output_tokens = 16, .blocks = names}});
//   LiveEngine::Progress progress = engine.ProgressOf(job);   // wait until progress.next_token, ask again …
//   engine.Leave(job);                                        // done, or given up
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <vector>

#include <absl/container/flat_hash_map.h>

#include "base/clock.h"
#include "simulation/batch_engine.h"

namespace vllm_router {

class LiveEngine {
 public:
  using JobId = uint64_t;  // never used again

  // One prompt and its answer.
  struct Part {
    uint32_t prompt_tokens = 0;
    uint32_t output_tokens = 0;
    std::vector<uint64_t> blocks;  // BlockChain() of the prompt, continued over the answer
    size_t prompt_blocks = 0;
  };

  // Times are nanoseconds of the clock.
  struct Progress {
    bool ended = false;      // all answers
    size_t tokens = 0;       // that every answer has
    size_t hit_tokens = 0;   // of all prompts; known once there are tokens, or it has ended
    int64_t next_token = 0;  // not before this has every answer one more
    // Nor does anything begin or end before this. It comes nearer only when another job leaves.
    int64_t next_event = 0;
  };

  // REQUIRES: as BatchEngine's; the clock outlives it.
  LiveEngine(const BatchEngineOptions& options, const Clock& clock);

  const BatchEngineOptions& options() const { return engine_.options(); }

  JobId Submit(std::vector<Part> parts);
  // REQUIRES: submitted and not left.
  Progress ProgressOf(JobId id);
  // Ended, or given up. True: the next event came nearer, so whoever waits for it should look again. REQUIRES: submitted
  // and not left.
  bool Leave(JobId id);

  // Forgets what nobody holds, as /reset_prefix_cache does.
  void WipeCache();

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

  // All below: with the mutex held.
  Picos Advance();  // to now
  int64_t NanosOf(Picos time) const;

  const Clock& clock_;
  const int64_t origin_;  // of the engine's time, on the clock

  std::mutex mutex_;  // guards everything below
  BatchEngine engine_;
  JobId last_job_ = 0;
  absl::flat_hash_map<JobId, Job> jobs_;
  std::deque<Leaving> leaving_;  // whose names the engine may still read, in order of time
  std::vector<BatchEngine::Event> events_;
};

}  // namespace vllm_router
