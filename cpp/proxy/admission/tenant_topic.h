// TenantTopic: the limits of tenants among the routers of a fleet (admission/fleet_limits.h), as a topic of peer sync. Without a
// file of classes it tells and hears nothing. On the control thread; its metrics on any.
#pragma once

#include <cstdint>
#include <string>

#include "admission/fleet_limits.h"
#include "base/peer_topic.h"

namespace vllm_router {

class ClassPools;
class MetricsPage;
class TenantTable;

class TenantTopic final : public PeerTopic {
 public:
  static constexpr uint8_t kSection = 10;

  // Both outlive it.
  TenantTopic(ClassPools& pools, TenantTable& tenants) : pools_(pools), limits_(tenants) {}

  uint8_t section() const override { return kSection; }
  std::string Tell(bool full, int64_t now_ns) override;
  void Hear(const PeerWord& word, int64_t now_ns) override;
  void Turn(bool connected, uint32_t routers, int64_t now_ns) override {
    limits_.Turn(connected, routers, now_ns);
  }

  void WriteMetrics(MetricsPage* page) const;

 private:
  ClassPools& pools_;
  FleetLimits limits_;
};

}  // namespace vllm_router
