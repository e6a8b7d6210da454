// ReadMooncakeEngines: the engines of a Mooncake prefill worker, as its bootstrap server says.
//
//   GET http://10.0.0.1:8998/query   ->   {"0": {"engine_id": "e0", "worker_addr": {…}}, "1": {"engine_id": "e1"}}
//
// What is no rank with an engine id, such as a rank that has not started yet, is not read: that rank is unknown, and
// its worker not eligible. Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace vllm_router {

inline constexpr uint32_t kMaxMooncakeRanks = 1024;
inline constexpr size_t kMaxMooncakeEngineId = 256;  // bytes

// Engine ids by data-parallel rank. nullopt: `reply` is no JSON object.
std::optional<std::map<uint32_t, std::string>> ReadMooncakeEngines(std::string_view reply);

}  // namespace vllm_router
