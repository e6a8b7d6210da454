#include "proxy/dashboard/dashboard_events.h"

#include <cmath>
#include <utility>

#include <boost/json.hpp>

#include "base/text.h"
#include "proxy/api/json_text.h"
#include "receipts/receipt_json.h"

namespace vllm_router {
namespace json = boost::json;
namespace {

// To so many places, as pages show no more.
json::value Rounded(const std::optional<double>& value, double places) {
  if (!value) return nullptr;
  return std::round(*value * places) / places;
}

constexpr double kThousandths = 1'000;
constexpr double kTenths = 10;

json::array PointOf(const FleetHistory::Point& point) {
  return {
      Rounded(point.t, kThousandths),
      Rounded(point.requests, kTenths),
      Rounded(point.p50_ms, kTenths),
      Rounded(point.p95_ms, kTenths),
      Rounded(point.cached, kThousandths),
      Rounded(point.expected, kThousandths),
      point.waiting};
}

json::object FactsOf(const DashboardTick& tick, const FleetHistory::Facts& facts) {
  return {
      {"requests", facts.requests},
      {"failed", facts.failed},
      {"retried", facts.retried},
      {"in_flight", tick.in_flight},
      {"p99_ms", Rounded(facts.p99_ms, kTenths)},
      {"overhead_us", Rounded(facts.overhead_us, kTenths)},
      {"reporting", Rounded(facts.reporting, kThousandths)},
      {"longest_wait_ms", Rounded(facts.longest_wait_ms, kTenths)}};
}

std::optional<double> MsOf(int64_t nanos) {
  return nanos == 0 ? std::nullopt : std::optional(static_cast<double>(nanos) / 1e6);
}

std::string Joined(std::string_view open, std::span<const std::string_view> rows) {
  std::string text(open);
  for (const std::string_view row : rows) {
    if (text.size() > open.size()) text += ',';
    text += row;
  }
  text += "]}";
  return text;
}

}  // namespace

std::string EventText(std::string_view name, std::string_view json) {
  return Concat("event: ", name, "\ndata: ", json, "\n\n");
}

std::string HelloEvent(const DashboardFacts& facts, const FleetHistory& history, std::string_view more) {
  json::array points;
  points.reserve(history.points().size());
  for (const FleetHistory::Point& point : history.points()) points.push_back(PointOf(point));
  const json::object hello = {{"version", facts.version},       {"router", facts.router},
                              {"policy", facts.policy},         {"started", facts.started},
                              {"receipts", facts.has_receipts}, {"queue_limit", facts.queue_limit},
                              {"history", std::move(points)}};
  std::string text = JsonText(hello);
  text.pop_back();
  return EventText("hello", Concat(text, more.empty() ? "" : ",", more, "}"));
}

std::string WorkerRow(
    const FleetView::Member& member, const WorkerOutcomes* outcomes, std::optional<double> cached,
    std::span<const ActiveCondition> conditions) {
  const Worker& worker = *member.worker;
  const Outcomes all = outcomes != nullptr ? SumOf(outcomes->models) : Outcomes();
  json::object row = {
      {"id", static_cast<uint32_t>(worker.id)},
      {"url", worker.url.url},
      {"state", StateOf(member, conditions).name},
      {"open", worker.load.open_requests()},
      {"queued", worker.load.queued_prefill()},
      {"p50_ms", Rounded(MsOf(all.stream_heads.Quantile(0.5)), kTenths)},
      {"p95_ms", Rounded(MsOf(all.stream_heads.Quantile(0.95)), kTenths)},
      {"cached", Rounded(cached, kThousandths)},
      {"attempts", all.attempts()},
      {"errors", all.failed()}};
  if (worker.stage != Stage::kAll) row["stage"] = StageName(worker.stage);
  return JsonText(row);
}

std::string FleetEvent(std::span<const std::string> rows) {
  const std::vector<std::string_view> views(rows.begin(), rows.end());
  return EventText("fleet", Joined("{\"workers\":[", views));
}

std::string TickEvent(
    const DashboardTick& tick, const FleetHistory& history, std::span<const std::string_view> rows) {
  json::array conditions;
  for (const ActiveCondition& each : tick.conditions) conditions.push_back(ConditionJson(each));
  const json::object said = {
      {"sentence", StatusSentence(tick.conditions, tick.workers)},
      {"point", PointOf(history.points().back())},
      {"facts", FactsOf(tick, history.facts())},
      {"conditions", std::move(conditions)},
      {"receipts", {{"shown", tick.shown}, {"skipped", tick.skipped}}}};
  std::string text = JsonText(said);
  text.pop_back();
  return EventText("tick", Joined(text + ",\"workers\":[", rows));
}

std::string ReceiptEvent(const ReceiptLog::Row& row) { return EventText("receipt", ReceiptJson(row)); }

}  // namespace vllm_router
