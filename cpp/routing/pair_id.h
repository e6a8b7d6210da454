// The request id that both workers of a prefill/decode pair get.
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

// host:port, an IPv6 address in brackets.
std::string HostAndPort(std::string_view host, uint16_t port);

// `prefill`, `decode`: host:port. `high`, `low`: random bits.
std::string PairId(std::string_view prefill, std::string_view decode, uint64_t high, uint64_t low);

// The client's id, a hyphen and 8 hex digits of the random bits.
std::string PlainPairId(std::string_view client_id, uint32_t bits);

}  // namespace vllm_router
