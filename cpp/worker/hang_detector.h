// HangDetector: which workers have stopped serving although they accept requests and pass their health
// checks: an engine whose scheduler is blocked, a process that is stopped. Timeouts find such a worker
// after minutes; this finds it by comparison, as Envoy's outlier detection does for errors. A worker is in
// doubt if all of this holds:
//
//   silent      it has sent no byte of any successful response, a running stream's included, for `limit`
//   overdue     two requests, of two clients, have waited for their first token for `limit`, all of that
//               time; a single client will do if it sends half of what others serve
//   overtaken   meanwhile others responded to requests sent after the silence began: eight, and a
//               quarter of what waits at them. If all are slow together, nothing is overtaken
//   bounded     fewer than half of its group are out already: in doubt, or by their circuit breakers
//
//   limit = 5 s, or if one of these is longer, that:
//           factor * what it and its group were silent for at 99 of 100 looks, while requests waited
//           2 * what half of the requests wait that are as long as the longest that waits there, since a long
//               prompt in front delays all. A size that has not been seen is extrapolated from the next
//               smaller one in proportion to its bytes
//           factor * what 95 of 100 such requests wait, instead of the first, for a request that does not
//               stream: its first byte comes when all is generated
//
//   Observe(now, fleet)   some times in the shortest limit: learns, and names the workers that are worth a closer look
//   Judge(worker, …)      that look, with the requests that wait there now
//
// A group are workers that serve the same models and the same stage. A worker that is alone in its group is
// never in doubt, one that has responded to few requests only after twice as long and 30 s, a kind of which
// nothing was learnt not at all. What a worker in doubt does is not learnt.
//
// Cost: O(workers) per tick, 180 counters each; a second look O(group). Pure: the time is passed in. One
// thread.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "worker/response_progress.h"

namespace vllm_router {

enum class WorkerId : uint32_t;

class HangDetector {
 public:
  static constexpr int64_t kMinLimitNs = 5'000'000'000;
  static constexpr int64_t kUnknownTimes = 6;  // of a worker without a history: so many times that
  static constexpr size_t kMinOverdue = 2;
  static constexpr uint64_t kMinOvertaking = 8;
  static constexpr uint64_t kMinSamples = 20;  // of waits, before they count as known

  struct Observed {
    WorkerId worker{};
    uint64_t group = 0;
    bool in_rotation = true;  // healthy, and not draining
    bool out = false;         // in doubt, or its circuit breaker is not closed
    bool in_doubt = false;
    int64_t waiting = 0;       // requests without a first token
    int64_t last_byte_ns = 0;  // ResponseProgress
    WaitTable<uint32_t> waits{};
  };

  // A request that was sent whole and has no byte of a response.
  struct Wait {
    ResponseKind kind = ResponseKind::kPlain;
    uint64_t bytes = 0;
    int64_t sent_ns = 0;
    uint64_t client = 0;
  };

  // By kind and size: how long a request may wait there before it is overdue; kNoLimit: nothing is known of such.
  static constexpr int64_t kNoLimit = INT64_MAX;
  using Limits = std::array<std::array<int64_t, kRequestSizes>, kResponseKinds>;

  struct Doubt {
    int64_t silent_since_ns = 0;
    int64_t silent_ns = 0;
    Limits limits{};
    int64_t limit_ns = 0;     // the longest of those that are overdue
    size_t overdue = 0;       // requests
    bool streams = false;     // one of them is a stream, whose first byte is its first token
    uint64_t overtaking = 0;  // responses of others meanwhile
  };

  // 0: nothing is ever in doubt. `min_limit_ns`: for tests.
  void SetFactor(double factor, int64_t min_limit_ns = kMinLimitNs) {
    factor_ = factor;
    min_limit_ns_ = min_limit_ns;
  }

  // All workers of the fleet. Returns those for Judge().
  std::vector<WorkerId> Observe(int64_t now_ns, std::span<const Observed> fleet);

  // `served`: clients of the last responses of the others. A worker in doubt counts as out from here on, so that of
  // several that are looked at between two ticks no more than may be are.
  std::optional<Doubt> Judge(
      WorkerId worker, std::span<const Wait> waits, std::span<const uint64_t> served, int64_t now_ns);

  // Where the longest request that waits there has `most_bytes`.
  Limits LimitsOf(WorkerId worker, uint64_t most_bytes) const;
  static bool IsOverdue(const Wait& wait, const Limits& limits, int64_t silent_since_ns, int64_t now_ns) {
    const int64_t limit = limits[static_cast<size_t>(wait.kind)][RequestSizeOf(wait.bytes)];
    return now_ns - std::max(wait.sent_ns, silent_since_ns) >= limit;
  }

 private:
  using Times = std::array<uint32_t, kWaitTimes>;

  struct Known {
    Observed now;
    WaitTable<uint32_t> learnt{};
    int64_t joined_ns = 0;
    int64_t in_doubt_ns = -1;  // the last time that it was
    Times silences{};          // of looks while requests waited
    Times pending{};           // likewise, of a silence that goes on
    int64_t busy_since_ns = -1;
    int64_t silent_since() const { return std::max(joined_ns, now.last_byte_ns); }
  };
  struct Responded {  // by a group, between two ticks
    int64_t from_ns;
    int64_t to_ns;
    Times times{};
  };

  // Adds its responses since the last tick to `responded`.
  static void Learn(int64_t now_ns, const Observed& seen, Known* known, Times* responded);
  static void LearnSilence(int64_t now_ns, bool spoke, bool late, Known* known);
  uint64_t Overtaking(const Known& worker) const;
  bool MayDoubt(const Known& worker) const;

  double factor_ = 0;
  int64_t min_limit_ns_ = kMinLimitNs;
  int64_t last_ns_ = 0;  // of the last tick
  std::map<WorkerId, Known> workers_;
  std::map<uint64_t, std::deque<Responded>> responded_;  // by group, in order of time
};

}  // namespace vllm_router
