#include "admission/program_settings.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <optional>

#include "admission/admission_settings.h"
#include "base/text.h"
#include "base/time_units.h"

namespace vllm_router {
namespace {

constexpr std::array<std::string_view, 3> kModes = {"off", "observe", "on"};
constexpr int64_t kUnknownTtlMs = 60'000;
constexpr int64_t kLeastTtlMs = 10'000;

Status Wrong(std::string_view member, std::string_view value, std::string_view limit) {
  return absl::InvalidArgumentError(Concat(member, " is ", Quoted(value), "; it must be ", limit));
}

template <typename Number>
Status SetCount(std::string_view name, std::string_view value, uint64_t least, uint64_t most, Number* count) {
  const std::optional<uint64_t> read = ParseDecimal(value);
  if (!read || *read < least || *read > most)
    return Wrong(name, value, Concat("a whole number between ", least, " and ", most));
  *count = static_cast<Number>(*read);
  return absl::OkStatus();
}

Status SetFill(std::string_view value, double* fill) {
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), *fill);
  const bool is_number = error == std::errc() && end == value.data() + value.size() && std::isfinite(*fill);
  if (is_number && *fill > 0 && *fill <= kMaxProgramFill) return absl::OkStatus();
  return Wrong("fill", value, Concat("a number above 0, up to ", kMaxProgramFill));
}

Status Set(std::string_view name, std::string_view value, ProgramSettings* settings) {
  const uint64_t day = kMaxProgramWaitMs;
  if (name == "fill") return SetFill(value, &settings->fill);
  if (name == "max_wait_ms") return SetCount(name, value, 1, day, &settings->max_wait_ms);
  if (name == "reject_after_ms") return SetCount(name, value, 0, day, &settings->reject_after_ms);
  if (name == "ttl_ms") return SetCount(name, value, 0, day, &settings->ttl_ms);
  if (name == "max_ttl_ms") return SetCount(name, value, 1, day, &settings->max_ttl_ms);
  if (name == "forget_ms") return SetCount(name, value, 1, day, &settings->forget_ms);
  if (name == "capacity") return SetCount(name, value, 0, kMaxProgramCapacity, &settings->capacity);
  if (name == "max_active_per_tenant")
    return SetCount(name, value, 0, kMaxActivePrograms, &settings->max_active_per_tenant);
  if (name == "max_active_per_worker")
    return SetCount(name, value, 0, kMaxActivePrograms, &settings->max_active_per_worker);
  return absl::InvalidArgumentError(Concat(Quoted(name), " is not a known member of programs"));
}

}  // namespace

std::string_view ProgramModeName(ProgramMode mode) { return kModes[static_cast<size_t>(mode)]; }

StatusOr<ProgramSettings> ProgramSettings::Parse(std::string_view line) {
  ProgramSettings settings;
  const std::string_view mode = TakeWord(&line);
  const auto found = std::ranges::find(kModes, mode);
  if (found == kModes.end()) return Wrong("the mode", mode, "off, observe or on");
  settings.mode = static_cast<ProgramMode>(found - kModes.begin());
  for (std::string_view word = TakeWord(&line); !word.empty(); word = TakeWord(&line)) {
    const size_t sign = word.find('=');
    if (sign == std::string_view::npos)
      return absl::InvalidArgumentError(Concat(Quoted(word), " has no value; write NAME=VALUE"));
    ROUTER_RETURN_IF_ERROR(Set(word.substr(0, sign), word.substr(sign + 1), &settings));
  }
  return settings;
}

int64_t ProgramSettings::TtlNs(uint64_t tokens_of_cache, double rate) const {
  int64_t ms = ttl_ms;
  if (ms == 0) {
    ms = kUnknownTtlMs;
    if (rate > 0 && tokens_of_cache != 0) {
      const double millis = static_cast<double>(tokens_of_cache) / rate * 1e3;
      ms = static_cast<int64_t>(std::clamp<double>(millis, kLeastTtlMs, kMaxProgramWaitMs));
    }
    ms = std::min(ms, max_ttl_ms);
  }
  return ms * kNanosPerMs;
}

}  // namespace vllm_router
