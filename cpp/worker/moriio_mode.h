// MoriioMode: who moves the KV blocks between two of vLLM's MoRI-IO workers. Each worker says so as it registers, and
// all of a fleet must say the same.
#pragma once

#include <cstdint>
#include <string_view>

namespace vllm_router {

enum class MoriioMode : uint8_t {
  kRead,   // decode reads what prefill has kept, so prefill is first
  kWrite,  // prefill writes into decode's memory, so both are told at once
};

// As workers spell it.
constexpr std::string_view MoriioModeName(MoriioMode mode) {
  return mode == MoriioMode::kRead ? "READ" : "WRITE";
}

}  // namespace vllm_router
