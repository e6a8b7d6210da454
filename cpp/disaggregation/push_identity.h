// PushIdentity: who a NIXL prefill worker is that pushes its blocks (vLLM's NixlPushConnector), as its responses say.
//
//   "kv_transfer_params": {"transfer_mode": "push", "remote_engine_id": "e", "remote_host": "10.0.0.1",
//                          "remote_port": 5600, "tp_size": 2}
//
// Once it is known, a decode worker can be told at once where the blocks will come from, so both workers get their
// requests at the same time. It is of one worker and rank, and stale once its engine restarts. Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "routing/body_map.h"

namespace vllm_router {

struct PushIdentity {
  static constexpr size_t kMaxText = 256;  // bytes of an id or a host
  static constexpr uint32_t kMaxSize = 65'535;

  std::string engine_id;
  std::string host;
  uint16_t port = 0;
  uint32_t tp_size = 1;
  std::optional<uint32_t> pp_size = {};

  friend bool operator==(const PushIdentity&, const PushIdentity&) = default;
};

// nullopt unless engine id, host and port are there, each once; or if a size is no number of 1 and more, or the worker
// says that it does something else than push. `parameters`: the object of a prefill worker's response.
std::optional<PushIdentity> ReadPushIdentity(const BodyMap& parameters);

// "transfer_mode": "push"
bool SaysPush(const BodyMap& parameters);

}  // namespace vllm_router
