#include "proxy/control/host_poller.h"

#include "proxy/thread/io_thread.h"
#include "routing/router.h"

namespace vllm_router {

HostPoller::HostPoller(IoThread& thread) : thread_(thread), delay_(thread.loop) {}

void HostPoller::Begin(int64_t first_ns) { Spawn(Run(first_ns)); }

void HostPoller::Stop() {
  stopped_ = true;
  delay_.Cancel();
}

int64_t HostPoller::Jittered(int64_t interval_ns) {
  return interval_ns - interval_ns / 10 +
         static_cast<int64_t>(thread_.ids.Below(static_cast<uint64_t>(interval_ns / 5 + 1)));
}

Task<void> HostPoller::Run(int64_t first_ns) {
  const UnderWay under_way(*this);
  if (first_ns > 0) co_await delay_.For(first_ns);
  while (!stopped_) {
    const std::shared_ptr<const FleetView> fleet = thread_.router->fleet();
    const int64_t next_ns = Pass(*fleet);
    co_await delay_.For(next_ns);
  }
}

HostPoller::Hosts HostPoller::HostsOf(const FleetView& fleet, Which which) {
  Hosts hosts;
  for (const FleetView::Member& member : fleet.members()) {
    if (which == Which::kAll || member.healthy) hosts[member.worker->url.base].push_back(member.worker);
  }
  return hosts;
}

}  // namespace vllm_router
