#include "simulation/engine_coefficients.h"

#include <array>
#include <cstdio>

#include "base/text.h"

namespace vllm_router {
namespace {

// Per token on one GPU: FLOP / compute rate, KV bytes / memory bandwidth.
constexpr std::array<EnginePreset, 6> kPresets = {{
    {"h200_32b", "a dense 32B model in FP8 on one H200", {}},
    {"h100_8b",
     "a dense 8B model in BF16 on one H100",
     {.step_ms = 9,
      .prefill_us_per_token = 32,
      .attention_ns_per_token2 = 1.3,
      .decode_us_per_sequence = 40,
      .context_ns_per_token = 52}},
    {"h200x4_70b",
     "a dense 70B model in FP8 on four H200",
     {.step_ms = 11,
      .prefill_us_per_token = 50,
      .attention_ns_per_token2 = 1.2,
      .decode_us_per_sequence = 60,
      .context_ns_per_token = 26}},
    {"quick",
     "no engine in particular: the default of simulated workers",
     {.step_ms = 5,
      .prefill_us_per_token = 80,
      .attention_ns_per_token2 = 0,
      .decode_us_per_sequence = 0,
      .context_ns_per_token = 0}},
    {"demo",
     "no engine in particular: the workers of `vllm-router demo`",
     {.step_ms = 4,
      .prefill_us_per_token = 400,
      .attention_ns_per_token2 = 0,
      .decode_us_per_sequence = 0,
      .context_ns_per_token = 0}},
    {"instant",
     "no time at all: cache hits, and nothing else",
     {.step_ms = 0,
      .prefill_us_per_token = 0,
      .attention_ns_per_token2 = 0,
      .decode_us_per_sequence = 0,
      .context_ns_per_token = 0}},
}};

Status InRange(std::string_view name, double value, double most) {
  if (value >= 0 && value <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(
      Concat(name, " is ", PlainNumber(value), "; it must be from 0 to ", PlainNumber(most)));
}

}  // namespace

std::string PlainNumber(double number) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.15g", number);
  return text;
}

std::span<const EnginePreset> EnginePresets() { return kPresets; }

StatusOr<EngineCoefficients> EngineCoefficientsByName(std::string_view name) {
  std::string names;
  for (const EnginePreset& preset : kPresets) {
    if (preset.name == name) return preset.coefficients;
    names += Concat(names.empty() ? "" : ", ", preset.name);
  }
  return absl::InvalidArgumentError(Concat("engine preset ", Quoted(name), " is unknown; presets: ", names));
}

Status CheckEngineCoefficients(const EngineCoefficients& coefficients) {
  ROUTER_RETURN_IF_ERROR(InRange("step_ms", coefficients.step_ms, 24 * 3600 * 1e3));
  ROUTER_RETURN_IF_ERROR(InRange("prefill_us_per_token", coefficients.prefill_us_per_token, 1e6));
  ROUTER_RETURN_IF_ERROR(InRange("attention_ns_per_token2", coefficients.attention_ns_per_token2, 1e6));
  ROUTER_RETURN_IF_ERROR(InRange("decode_us_per_sequence", coefficients.decode_us_per_sequence, 1e6));
  return InRange("context_ns_per_token", coefficients.context_ns_per_token, 1e6);
}

}  // namespace vllm_router
