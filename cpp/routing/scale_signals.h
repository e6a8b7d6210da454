// ScaleSignals: how many replicas one model wants, from what its workers have to do (docs/how-to/scale_workers.md).
//
//   requests / slots, prefill seconds / wait, KV use    each where it is known
//        | the largest: saturation                      1: the ready replicas have all that they can take
//        | x ready: busy replicas, mean of 30 s
//        | / target, rounded up, within min..max
//   desired replicas                                    the most that the last 5 minutes wanted
//
// So it rises at once, and falls when 5 minutes have wanted less. The mean is of busy replicas and not of the
// saturation, so that a replica that joins does not raise what is desired: it shares work that is there already. A
// sample counts for kMostSaturation at most: one prompt, or one engine that tells nonsense, says little about more, and
// a fleet that needs more grows again once it has grown. Replicas that are down take places that are wanted as well.
//
// A number that is not known is never 0. Without load nothing is busy, whatever else is known. With load, and
// nothing known to compare it with, or while something is not known that was known before, or while no replica is
// ready though some are there, the input says nothing: the last value stays, and the reading is stale. At the start
// the value is the number of replicas that are there, so a router that restarts wants what its fleet has.
//
// Requests for the model (demand) keep at least one replica for kDemandNanos, even from none.
//
// Pure: the time is passed in. Cost: 40 samples per update. One thread.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>

namespace vllm_router {

struct ScaleOptions {
  double target = 0.8;          // saturation at which the number of replicas is right; above 0
  double target_wait_secs = 1;  // prefill seconds that saturate; above 0
  uint32_t min = 0;
  uint32_t max = 0;  // 0: none
};

// What is known of a model's workers at one time. A replica is a host, with all ranks of its engine.
struct ScaleInput {
  uint32_t ready = 0;                     // replicas that get requests
  uint32_t pending = 0;                   // that do not yet
  uint32_t down = 0;                      // unhealthy, or resting
  uint32_t unknown = 0;                   // neither ready nor known to be of this model
  int64_t requests = 0;                   // at ready replicas, from all routers
  int64_t queued = 0;                     // requests that wait for a worker or a first token
  std::optional<double> slots;            // requests that the ready replicas take at once
  std::optional<double> prefill_seconds;  // for all prompt tokens that wait, at the ready replicas together
  std::optional<double> kv_use;           // 0..1, mean of the ready replicas
  bool polls_kv = false;                  // it is asked for, so that it may be missed
  bool hears_routers = true;              // false: requests of other routers are not in the above
  uint64_t demand = 0;                    // requests for the model so far
  int64_t waiting = 0;                    // for its first worker
};

struct ScaleReading {
  double saturation = 0;  // mean of 30 s
  uint32_t desired = 0;
  bool stale = true;
};

class ScaleSignals {
 public:
  static constexpr int64_t kMeanNanos = 30'000'000'000;
  static constexpr int64_t kDownNanos = 300'000'000'000;
  static constexpr int64_t kDemandNanos = 60'000'000'000;
  static constexpr size_t kMostSamples = 64;  // of the mean; updates come once a second
  static constexpr double kMostSaturation = 2;
  static constexpr uint32_t kMostReplicas = 10'000;  // whatever was computed

  // The times do not fall.
  ScaleReading Update(const ScaleInput& input, const ScaleOptions& options, int64_t now_ns);
  const ScaleReading& reading() const { return reading_; }

  // nullopt: the input does not say it.
  static std::optional<double> SaturationOf(const ScaleInput& input, const ScaleOptions& options);

 private:
  struct Sample {
    int64_t at_ns;
    double saturation;
    double busy;  // replicas
  };
  struct Wanted {
    int64_t at_ns;
    uint32_t replicas;
  };

  bool LacksKv(const ScaleInput& input);
  void CountDemand(const ScaleInput& input, int64_t now_ns);
  // The mean saturation and the mean number of busy replicas, with this sample.
  Sample Mean(const Sample& sample);
  // The most of the last kDownNanos, with this one.
  uint32_t Most(const Wanted& wanted);

  ScaleReading reading_;
  bool begun_ = false;
  bool knew_kv_ = false;
  uint64_t demand_ = 0;
  std::optional<int64_t> demand_ns_;  // it rose last
  std::deque<Sample> samples_;
  std::deque<Wanted> wanted_;  // each less than those before it
};

}  // namespace vllm_router
