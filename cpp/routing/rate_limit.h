// RateLimit: a maximum number of requests per second, over all threads, besides a burst of one second's
// worth.
//
// The state is one number: the time at which all admitted requests would have started at evenly spaced
// intervals. A request passes while that is less than a second ahead:
//
//   due   |----|----|----|----X            4 passed at once; each moved `due` on by one interval
//         now                 due          the next passes as soon as due <= now + a second less one interval
//
// which is a token bucket without the bucket (the "generic cell rate algorithm" of ATM Forum TM 4.0,
// 1996). The interval is whole nanoseconds, rounded up: a rate of 700,000 becomes 699,790. Thread-safe;
// at most two divisions and one atomic exchange.
//
// Several routers may share one limit. Whatever they meet in (proxy/peer_sync/peer_streams.h) then leases tokens from a
// bucket of all of them, some times a second, and requests take from the lease:
//
//   Settle(4 routers) == 300    ask the bucket for 300 more, of the 1.2 times that were wanted lately
//   Lease(250)                  it had 250
//   Settle(4) == -190           few were wanted, and 190 go back
//
// One more than the lease may be taken, which the next one pays for: a single request after a long pause is not
// rejected. Where nothing leases, each of n routers has 1/n of the rate (ShareOut), which may be less than one request
// per second.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace vllm_router {

class RateLimit {
 public:
  static constexpr uint32_t kMostPerSecond = 1'000'000;
  explicit RateLimit(uint32_t per_second) { SetRate(per_second); }

  // 0: no limit. What was admitted under another rate counts by that rate. REQUIRES: per_second <=
  // kMostPerSecond.
  void SetRate(uint32_t per_second);
  bool limits() const { return per_second_.load(std::memory_order_relaxed) != 0; }

  // 0: admitted. Otherwise the nanoseconds after which another attempt may succeed.
  int64_t Take(int64_t now_ns);

  // The rest by one thread.
  uint32_t per_second() const { return per_second_.load(std::memory_order_relaxed); }
  // Tokens that this router, one of `routers`, asks the common bucket for; negative: those that it gives back,
  // which it does not have any more. Once for each lease.
  int64_t Settle(uint32_t routers);
  // The bucket gave so many, which the next requests take; at most what Settle() asked for. `again_ns`: until the
  // next lease.
  void Lease(int64_t tokens, int64_t again_ns);
  // From now on this router limits by itself, to 1/routers of the rate. Of the time between two requests the part
  // `phase` passes before the first, so that routers which are shared out at once do not all begin at once.
  // REQUIRES: 0 <= phase <= 1.
  void ShareOut(uint32_t routers, int64_t now_ns, double phase);

 private:
  static constexpr size_t kRemembered = 20;  // leases, of what was wanted

  struct Pace {
    int64_t interval_ns;  // between two requests
    int64_t ahead_ns;     // how far `due` may be ahead
  };
  static Pace PaceOf(int64_t rate, uint32_t routers);

  std::atomic<uint32_t> per_second_{0};
  std::atomic<int64_t> due_ns_{INT64_MIN};
  std::atomic<uint32_t> routers_{1};
  std::atomic<bool> leases_{false};
  std::atomic<int64_t> again_ns_{0};
  std::atomic<int64_t> tokens_{0};  // of the lease; -1: one was taken beyond it
  std::atomic<int64_t> wanted_{0};  // since the last lease
  std::array<int64_t, kRemembered> wanted_lately_{};
  size_t next_ = 0;    // of wanted_lately_
  int64_t asked_ = 0;  // for the next lease
};

}  // namespace vllm_router
