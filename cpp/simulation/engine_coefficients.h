// EngineCoefficients: the duration of a simulated engine's step, in five numbers that can be measured.
//
//   seconds of a step = step + prefill * prompt tokens computed in it
//                            + attention * sum over its chunks of (tokens * mean context)
//                            + decode * requests that decode
//                            + context * sum of their contexts
//
// | field                   | meaning                                       | h200_32b: 32B dense, FP8, one H200 |
// |-------------------------|-----------------------------------------------|------------------------------------|
// | step_ms                 | reading the weights once, and the host's part | 32 GB / (4.8 TB/s * 0.75) + 3 ms   |
// | prefill_us_per_token    | matrix products of a prompt token             | 64 GFLOP at 0.8 PFLOP/s            |
// | attention_ns_per_token2 | attention of a token to one before it         | 4 * 64 * 8192 FLOP at 600 TFLOP/s  |
// | decode_us_per_sequence  | sampling, small kernels                       |                                    |
// | context_ns_per_token    | reading the KV cache of one token             | 262 kB at 3.6 TB/s                 |
//
// The presets are arithmetic, not measurements; they rank policies (docs/explanation/engine_model.md).
// Plain values.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/status.h"

namespace vllm_router {

// As errors write it: 15 digits at most, none of them a zero behind the point.
std::string PlainNumber(double number);

struct EngineCoefficients {
  double step_ms = 12;
  double prefill_us_per_token = 80;
  double attention_ns_per_token2 = 3.5;
  double decode_us_per_sequence = 50;
  double context_ns_per_token = 73;

  bool operator==(const EngineCoefficients&) const = default;
};

struct EnginePreset {
  std::string_view name;
  std::string_view what;
  EngineCoefficients coefficients;
};

// The first one is the default.
std::span<const EnginePreset> EnginePresets();

// InvalidArgument lists the presets.
StatusOr<EngineCoefficients> EngineCoefficientsByName(std::string_view name);

// InvalidArgument for a number that is negative, not finite or absurd (a step of more than a day).
Status CheckEngineCoefficients(const EngineCoefficients& coefficients);

}  // namespace vllm_router
