// ProgramSettings: what an operator says of programs (program_table.h), as one line:
//
//   on fill=0.9 max_wait_ms=300000 ttl_ms=0 max_ttl_ms=120000 forget_ms=1800000 max_active_per_tenant=4
//
// The first word is off, observe or on; what is left out has its default. The line is what the program that reads the
// operator's flags and file (python/vllm_router/settings/programs.py) makes of them. Immutable; any thread.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/status.h"

namespace vllm_router {

inline constexpr double kMaxProgramFill =
    0.95;  // at 1.1 the fleet does a third less: cached prompts are evicted
inline constexpr int64_t kMaxProgramWaitMs = 86'400'000;
inline constexpr uint64_t kMaxProgramCapacity = 1'000'000'000'000;  // tokens
inline constexpr uint32_t kMaxActivePrograms = 1'000'000;

// kObserve: counts what kOn would do; no request waits.
enum class ProgramMode : uint8_t { kOff, kObserve, kOn };

std::string_view ProgramModeName(ProgramMode mode);

struct ProgramSettings {
  // InvalidArgument names the member, its value and the limit.
  static StatusOr<ProgramSettings> Parse(std::string_view line);

  bool is_on() const { return mode != ProgramMode::kOff; }

  ProgramMode mode = ProgramMode::kOff;
  double fill = 0.9;              // share of a worker's KV cache that its active programs may have
  int64_t max_wait_ms = 300'000;  // then a paused program goes on, whatever has room
  int64_t reject_after_ms = 0;  // or its request is rejected, if this is no longer than max_wait_ms; 0: never
  int64_t ttl_ms = 0;  // how long one without a request stays active while others wait; 0: see TtlNs()
  int64_t max_ttl_ms = 120'000;        // of a TTL that is worked out
  int64_t forget_ms = 1'800'000;       // one without a request is forgotten then
  uint64_t capacity = 0;               // tokens of each worker's KV cache; 0: as workers report
  uint32_t max_active_per_tenant = 0;  // 0: no limit, as of the next
  uint32_t max_active_per_worker = 0;

  // The break-even: tokens held for so long displace as much as computing them again would cost. `rate`: tokens per second
  // that the worker computes; 0: not known.
  int64_t TtlNs(uint64_t tokens_of_cache, double rate) const;

  bool operator==(const ProgramSettings&) const = default;
};

}  // namespace vllm_router
