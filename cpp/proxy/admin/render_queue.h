// RenderQueue: which of the router's own pages is rendered next, and when, so that no client can make that cost more
// than a share of one thread, however many requests it sends.
//
//   GET /metrics  x 4000 ─┐ while one render runs, all that come wait for the next one, and share it
//   GET /workers  x 1     ┴▶ the renderer: one page at a time
//
//   /metrics  |render 5 ms|------ rest 20 ms ------|render|------ …       a fifth of the time at most
//   /workers          |r|                                                 between them, and alone at once
//
// A request is only ever served by a render that began after it came: pages are never old, and one reader alone waits for
// nothing. Pages of one route rest together, also those that differ by a parameter. Of routes that are due, that one is
// next whose oldest request plus its usual time is the least: a page of 1 ms is not kept waiting by one of 100 ms that
// came just before it, nor one of 100 ms for ever by many of 1 ms. At most kMaxPages of one route wait.
//
// Pure: times are passed in. Not thread-safe. Cost: O(routes) per render, O(pages that wait of the route) per request.
//
//   queue.Ask({Route::kMetrics}, now);
//   if (std::optional<PageKey> page = queue.Next(now)) { render(*page); queue.Rendered(page->route, began, ended); }
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>

#include "proxy/api/routes.h"

namespace vllm_router {

struct PageKey {
  Route route = Route::kOther;
  std::string detail = {};  // what else the page depends on; most have none

  friend auto operator<=>(const PageKey&, const PageKey&) = default;
};

class RenderQueue {
 public:
  static constexpr size_t kMaxPages = 64;  // of a route, that wait
  static constexpr int64_t kRest = 4;      // times what a render took
  static constexpr int64_t kLongestRestNanos = 5'000'000'000;

  // The page is to be rendered from now on. False: too many others of its route wait.
  bool Ask(const PageKey& page, int64_t now_ns);

  // The page to render now, which waits no more. nullopt: none is due before next_ns().
  std::optional<PageKey> Next(int64_t now_ns);
  std::optional<int64_t> next_ns() const;  // nullopt: none waits

  // REQUIRES: Next() gave a page of this route, and it has been rendered.
  void Rendered(Route route, int64_t began_ns, int64_t ended_ns);

 private:
  struct Waiting {
    PageKey page;
    int64_t asked_ns;
  };
  struct OfRoute {
    std::deque<Waiting> waiting;  // the oldest first
    int64_t cost_ns = 0;          // of the last render
    int64_t rests_until_ns = 0;
  };
  std::map<Route, OfRoute> routes_;
};

}  // namespace vllm_router
