// The request id that both workers of a prefill/decode pair get, and the ids of the transfer between them.
//
//   ___prefill_addr_10.0.0.1:8000___decode_addr_[fd00::2]:8000_5f0c…      32 hex digits, new for each attempt
//
// Some of vLLM's connectors read the addresses out of it, and the reference router sends it to all. Engines build the
// visible response id from it, so it shows addresses to clients; PlainPairId() does not, for connectors that read
// none. Pure; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace vllm_router {

// Which of the two a connector's workers get.
enum class PairIdForm : uint8_t {
  kEither,     // they read nothing of it
  kAddresses,  // they read the addresses
  kPlain,
};

// Random, new for each attempt.
struct PairBits {
  uint64_t high = 0;
  uint64_t low = 0;
};

// host:port, an IPv6 address in brackets.
std::string HostAndPort(std::string_view host, uint16_t port);

// `prefill`, `decode`: host:port, or what a worker registered as its ZMQ address. `high`, `low`: random bits.
std::string PairId(std::string_view prefill, std::string_view decode, uint64_t high, uint64_t low);
// What stands before the hex digits.
std::string PairIdPrefix(std::string_view prefill, std::string_view decode);

// The client's id, a hyphen and 8 hex digits of the random bits.
std::string PlainPairId(std::string_view client_id, uint32_t bits);

// xfer- and a random UUID, as NIXL push and Mooncake pair their requests.
std::string XferId(const PairBits& bits);
// tx- and 32 hex digits, as MoRI-IO does.
std::string TxId(const PairBits& bits);

}  // namespace vllm_router
