// FanOutPaths: paths of requests that concern the state of every worker: its cache, its weights, its
// adapters, its profiler, its sleep state. Sent to one worker, `/flush_cache` would leave stale entries
// in all others and still return 200.
//
//   /flush_cache          and /v1/flush_cache           with or without /v1
//   /update_weights*      any path with this prefix     a star at the end
//   /%66lush_cache        the same                      as a worker decodes it
//
// GET and HEAD of a path that the operator adds go to one worker, since there they read; an entry `GET /own` sends
// those, too, to all.
//
// Cost: a few comparisons for a path that matches no other route. Immutable; any thread.
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
  // The known paths of engines, and `more`, each of which may end in a star, and begin with "GET ".
  explicit FanOutPaths(std::span<const std::string> more);

  bool Contains(std::string_view path, std::string_view method) const;

  // Whether some server may take this spelling for one of them, or for /metrics: `/flush_cache/`,
  // `//flush_cache`, `/x/../flush_cache`, `/flush_cache;a`. Sent to one worker, it would bypass the
  // admin key.
  bool Resembles(std::string_view path) const;

  // Whether the request removes every prompt from the worker's cache.
  static bool EmptiesCache(std::string_view path);

 private:
  struct Patterns {
    void Add(std::string_view path);
    bool Match(std::string_view path) const;  // with or without /v1

    std::set<std::string, std::less<>> paths;
    std::vector<std::string> prefixes;
  };

  Patterns all_;
  Patterns of_get_;  // those of them that GET and HEAD have, too
};

}  // namespace vllm_router
