#include "disaggregation/pair_id.h"

#include "base/text.h"

namespace vllm_router {

std::string HostAndPort(std::string_view host, uint16_t port) {
  const bool bare_ipv6 = host.find(':') != std::string_view::npos && !host.starts_with('[');
  return bare_ipv6 ? Concat("[", host, "]:", port) : Concat(host, ":", port);
}

std::string PairIdPrefix(std::string_view prefill, std::string_view decode) {
  return Concat("___prefill_addr_", prefill, "___decode_addr_", decode, "_");
}

std::string PairId(std::string_view prefill, std::string_view decode, uint64_t high, uint64_t low) {
  return Concat(PairIdPrefix(prefill, decode), Hex16(high), Hex16(low));
}

std::string PlainPairId(std::string_view client_id, uint32_t bits) {
  return Concat(client_id, "-", Hex16(bits).substr(8));
}

std::string XferId(const PairBits& bits) {
  // Version 4, variant 1 (RFC 9562).
  const std::string high = Hex16((bits.high & ~uint64_t{0xf000}) | 0x4000);
  const std::string low = Hex16((bits.low & (~uint64_t{0} >> 2)) | uint64_t{1} << 63);
  const auto part = [](const std::string& hex, size_t at, size_t size) {
    return std::string_view(hex).substr(at, size);
  };
  return Concat(
      "xfer-", part(high, 0, 8), "-", part(high, 8, 4), "-", part(high, 12, 4), "-", part(low, 0, 4), "-",
      part(low, 4, 12));
}

std::string TxId(const PairBits& bits) { return Concat("tx-", Hex16(bits.high), Hex16(bits.low)); }

}  // namespace vllm_router
