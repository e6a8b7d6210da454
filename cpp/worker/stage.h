// Stage: what a worker does in a fleet that serves each request with two workers: one computes the KV blocks of
// the prompt (prefill), another receives them and generates (decode). A fleet has stages or it has none; a worker
// keeps its stage for life.
//
//   regular fleet   kAll       kAll       kAll
//   staged fleet    kPrefill   kPrefill   kDecode
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "worker/moriio_mode.h"

namespace vllm_router {

enum class Stage : uint8_t { kAll, kPrefill, kDecode };

// As `worker_type` has it: regular, prefill, decode.
constexpr std::string_view StageName(Stage stage) {
  switch (stage) {
    case Stage::kAll:
      return "regular";
    case Stage::kPrefill:
      return "prefill";
    case Stage::kDecode:
      return "decode";
  }
  return "regular";
}

// Nullopt for any other name.
constexpr std::optional<Stage> StageByName(std::string_view name) {
  for (const Stage stage : {Stage::kAll, Stage::kPrefill, Stage::kDecode}) {
    if (StageName(stage) == name) return stage;
  }
  return std::nullopt;
}

// What a worker of a stage told of its KV transfers as it registered (disaggregation/pd_registration.h).
struct KvPeer {
  std::string zmq_address;
  std::optional<MoriioMode> mode = {};
  uint32_t tp_size = 1;
  uint32_t dp_size = 1;

  friend bool operator==(const KvPeer&, const KvPeer&) = default;
};

// What a worker is declared as.
struct WorkerRole {
  Stage stage = Stage::kAll;
  std::optional<uint16_t>
      bootstrap_port;               // where decode workers learn of a prefill worker's engine; null: unknown
  std::optional<KvPeer> peer = {};  // null: it has not registered
  // What must be equal for KV blocks of one worker to fit another, such as model, template and block size. Empty: it
  // is not said, and blocks fit.
  std::string kv_group = {};

  friend bool operator==(const WorkerRole&, const WorkerRole&) = default;
};

inline constexpr size_t kMaxKvGroupBytes = 128;

// Whether a worker of one group may fetch blocks from one of the other.
constexpr bool MayPair(std::string_view group, std::string_view other) {
  return group.empty() || other.empty() || group == other;
}

}  // namespace vllm_router
