// Dot segments: keeps a path inside the prefix that it is joined to. A worker at
// http://gpu-0:8000/tenant-a is meant to serve the paths under /tenant-a; `/tenant-a` +
// `/../tenant-b/x` would leave it at any worker that resolves dot segments.
//
//   path            result    resolved     why
//   /v1/a.json      kNone     -            nothing to resolve
//   /v1/./a/../b    kInside   /v1/b        RFC 3986, 5.2.4; also where a dot is spelled %2e
//   /a/../../b      kOutside  -            one level more than there is
//   /a/..%2f..%2fb  kOutside  -            for a worker that takes %2f for a separator
//
// Servers differ in what else separates segments (%2f, \, %5c), in whether they decode twice (%252e),
// and in whether they cut parameters off (`..;x`). A path is kOutside if it leaves under any
// combination of these choices; the choices are independent, so the lowest possible depth is the sum of
// the lowest per segment. A path that stays inside under every combination passes unchanged, apart from
// the plain dot segments.
//
// Cost: one search for `.`, `%` and `\` in a path without any of them; else one or two passes over the
// path. Pure; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace vllm_router {

enum class DotSegments : uint8_t {
  kNone,     // the path may be joined as it is
  kInside,   // it may be once they are resolved
  kOutside,  // it may leave what it is joined to
};

// Fills in `resolved`, if given, for kInside only. `path` has no query; a path without a leading slash
// (`*`) has no dot segments.
DotSegments ResolveDotSegments(std::string_view path, std::string* resolved = nullptr);

}  // namespace vllm_router
