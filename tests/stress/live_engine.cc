// Threads bring jobs to one engine whose memory is too small for all of them, look at them, and leave, half of them in the
// middle: every job has ever more tokens, those that stay get all of theirs, and in the end nobody holds anything.
#include "simulation/live_engine.h"

#include <utility>
#include <vector>

#include "stress.h"

int main() {
  using namespace vllm_router;
  constexpr int kThreads = 4;
  constexpr uint32_t kJobs = 200;
  constexpr uint32_t kTokens = 40;

  const SteadyClock clock;
  LiveEngine engine(
      {.coefficients = {.step_ms = 0.01, .prefill_us_per_token = 0.1}, .cache_blocks = 24, .block_tokens = 8},
      clock);
  RunTogether(kThreads, [&](int thread) {
    for (uint32_t round = 0; round < kJobs; ++round) {
      const uint32_t number = round * kThreads + static_cast<uint32_t>(thread);
      LiveEngine::Part part{.prompt_tokens = kTokens, .output_tokens = kTokens, .prompt_blocks = kTokens / 8};
      // Names are the thread's own, but for the first three.
      for (uint64_t i = 0; i < 2 * kTokens / 8; ++i)
        part.blocks.push_back(i < 3 ? i + 1 : number * 100 + i + 4);
      const LiveEngine::JobId job = engine.Submit({part, part});
      size_t tokens = 0;
      for (;;) {
        const LiveEngine::Progress progress = engine.ProgressOf(job);
        STRESS_CHECK(progress.tokens >= tokens && progress.tokens <= kTokens);
        STRESS_CHECK(progress.ended == (progress.tokens == kTokens));
        tokens = progress.tokens;
        if (progress.ended || (round % 2 == 0 && tokens >= round % kTokens)) break;
        const LiveEngine::State state = engine.ReadState();
        STRESS_CHECK(state.held_blocks <= 24);
        STRESS_CHECK(state.load.running + state.load.waiting <= 2 * kThreads);
      }
      engine.Leave(job);
      if (round % 50 == 0) engine.WipeCache();
    }
  });
  // Those that left in the middle are gone with their steps.
  while (engine.ReadState().held_blocks > 0) {
  }
  STRESS_CHECK(engine.ReadState().load.running == 0 && engine.ReadState().load.waiting == 0);
  STRESS_CHECK(engine.ReadState().evicted_blocks > 0);
}
