// ConditionReport: the conditions that hold now, for who need not know how they were found. A server offers one (Services).
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "conditions/conditions.h"
#include "worker/fleet_view.h"

namespace vllm_router {

struct ActiveCondition {
  Condition condition;
  double since = 0;  // Unix time, seconds
};

class ConditionReport {
 public:
  // The worst first. Any thread.
  virtual std::shared_ptr<const std::vector<ActiveCondition>> Report() const = 0;
  // Judges again what is so now, for whom the next look is too late. On the control thread.
  virtual void Look() = 0;

 protected:
  ~ConditionReport() = default;
};

// The first of them and how many more there are, or that all workers serve.
std::string StatusSentence(std::span<const ActiveCondition> conditions, size_t workers);

// serves, draining, hangs, ejected, unhealthy.
std::string_view WorkerStateName(const FleetView::Member& member);

}  // namespace vllm_router
