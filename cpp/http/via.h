// Via: which proxies a request has passed through, so that one that goes round in a circle is found (RFC 9110, 7.6.3).
//
//   Via: 1.1 nginx, 1.1 vllm-router-0f3ac2d4415be697      protocol, and the name that the hop goes by
//
// Every router has a name of its own, drawn when it starts, and appends it to what it sends: its own name in what it
// receives means a circle. Proxies between may not take it away. Cost: none where a request has no Via. Pure; any
// thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace vllm_router {

// Circles through routers that drop Via, or forge it, end here; a chain of honest routers is far shorter.
inline constexpr int kMaxRouterHops = 10;

struct Hops {
  bool own = false;  // `own_name` is among them
  int routers = 0;   // vllm-routers, of whatever name
};

// `values`: of all Via fields of a request. Names are compared without regard to case, comments are skipped.
Hops ReadVia(std::span<const std::string_view> values, std::string_view own_name);

// "vllm-router-" and 16 hex digits.
std::string HopName(uint64_t random);

}  // namespace vllm_router
