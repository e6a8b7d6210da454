// Threads count one worker's responses while buckets of the clock end under them: nothing is lost, nothing counted twice.
#include "worker/outlier_detector.h"

#include <atomic>
#include <cstdint>

#include "stress.h"

int main() {
  using namespace vllm_router;
  constexpr int kThreads = 4;
  constexpr int kRounds = 100'000;
  constexpr int64_t kWindow = 80'000'000;  // eight buckets of ten million
  constexpr int64_t kStart = 1'000'000'000;
  constexpr int64_t kStep = 50'000'000 / (kThreads * kRounds);  // so that five buckets pass
  ResponseCounts counts;
  std::atomic<int64_t> now{kStart};

  RunTogether(kThreads, [&](int thread) {
    for (int round = 0; round < kRounds; ++round) {
      const int64_t time = now.fetch_add(kStep) + kStep;
      switch ((round + thread) % 4) {
        case 0:
          counts.CountError(kWindow, time);
          break;
        case 1:
          counts.CountSuccess(kWindow, time);
          counts.TurnIntoError(kWindow, time);
          break;
        default:
          counts.CountSuccess(kWindow, time);
      }
      if (round % 64 == 0) {
        const ErrorShare seen = counts.Within(kWindow, time);
        STRESS_CHECK(seen.errors >= 0 && seen.errors <= seen.responses);
      }
    }
  });

  const ErrorShare all = counts.Within(kWindow, now);
  STRESS_CHECK(all.responses == int64_t{kThreads} * kRounds);
  STRESS_CHECK(all.errors == int64_t{kThreads} * kRounds / 2);
}
