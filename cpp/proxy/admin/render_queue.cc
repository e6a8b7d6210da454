#include "proxy/admin/render_queue.h"

#include <algorithm>
#include <utility>

namespace vllm_router {

bool RenderQueue::Ask(const PageKey& page, int64_t now_ns) {
  std::deque<Waiting>& waiting = routes_[page.route].waiting;
  if (std::ranges::find(waiting, page, &Waiting::page) != waiting.end()) return true;
  if (waiting.size() >= kMaxPages) return false;
  waiting.push_back({page, now_ns});
  return true;
}

std::optional<PageKey> RenderQueue::Next(int64_t now_ns) {
  OfRoute* next = nullptr;
  const auto due = [](const OfRoute& route) {
    return route.waiting.front().asked_ns + kRest * route.cost_ns;
  };
  for (auto& [name, route] : routes_) {
    if (route.waiting.empty() || route.rests_until_ns > now_ns) continue;
    if (next == nullptr || due(route) < due(*next)) next = &route;
  }
  if (next == nullptr) return std::nullopt;
  PageKey page = std::move(next->waiting.front().page);
  next->waiting.pop_front();
  return page;
}

std::optional<int64_t> RenderQueue::next_ns() const {
  std::optional<int64_t> next;
  for (const auto& [name, route] : routes_) {
    if (!route.waiting.empty()) next = std::min(next.value_or(route.rests_until_ns), route.rests_until_ns);
  }
  return next;
}

void RenderQueue::Rendered(Route route, int64_t began_ns, int64_t ended_ns) {
  OfRoute& rendered = routes_[route];
  rendered.cost_ns = std::max<int64_t>(0, ended_ns - began_ns);
  rendered.rests_until_ns = ended_ns + std::min(kRest * rendered.cost_ns, kLongestRestNanos);
}

}  // namespace vllm_router
