#include "proxy/control/services.h"

#include <algorithm>

namespace vllm_router {

void Services::Start() const {
  for (const std::unique_ptr<Service>& service : all_) service->Start();
}

void Services::Drain() const {
  for (const std::unique_ptr<Service>& service : all_) service->Drain();
}

bool Services::idle() const {
  return std::ranges::all_of(all_, [](const auto& service) { return service->idle(); });
}

void Services::Stop() {
  stopped_ = true;
  for (const std::unique_ptr<Service>& service : all_) service->Stop();
}

bool Services::ended() const {
  return std::ranges::all_of(all_, [](const auto& service) { return service->ended(); });
}

void Services::FollowSettings() const {
  if (stopped_) return;
  for (const std::unique_ptr<Service>& service : all_) service->FollowSettings();
}

void Services::WriteMetrics(MetricsPage* page) const {
  for (const std::unique_ptr<Service>& service : all_) service->WriteMetrics(page);
  for (const auto& write : writers_) write(page);
}

void Services::AddConditions(const Service::AddCondition& add) const {
  for (const std::unique_ptr<Service>& service : all_) service->AddConditions(add);
}

}  // namespace vllm_router
