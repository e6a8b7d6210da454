// Service: work of a server other than its requests, on the control thread. The server owns a list of services, starts all
// when it serves, stops all at the end, and has each write its own metrics. A new one is one line where its feature, or
// Server::AddServices, adds those that it has (services.h).
//
//   service.cc   counts and writes:   page->Counter("polls_total", "…"); page->Add(polls_, {{"result", "ok"}});
//   a scrape     calls WriteMetrics() of each service, in the order of the list
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace vllm_router {

class MetricsPage;

class Service {
 public:
  virtual ~Service() = default;

  // All on the control thread. Stop() takes effect in one of the loop's next turns, for work in flight
  // when that ends. Once ended(), nothing of the service runs any more.
  virtual void Start() = 0;
  virtual void Stop() = 0;
  virtual bool ended() const = 0;
  // The server takes no new work, and gives what is in flight its grace period, until idle(). Before Stop().
  virtual void Drain() {}
  virtual bool idle() const { return true; }
  // Other settings (proxy/api/settings.h) are in force. Between Start() and Stop().
  virtual void FollowSettings() {}

  // Writes the families of what the service counts (proxy/telemetry/metrics_page.h). Any thread.
  virtual void WriteMetrics(MetricsPage* page) const { static_cast<void>(page); }

  // Says what is wrong with what the service does, now, in a sentence each (GET /admin/status). `name`: of the kind, in
  // metrics; `worker`: its URL, or empty. On the control thread.
  using AddCondition = std::function<void(std::string_view name, std::string_view worker, std::string text)>;
  virtual void AddConditions(const AddCondition& add) const { static_cast<void>(add); }
};

}  // namespace vllm_router
