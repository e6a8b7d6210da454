// PairState: whether a worker of a fleet with stages may be half of a pair. A connector may need what only the worker
// knows: Mooncake the id of prefill's engine, `auto` which engine it is. Until that is known, the worker is not in
// rotation.
//
//   PairRule        what the fleet's connector needs
//   Worker          what is known: engine_id, engine, kv_group  --.
//   Publish         (worker_registry.h)                         +--> FleetView::Member::pair
//
// Of `one_engine`, the first engine that is learned is the fleet's until none of its workers is left.
#pragma once

#include <cstdint>
#include <string_view>

namespace vllm_router {

enum class EngineKind : uint8_t { kUnknown, kVllm, kSglang };

// As `owned_by` in a list of models has it; empty: unknown.
constexpr std::string_view EngineKindName(EngineKind engine) {
  switch (engine) {
    case EngineKind::kUnknown:
      return "";
    case EngineKind::kVllm:
      return "vllm";
    case EngineKind::kSglang:
      return "sglang";
  }
  return "";
}

constexpr EngineKind EngineKindByName(std::string_view name) {
  if (name == "vllm") return EngineKind::kVllm;
  return name == "sglang" ? EngineKind::kSglang : EngineKind::kUnknown;
}

struct PairRule {
  bool engine_ids = false;  // of prefill workers
  bool one_engine = false;  // all workers are of one engine, which their lists of models name
  bool registered = false;  // all workers have told their ZMQ addresses
};

enum class PairState : uint8_t {
  kReady,
  kNoEngineId,
  kEngineUnknown,
  kOtherEngine,
  kNoPartner,
  kNotRegistered,
};

// Why it is not ready; empty: it is.
constexpr std::string_view PairStateText(PairState state) {
  switch (state) {
    case PairState::kReady:
      return "";
    case PairState::kNoEngineId:
      return "the engine id is not known: the bootstrap server has not told it (GET /query)";
    case PairState::kEngineUnknown:
      return "the engine is not known: GET /v1/models has named neither vllm nor sglang (owned_by)";
    case PairState::kOtherEngine:
      return "another engine than the fleet's; --kv-connector auto takes workers of one engine only";
    case PairState::kNoPartner:
      return "no decode worker of its kv_group is in rotation";
    case PairState::kNotRegistered:
      return "the ZMQ address is not known: the worker was added, and has not registered "
             "(--vllm-discovery-address)";
  }
  return "";
}

}  // namespace vllm_router
