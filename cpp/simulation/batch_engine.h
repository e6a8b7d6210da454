// BatchEngine: a model of an LLM engine, step by step, as far as a router can see it from outside.
// After vLLM: first come first served, continuous batching, prompts computed in chunks, a prefix cache
// of blocks. No clock, no sockets, no randomness: times are passed in, and the same calls give the same
// results, bit for bit.
//
//   waiting  r7 r8 r9          a step     | r1 r2 r3: one token each | r5: 3000 tokens | r6: 5189 tokens |
//   prefill  r5 r6             has room for step_tokens: first decodes, then prompts begun, then those waiting
//   decode   r1 r2 r3          its length in seconds is a sum: engine_coefficients.h
//
// A request is admitted when blocks for its whole prompt and response are free, so no request is ever
// preempted. At admission the cached part of the prompt is known, and the rest is computed. The first
// token comes at the end of the step that computes the last of the prompt, each further one at the end
// of a step. Blocks can be hit from the end of the step that computed them, a response's from its end.
//
// While no prompt is computed, steps differ only in the growing contexts. Such a stretch is one sum up
// to the next finish; when a request arrives it ends with the current step. All times are whole
// picoseconds, so that the sum is exactly the time of the steps.
//
// An engine of a prefill stage keeps the blocks of a prompt for another engine (`is_held`); one of a decode stage gets
// them from there (`is_fetched`). How long a transfer takes is the caller's matter:
//
//   prefill   Submit ─▶ kFinished · · · · · · · · · · · · ─▶ ReleaseHeld     its blocks stay held; it does not run
//   decode                 Submit ─▶ kFetch · · transfer · · ─▶ Fetched      its blocks are reserved; it does not run
//
// Such a request then runs like one whose prompt is cached but for its last token, as in vLLM with NIXL.
//
// Cost: some 30 ns per block of a request and 0.1 us per step or stretch. One thread.
//
//   BatchEngine engine({.cache_blocks = 4096});
//   engine.Submit({.prompt_tokens = 100, .output_tokens = 16, .blocks = names, .prompt_blocks = 6}, now);
//   engine.AdvanceTo(engine.NextEvent(), &events);
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "simulation/block_pool.h"
#include "simulation/engine_coefficients.h"

namespace vllm_router {

using Picos = int64_t;
inline constexpr Picos kNever = std::numeric_limits<Picos>::max();
inline constexpr Picos kPicosPerNano = 1'000;
inline constexpr Picos kPicosPerSecond = 1'000'000'000'000;

struct BatchEngineOptions {
  EngineCoefficients coefficients;
  double speed = 1;              // every coefficient is divided by it
  uint32_t step_tokens = 8192;   // tokens that one step computes: vLLM's max_num_batched_tokens
  uint32_t max_running = 256;    // requests: vLLM's max_num_seqs
  uint64_t cache_blocks = 4096;  // KV memory, held and cached together; 0: no caching
  uint32_t block_tokens = 16;
  // At least so many tokens of a prompt are computed, cached or not, and always the last page of 16
  // (vLLM).
  uint32_t min_computed_tokens = 16;
  // A step computes either prompts or the next tokens of responses, prompts first: an engine without chunked
  // prefill, whose responses pause while prompts wait.
  bool prompts_first = false;
  bool skip_decode_steps = true;  // false: step by step, for tests
};

class BatchEngine {
 public:
  using RequestId = uint32_t;  // reused after the end of the request

  struct Request {
    uint32_t prompt_tokens = 0;
    uint32_t output_tokens = 0;  // 0 or 1: it ends with its prompt
    // Names of the prompt's blocks (the last may be partly filled), then of those of the response that
    // have names. The blocks up to the last token are anonymous. Must stay valid until the request has
    // ended.
    std::span<const uint64_t> blocks;
    size_t prompt_blocks = 0;
    uint64_t tag = 0;  // returned with every event
    // After its end the blocks stay held until ReleaseHeld(). REQUIRES: output_tokens at most 1.
    bool is_held = false;
    // What is not cached of the prompt comes from another engine, from kFetch to Fetched().
    bool is_fetched = false;
  };
  struct Event {
    // The first token before the last, if both in one step. kFetch: it was admitted, so its transfer may begin.
    enum class Kind : uint8_t { kFirstToken, kFinished, kFetch };
    Kind kind;
    RequestId id;
    uint64_t tag;
    uint32_t hit_tokens;
    Picos time;
  };

  // REQUIRES: block_tokens, step_tokens, max_running and speed above 0, CheckEngineCoefficients.
  explicit BatchEngine(const BatchEngineOptions& options);

  const BatchEngineOptions& options() const { return options_; }

  // From the next step on every coefficient is divided by it. REQUIRES: above 0, and `now` as below.
  void SetSpeed(double speed, Picos now);

  // REQUIRES of all that take a time: it never decreases, and the engine was advanced to it before.
  RequestId Submit(const Request& request, Picos now);
  // Cancels the request: a waiting one leaves at once, a running one at the end of the step, without an
  // event; until then it does not count in load(). REQUIRES: submitted, not finished, not cancelled, and not
  // between kFetch and its first step.
  void Cancel(RequestId id, Picos now);

  // The blocks of a request have come, after its kFetch; it runs as soon as a step has room for it.
  void Fetched(RequestId id, Picos now);
  // Another engine has the blocks of a request with is_held, which has finished.
  void ReleaseHeld(RequestId id, Picos now);

