#include "routing/pair_id.h"

#include "base/text.h"

namespace vllm_router {

std::string HostAndPort(std::string_view host, uint16_t port) {
  const bool bare_ipv6 = host.find(':') != std::string_view::npos && !host.starts_with('[');
  return bare_ipv6 ? Concat("[", host, "]:", port) : Concat(host, ":", port);
}

std::string PairId(std::string_view prefill, std::string_view decode, uint64_t high, uint64_t low) {
  return Concat("___prefill_addr_", prefill, "___decode_addr_", decode, "_", Hex16(high), Hex16(low));
}

std::string PlainPairId(std::string_view client_id, uint32_t bits) {
  return Concat(client_id, "-", Hex16(bits).substr(8));
}

}  // namespace vllm_router
