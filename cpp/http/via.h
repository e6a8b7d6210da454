// Via: the proxies that a request has passed through, so that a routing loop is detected (RFC 9110,
// 7.6.3).
//
//   Via: 1.1 nginx, 1.1 vllm-router-0f3ac2d4415be697      protocol, and the name of the hop
//
// Every router has a unique name, drawn at random when it starts, and appends it to what it sends: its
// own name in a received request means a loop. Proxies between may not remove it. Cost: none for a
// request without Via. Pure; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace vllm_router {

// Loops through routers that drop or forge Via end here; a legitimate chain of routers is far shorter.
inline constexpr int kMaxRouterHops = 10;

struct Hops {
  bool own = false;  // `own_name` is among them
  int routers = 0;   // vllm-routers of any name
};

// `values`: of all Via fields of a request. Names are compared without regard to case, comments are skipped.
Hops ReadVia(std::span<const std::string_view> values, std::string_view own_name);

// "vllm-router-" and 16 hex digits.
std::string HopName(uint64_t random);

}  // namespace vllm_router
