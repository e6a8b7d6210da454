#include "conditions/condition_report.h"

#include "base/text.h"

namespace vllm_router {

std::string StatusSentence(std::span<const ActiveCondition> conditions, size_t workers) {
  if (conditions.empty())
    return workers == 1 ? "The worker serves." : Concat("All ", workers, " workers serve.");
  std::string text = conditions.front().condition.text;
  if (conditions.size() > 1) text += Concat(" And ", conditions.size() - 1, " more.");
  return text;
}

std::string_view WorkerStateName(const FleetView::Member& member) {
  if (!member.healthy) return "unhealthy";
  if (member.draining) return "draining";
  if (member.in_doubt) return "hangs";
  return member.worker->breaker.state() == BreakerState::kOpen ? "ejected" : "serves";
}

}  // namespace vllm_router
