// Engine: what an LLM engine does with a request, as far as a router can tell from outside: how much of the
// prompt it finds in its prefix cache, when the first token comes, and when each further one. No sockets, no
// clock, no chance: the time is passed in, and the same calls give the same answers.
//
//   time ->        |--- prefill of A ---|                     one prefill lane, first come first served;
//                       |.... wait .....|-- prefill of B --|  only uncached tokens take time on it
//   A              start                 +base  t0   t1   t2   t3      tokens follow at an even pace
//   B                   start                              +base  t0   t1   t2
//
//   time to first token = wait for the lane + prefill_us_per_token * uncached tokens + ttft_ms
//   time per further token = tpot_ms + tpot_us_per_running * others in flight when the request came
//
// As in vLLM, only full blocks are cached, and at least the last token of a prompt is always computed. A
// request's blocks are hit by every later one at once: on one lane the later one is computed later anyway.
// They count as used again when the request leaves, then with those of its answer, so that the next turn of a
// chat finds its own history.
//
// A request's whole future (its Timeline) is known when it starts, and changes only when another one leaves
// the lane before its prefill is over: then everything behind moves up.
//
// Cost: Start and Leave one hash lookup per block; Leave also walks the lane if the request was still on it.
// One thread.
//
//   Engine engine(EngineOptions{});
//   Engine::Started started = engine.Start({.prompt_tokens = 100, .output_tokens = 16, .chain = chain}, now);
//   started.timeline.TokenTime(0);                      // when to send the first token
//   engine.Leave(started.id, chain_with_answer, later);   // done, or given up
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>

#include <absl/container/flat_hash_map.h>

#include "simulation/prefix_cache.h"

namespace vllm_router {

struct EngineOptions {
  // Part of the time to first token that no cache saves and nobody else waits for: scheduling, tokenising,
  // the first step. The default is a small model's on a quiet GPU.
  double ttft_ms = 20;
  // 1 / prefill speed. 80 us is 12,500 tokens/s: 64 GFLOP per token of a 32B dense model at 0.8 PFLOP/s.
  double prefill_us_per_token = 80;
  // Time between two tokens of one answer while nobody else runs. 5 ms is quick, so that tests are; a 32B
  // model on one GPU needs about 12 ms to read its weights.
  double tpot_ms = 5;
  // Added to it for each other request in flight (50 us: sampling and small kernels). Zero keeps timings
  // independent.
  double tpot_us_per_running = 0;
  // Size of the KV cache. 4096 blocks of 16 tokens are 65,536 tokens: enough to show hits, small enough to
  // show misses.
  size_t cache_blocks = 4096;
  size_t block_tokens = 16;
};

// When the tokens of one answer come. Times are nanoseconds of the caller's clock.
struct Timeline {
  int64_t prefill_start = 0;
  int64_t prefill_end = 0;
  int64_t first_token = 0;
  int64_t token_interval = 0;
  size_t output_tokens = 0;

  int64_t TokenTime(size_t token) const { return first_token + static_cast<int64_t>(token) * token_interval; }
  // Time of the last token. REQUIRES: output_tokens > 0 (else: time of the answer, as for an embedding).
  int64_t end() const { return TokenTime(output_tokens == 0 ? 0 : output_tokens - 1); }
  // How many tokens there are at this time.
  size_t TokensAt(int64_t now) const;
};

class Engine {
 public:
  explicit Engine(const EngineOptions& options);

  struct Request {
    size_t prompt_tokens = 0;
    size_t output_tokens = 0;
    std::span<const uint64_t> chain;  // BlockChain() of the prompt: its full blocks
  };
  struct Started {
    uint64_t id = 0;
    size_t cached_tokens = 0;
    Timeline timeline;
  };
  // REQUIRES: times do not run backwards over all calls.
  Started Start(const Request& request, int64_t now);

  // The timeline as it stands now. REQUIRES: started and not left.
  const Timeline& TimelineOf(uint64_t id) const;

  // The request is done, or has been given up. `chain` is its prompt's, continued over the part of the answer
  // that was generated. Returns whether timelines of others moved. REQUIRES: started and not left.
  bool Leave(uint64_t id, std::span<const uint64_t> chain, int64_t now);

  // Forgets the cache, as /reset_prefix_cache does.
  void ClearCache() { cache_.Clear(); }

  struct Load {
    size_t running = 0;  // prefill begun
    size_t waiting = 0;  // for the lane
  };
  Load LoadAt(int64_t now) const;

  const PrefixCache& cache() const { return cache_; }
  const EngineOptions& options() const { return options_; }

 private:
  EngineOptions options_;
  PrefixCache cache_;
  uint64_t last_id_ = 0;
  int64_t lane_free_ = 0;      // when the last prefill on the lane will have ended
  std::deque<uint64_t> lane_;  // whose prefill may not be over, in order
  absl::flat_hash_map<uint64_t, Timeline> in_flight_;
};

}  // namespace vllm_router