  // Ends all steps that are over by `now` and appends their events, in order of time.
  void AdvanceTo(Picos now, std::vector<Event>* events);
  // The end of the present step or stretch, or the present while a kFetch is not told yet; kNever while idle. Only
  // Submit, Cancel, Fetched and ReleaseHeld bring it nearer.
  Picos NextEvent() const {
    return !admitted_.empty() ? admitted_.front().time : active_ ? step_end_ : kNever;
  }

  // For a request that has not ended: known from admission on.
  std::optional<uint32_t> HitTokens(RequestId id) const;
  // Output tokens that it has at `now`.
  uint32_t TokensAt(RequestId id, Picos now) const;
  // The time at which it may have one more, or NextEvent() if that is not known yet.
  Picos NextTokenTime(RequestId id, Picos now) const;

  struct Load {
    size_t running = 0;
    size_t waiting = 0;
  };
  // One that waits for its blocks is waiting, as vLLM counts.
  Load load() const { return {running_ - leaving_, waiting_.size() + fetching_}; }

  void WipeCache();
  const BlockPool& pool() const { return pool_; }
  void LogChanges(std::vector<BlockPool::Change>* log) { pool_.LogChanges(log); }

  // What happens to blocks that can be hit, in the order in which an engine publishes it: of each step its
  // removals, then its stores, then its end. Changes between steps belong to the next one.
  struct CacheChange {
    enum class Kind : uint8_t { kRemoved, kStored, kCleared, kStepEnd };
    Kind kind;
    uint64_t name = 0;  // removed
    // Stored: a block of the request with this tag, by its index.
    uint64_t tag = 0;
    size_t block = 0;
  };
  // Appends to `log` from now on, which takes the place of LogChanges().
  void LogSteps(std::vector<CacheChange>* log);

  uint64_t steps() const { return steps_; }
  Picos busy() const { return busy_; }                           // time of the steps that are over
  uint64_t computed_tokens() const { return computed_tokens_; }  // of prompts

 private:
  __extension__ using Wide = __int128;

  struct Running {
    Request request;
    uint64_t number = 0;  // of the submission
    uint32_t hit = 0;
    uint32_t done = 0;        // prompt tokens that are cached or computed
    uint32_t computed = 0;    // blocks that were reported to the pool
    uint64_t first_step = 0;  // the step that brought the first token
    enum class State : uint8_t {
      kFree,
      kWaiting,
      kFetching,
      kFetched,
      kPrefill,
      kDecode,
      kHeld
    } state = State::kFree;
    bool cancelled = false;
    BlockPool::Reservation reserved;
  };
  struct Chunk {
    RequestId id;
    uint32_t tokens;
  };
  struct Finish {
    uint64_t step;
    uint64_t number;
    RequestId id;
    bool operator<(const Finish& other) const {  // the earliest is the heap's first
      return step != other.step ? step > other.step : number > other.number;
    }
  };

  void ReadCoefficients(double speed);
  void BeginStep(Picos now);
  void EndStep(std::vector<Event>* events);
  bool Admit(RequestId id);
  void Run(RequestId id);
  void Resume(Picos now);
  void Tell(std::vector<Event>* events);
  void TakeChunk(RequestId id, int64_t* left);
  void EndChunk(const Chunk& chunk, std::vector<Event>* events);
  void ReleaseBlocks(Running& running);
  void SetComputed(const Running& running, size_t block);
  void LogRemovals();
  void RemoveCancelled();
  void Free(RequestId id);
  // Of the present stretch: the end of its first `steps` steps, and the number of steps over by `now`.
  Picos EndOf(uint64_t steps) const;
  uint64_t StepsOverBy(Picos now) const;
  // The stretch ends with the step under way.
  void BreakOff(Picos now);

  const BatchEngineOptions options_;
  // The coefficients in picoseconds, divided by the speed.
  Picos step_ps_ = 0;
  Picos prefill_ps_ = 0;
  Picos attention_ps_ = 0;
  Picos decode_ps_ = 0;
  Picos context_ps_ = 0;
  BlockPool pool_;
  std::vector<CacheChange>* steps_log_ = nullptr;
  std::vector<BlockPool::Change> changes_;  // since the last entry of steps_log_

  std::vector<Running> requests_;
  std::vector<RequestId> free_;
  uint64_t submitted_ = 0;
  std::deque<RequestId> waiting_;
  std::deque<RequestId> fetched_;  // that do not run yet
  std::vector<Event> admitted_;    // kFetch, not told yet
  std::vector<RequestId> prefill_;
  std::vector<Finish> decode_;  // a heap
  size_t running_ = 0;
  size_t leaving_ = 0;    // of them, cancelled
  size_t fetching_ = 0;   // admitted, and not running yet
  bool blocked_ = false;  // the first in the queue did not fit, and no blocks were freed since

  bool active_ = false;
  bool stretch_ = false;
  bool prompts_only_ = false;  // nobody decodes in this step
  Picos step_begin_ = 0;
  Picos step_end_ = 0;
  uint64_t stretch_steps_ = 0;
  Picos first_step_ps_ = 0;  // of a stretch; every further one is longer by growth_ps_
  Picos growth_ps_ = 0;
  std::vector<Chunk> chunks_;

  uint64_t step_ = 0;     // that are over and in which requests decode, where others do not
  int64_t contexts_ = 0;  // of the decoding requests, in tokens
  uint64_t steps_ = 0;
  Picos busy_ = 0;
  uint64_t computed_tokens_ = 0;
};

}  // namespace vllm_router
