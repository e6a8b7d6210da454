// FanOutPaths: the paths of requests that concern what every worker holds: its cache, its weights, its adapters, its
// profiler, whether it sleeps. Sent to one worker, `/flush_cache` would leave stale entries in all others and still say 200.
//
//   /flush_cache          and /v1/flush_cache       with or without /v1
//   /update_weights*      any path that begins so   a star at the end
//   /%66lush_cache        the same                  as a worker decodes it
//
// Cost: a few comparisons for a path that no other route knows. Immutable; any thread.
#pragma once

#include <functional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace vllm_router {

class FanOutPaths {
 public:
  // Those that engines are known to have, and `more`, each of which may end in a star.
  explicit FanOutPaths(std::span<const std::string> more);

  bool Contains(std::string_view path) const;

  // Whether some server may take it for one of them, or for /metrics, though it is spelled otherwise: `/flush_cache/`,
  // `//flush_cache`, `/x/../flush_cache`, `/flush_cache;a`. Sent to one worker, it would get past the admin's key.
  bool Resembles(std::string_view path) const;

  // Whether a worker that did it holds no prompt any more.
  static bool EmptiesCache(std::string_view path);

 private:
  bool Matches(std::string_view path) const;

  std::set<std::string, std::less<>> paths_;
  std::vector<std::string> prefixes_;
};

}  // namespace vllm_router
