#include "conditions/condition_report.h"

#include <cmath>

#include <boost/json/object.hpp>

#include "base/text.h"

namespace vllm_router {
namespace {

// Empty: the condition is about something else.
std::string_view StateBy(ConditionKind kind) {
  switch (kind) {
    case ConditionKind::kAllReject:
    case ConditionKind::kWorkerRejects:
      return "rejects";
    case ConditionKind::kWorkerNotFound:
      return "responds_404";
    case ConditionKind::kModelFails:
      return "fails";
    case ConditionKind::kWorkerIsSlow:
      return "slow";
    case ConditionKind::kNoWorkerServes:
    case ConditionKind::kWorkerIsDown:
    case ConditionKind::kWorkerHangs:
    case ConditionKind::kWorkerEjected:
    case ConditionKind::kService:
      return "";
  }
  return "";
}

}  // namespace

std::string StatusSentence(std::span<const ActiveCondition> conditions, size_t workers) {
  if (conditions.empty())
    return workers == 1 ? "The worker serves." : Concat("All ", workers, " workers serve.");
  std::string text = conditions.front().condition.text;
  if (conditions.size() > 1) text += Concat(" And ", conditions.size() - 1, " more.");
  return text;
}

boost::json::object ConditionJson(const ActiveCondition& active) {
  const Condition& condition = active.condition;
  boost::json::object row = {
      {"condition", condition.name()},
      {"severity", condition.is_page ? "page" : "ticket"},
      {"since", std::round(active.since * 1000) / 1000},
      {"text", condition.text}};
  if (!condition.worker.empty()) row["worker"] = condition.worker;
  if (!condition.model.empty()) row["model"] = condition.model;
  return row;
}

MemberState StateOf(const FleetView::Member& member, std::span<const ActiveCondition> conditions) {
  if (!member.healthy) return {"unhealthy"};
  if (member.draining) return {"draining"};
  if (member.in_doubt) return {"hangs"};
  if (member.worker->breaker.state() == BreakerState::kOpen) return {"ejected"};
  return StateOf(member.worker->url.url, conditions);
}

MemberState StateOf(std::string_view url, std::span<const ActiveCondition> conditions) {
  for (const auto& [condition, since] : conditions) {
    const std::string_view name = StateBy(condition.kind);
    if (!name.empty() && (condition.worker.empty() || condition.worker == url))
      return {name, condition.model};
  }
  return {"serves"};
}

}  // namespace vllm_router
