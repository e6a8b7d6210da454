#include "proxy/admin/discovery_report.h"

#include <boost/json.hpp>
#include <string_view>

#include "base/text.h"
#include "base/time_units.h"

namespace vllm_router {
namespace {

namespace json = boost::json;

double SecondsSince(int64_t then_ns, int64_t now_ns) {
  return static_cast<double>((now_ns - then_ns) / kNanosPerMs) / 1000;
}

}  // namespace

json::object DiscoveryReport(const WorkerRegistry& registry, int64_t now_ns) {
  json::array sources;
  for (const SourceReport& report : registry.Sources()) {
    json::object errors;
    for (const auto& [kind, count] : report.errors) errors[kind] = count;
    json::value last_list;
    if (report.last_list_ns) last_list = SecondsSince(*report.last_list_ns, now_ns);
    json::value last_error;
    if (!report.last_error.empty()) last_error = report.last_error;
    sources.push_back(json::object{
        {"source", report.name},
        {"listed", report.listed},
        {"seconds_since_list", std::move(last_list)},
        {"syncs", report.syncs},
        {"errors", std::move(errors)},
        {"last_error", std::move(last_error)},
        {"joined", report.joined},
        {"left", report.left},
        {"changed", report.changed},
        {"held", report.held}});
  }
  json::array workers;
  for (const DeclaredFleet::Row& row : registry.Rows()) {
    workers.push_back(json::object{
        {"url", row.spec.url.url},
        {"state", DeclaredFleet::StateName(row)},
        {"seconds", SecondsSince(row.since_ns, now_ns)},
        {"sources", json::array(row.owners.begin(), row.owners.end())},
        {"detail", row.spec.detail}});
  }
  return {{"sources", std::move(sources)}, {"workers", std::move(workers)}};
}

std::string AwaitedSource(const WorkerRegistry& registry) {
  for (const SourceReport& report : registry.Sources()) {
    if (report.listed) continue;
    return Concat(
        "waiting for ", report.name, report.last_error.empty() ? std::string() : ": " + report.last_error);
  }
  return {};
}

}  // namespace vllm_router
