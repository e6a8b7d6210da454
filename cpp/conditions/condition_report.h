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

namespace boost::json {
class object;
}

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

// As GET /admin/status and the dashboard show it.
boost::json::object ConditionJson(const ActiveCondition& active);

// What a worker does to the requests of clients.
struct MemberState {
  // Of the fleet: draining, hangs, ejected, unhealthy. Else by its worst condition: rejects, responds_404, fails, slow. Else
  // serves.
  std::string_view name;
  std::string_view model = {};  // of fails: the model alone that does; is of the condition
};
// `conditions`: the worst first.
MemberState StateOf(const FleetView::Member& member, std::span<const ActiveCondition> conditions);
// The same by the URL of a worker that the fleet takes to serve.
MemberState StateOf(std::string_view url, std::span<const ActiveCondition> conditions);

}  // namespace vllm_router
