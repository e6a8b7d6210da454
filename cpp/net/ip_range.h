// IpRange: the IP addresses that share their first bits, as CIDR writes them.
//
//   10.0.0.0/8    fd00::/8    10.0.0.7
//
// An IPv4 address within IPv6 (::ffff:10.0.0.7) is that IPv4 address. A value; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "base/status.h"

namespace vllm_router {

class IpRange {
 public:
  // InvalidArgument names the option and the form. Bits behind the first ones may be set.
  static StatusOr<IpRange> Parse(std::string_view option, std::string_view text);

  // False also for a text that is no IP address, such as a name.
  bool Contains(std::string_view address) const;

 private:
  using Bytes = std::array<uint8_t, 16>;  // IPv4 as ::ffff:a.b.c.d

  // `is_dotted`: written as IPv4.
  static bool Read(std::string_view address, Bytes* bytes, bool* is_dotted);
  static bool IsIpv4(const Bytes& bytes);

  Bytes first_{};
  uint32_t bits_ = 0;  // of first_ that count
  bool is_ipv4_ = false;
};

}  // namespace vllm_router
