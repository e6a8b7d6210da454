// PdRegistration: how a worker of prefill/decode says that it is there, every few seconds, in a ZMQ message to the
// router. vLLM's MoRI-IO and P2P-NCCL connectors do.
//
//   frames   [identity, map] or [identity, "", map], the map in msgpack
//   map      {"type": "P", "http_address": "10.0.0.1:8000", "zmq_address": "10.0.0.1:21001"}
//   MoRI-IO  {…, "zmq_address": "host:10.0.0.1,handshake:6301,notify:61005", "transfer_mode": "READ", "tp_size": 8,
//             "dp_size": 2}
//
// Any process that reaches the socket can send anything, and what is read here becomes a worker's URL and part of a request's
// id. So a message has at most kMaxPdMessage bytes, an address is a host and a port and nothing else, and an object
// with a member twice or of a wrong type is malformed. Unknown members are skipped. Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "worker/moriio_mode.h"

namespace vllm_router {

inline constexpr size_t kMaxPdMessage = 4096;          // bytes of all frames
inline constexpr size_t kMaxZmqAddress = 256;          // bytes
inline constexpr uint32_t kMaxRegisteredRanks = 4096;  // tensor-parallel or data-parallel

enum class PdRole : uint8_t { kPrefill, kDecode };
std::string_view PdRoleName(PdRole role);  // prefill, decode

struct PdRegistration {
  PdRole role = PdRole::kPrefill;
  std::string http_address;  // host:port, as in a worker's URL; the host in lower case
  std::string zmq_address;   // as spelled
  std::optional<MoriioMode> mode = {};
  uint32_t tp_size = 1;
  uint32_t dp_size = 1;

  friend bool operator==(const PdRegistration&, const PdRegistration&) = default;
};

enum class PdMessage : uint8_t {
  kRegistration,
  kIgnored,  // HELLO, or a type of a later version
  kTooLong,
  kMalformed,
};
std::string_view PdMessageName(PdMessage message);  // a label of metrics

// `registration` is set for kRegistration.
PdMessage DecodePdMessage(std::span<const std::string> frames, PdRegistration* registration);

}  // namespace vllm_router
