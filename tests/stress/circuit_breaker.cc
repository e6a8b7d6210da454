// Many threads pass through one breaker: it opens and closes, and whatever they do, no probe stays out for ever.
#include "worker/circuit_breaker.h"

#include <atomic>
#include <cstdint>
#include <optional>

#include "base/random.h"
#include "stress.h"

int main() {
  using namespace vllm_router;
  constexpr int kThreads = 4;
  constexpr int kRounds = 20'000;
  constexpr int64_t kMs = 1'000'000;
  const BreakerOptions options{
      .failure_threshold = 3, .success_threshold = 2, .open_ms = 1, .window_ms = 1'000'000};
  CircuitBreaker breaker;
  std::atomic<int64_t> now{0};
  std::atomic<uint64_t> opened{0};
  std::atomic<uint64_t> closed{0};

  RunTogether(kThreads, [&](int thread) {
    Random random(static_cast<uint64_t>(thread));
    for (int round = 0; round < kRounds; ++round) {
      const int64_t time = now.fetch_add(kMs / 4) + kMs / 4;
      breaker.ComeDue(options, time);
      if (random.Below(50) == 0) breaker.NotReached();
      if (random.Below(50) == 0) breaker.Reached();
      std::optional<BreakerPass> pass = breaker.TryPass(options);
      if (!pass) continue;
      const uint64_t luck = random.Below(4);
      if (luck == 0) {
        pass.reset();  // the client left
        continue;
      }
      const BreakerResult verdict = luck == 1 ? BreakerResult::kSuccess : BreakerResult::kFailure;
      const std::optional<BreakerChange> change = pass->Settle(options, verdict, time);
      if (change && change->to == BreakerState::kOpen) opened.fetch_add(1);
      if (change && change->to == BreakerState::kClosed) closed.fetch_add(1);
      if (verdict == BreakerResult::kSuccess) pass->SettleEnd(options, random.Below(8) == 0, time);
    }
  });
  STRESS_CHECK(opened > 0);
  STRESS_CHECK(closed > 0);

  // Alone again: whatever state it is in, it comes round to closed.
  int64_t later = now + 10'000 * kMs;
  while (breaker.state() != BreakerState::kClosed) {
    breaker.ComeDue(options, later += 10 * kMs);
    std::optional<BreakerPass> pass = breaker.TryPass(options);
    STRESS_CHECK(pass.has_value());
    STRESS_CHECK(!breaker.TryPass(options).has_value() || breaker.state() == BreakerState::kClosed);
    pass->Settle(options, BreakerResult::kSuccess, later);
  }
}
