// The events of GET /dashboard/events as text, as docs/reference/http_api.md describes them. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "conditions/condition_report.h"
#include "conditions/recent_outcomes.h"
#include "proxy/dashboard/fleet_history.h"
#include "receipts/receipt_log.h"
#include "worker/fleet_view.h"

namespace vllm_router {

// event: <name>, data: <json>, and an empty line. REQUIRES: no line break in `json`.
std::string EventText(std::string_view name, std::string_view json);

// What does not change while the server runs.
struct DashboardFacts {
  std::string_view version;
  std::string router;  // its name among others
  std::string policy;
  double started = 0;  // Unix time, seconds
  bool has_receipts = true;
  uint64_t queue_limit = 0;
};
// `more`: members of other features, as JSON without its braces; may be empty.
std::string HelloEvent(const DashboardFacts& facts, const FleetHistory& history, std::string_view more);

// One worker as a JSON object. `outcomes` may be null; `cached`: its share of prompt tokens, of the last minute.
std::string WorkerRow(
    const FleetView::Member& member, const WorkerOutcomes* outcomes, std::optional<double> cached,
    std::span<const ActiveCondition> conditions);
// All workers, in the order of the fleet.
std::string FleetEvent(std::span<const std::string> rows);

struct DashboardTick {
  std::span<const ActiveCondition> conditions;
  size_t workers = 0;
  int64_t in_flight = 0;
  uint64_t shown = 0;    // receipts of this second
  uint64_t skipped = 0;  // those that are not
};
// `rows`: of workers that have changed since the last tick.
std::string TickEvent(
    const DashboardTick& tick, const FleetHistory& history, std::span<const std::string_view> rows);

std::string ReceiptEvent(const ReceiptLog::Row& row);

}  // namespace vllm_router
