#include "routing/scale_signals.h"

#include <algorithm>
#include <cmath>

namespace vllm_router {
namespace {

// Of a quotient that should be whole and is a little more.
constexpr double kRounding = 1e-9;

uint32_t Within(const ScaleOptions& options, uint32_t replicas) {
  const uint32_t most = options.max != 0 ? options.max : ScaleSignals::kMostReplicas;
  return std::min(std::max(replicas, options.min), most);
}

uint32_t ReplicasFor(double busy, double target) {
  const double replicas = std::ceil(busy / target - kRounding);
  return static_cast<uint32_t>(std::clamp<double>(replicas, 0, ScaleSignals::kMostReplicas));
}

}  // namespace

std::optional<double> ScaleSignals::SaturationOf(const ScaleInput& input, const ScaleOptions& options) {
  if (!input.hears_routers) return std::nullopt;
  if (input.ready == 0) {
    return input.pending + input.down + input.unknown == 0 ? std::optional(0.0) : std::nullopt;
  }
  if (input.requests == 0 && input.queued == 0) return 0.0;  // a cache may be full of what has ended
  std::optional<double> most;
  const auto add = [&most](double share) { most = std::max(most.value_or(0), share); };
  if (input.slots && *input.slots > 0) add(static_cast<double>(input.requests) / *input.slots);
  if (input.prefill_seconds) add(*input.prefill_seconds / options.target_wait_secs);
  if (input.kv_use) add(*input.kv_use);
  return most ? std::optional(std::min(*most, kMostSaturation)) : std::nullopt;
}

bool ScaleSignals::LacksKv(const ScaleInput& input) {
  if (!input.polls_kv) knew_kv_ = false;
  if (input.kv_use) knew_kv_ = true;
  return knew_kv_ && !input.kv_use && input.ready > 0;
}

void ScaleSignals::CountDemand(const ScaleInput& input, int64_t now_ns) {
  if (input.waiting > 0 || (begun_ && input.demand > demand_)) demand_ns_ = now_ns;
  demand_ = input.demand;
}

ScaleSignals::Sample ScaleSignals::Mean(const Sample& sample) {
  samples_.push_back(sample);
  while (samples_.front().at_ns <= sample.at_ns - kMeanNanos || samples_.size() > kMostSamples)
    samples_.pop_front();
  Sample sum{.at_ns = sample.at_ns, .saturation = 0, .busy = 0};
  for (const Sample& one : samples_) {
    sum.saturation += one.saturation;
    sum.busy += one.busy;
  }
  const auto count = static_cast<double>(samples_.size());
  return {.at_ns = sum.at_ns, .saturation = sum.saturation / count, .busy = sum.busy / count};
}

uint32_t ScaleSignals::Most(const Wanted& wanted) {
  while (!wanted_.empty() && wanted_.back().replicas <= wanted.replicas) wanted_.pop_back();
  wanted_.push_back(wanted);
  while (wanted_.front().at_ns <= wanted.at_ns - kDownNanos) wanted_.pop_front();
  return wanted_.front().replicas;
}

ScaleReading ScaleSignals::Update(const ScaleInput& input, const ScaleOptions& options, int64_t now_ns) {
  CountDemand(input, now_ns);
  if (!begun_) {
    begun_ = true;
    reading_.desired = input.ready + input.pending + input.down;
    Most({.at_ns = now_ns, .replicas = Within(options, reading_.desired)});
  }
  const bool lacks_kv = LacksKv(input);
  const std::optional<double> saturation = lacks_kv ? std::nullopt : SaturationOf(input, options);
  reading_.stale = !saturation.has_value();
  uint32_t wanted = reading_.desired;
  if (saturation) {
    const Sample mean = Mean({.at_ns = now_ns, .saturation = *saturation, .busy = *saturation * input.ready});
    reading_.saturation = mean.saturation;
    wanted = ReplicasFor(mean.busy, options.target);
    if (wanted > 0) wanted += input.down;
  }
  if (demand_ns_ && now_ns - *demand_ns_ <= kDemandNanos) wanted = std::max(wanted, 1u);
  reading_.desired = Within(options, Most({.at_ns = now_ns, .replicas = Within(options, wanted)}));
  return reading_;
}

}  // namespace vllm_router
