#include "proxy/client/kv_source_report.h"

#include <algorithm>
#include <boost/json.hpp>

#include "base/text.h"

namespace vllm_router {
namespace json = boost::json;
namespace {

constexpr size_t kMaxEndpoint = 512;  // bytes

std::optional<json::object> ObjectIn(std::string_view text) {
  boost::system::error_code error;
  json::value value = json::parse(json::string_view(text.data(), text.size()), error);
  if (error || !value.is_object()) return std::nullopt;
  return std::move(value.get_object());
}

// Empty if it is absent, null, no string or too long.
std::string StringAt(const json::object& object, std::string_view name) {
  const json::value* const value = object.if_contains(json::string_view(name.data(), name.size()));
  if (value == nullptr || !value->is_string() || value->get_string().size() > kMaxEndpoint) return {};
  return std::string(value->get_string());
}

std::optional<uint64_t> NumberAt(const json::object& object, std::string_view name, uint64_t most) {
  const json::value* const value = object.if_contains(json::string_view(name.data(), name.size()));
  if (value == nullptr || !value->is_number()) return std::nullopt;
  boost::system::error_code error;
  const auto number = value->to_number<uint64_t>(error);
  if (error || number > most) return std::nullopt;
  return number;
}

}  // namespace

std::optional<std::vector<ReportedSource>> SourcesInReport(std::string_view text) {
  const std::optional<json::object> report = ObjectIn(text);
  if (!report) return std::nullopt;
  std::vector<ReportedSource> sources;
  for (const json::key_value_pair& entry : *report) {
    const std::optional<uint64_t> rank =
        ParseDecimal(std::string_view(entry.key().data(), entry.key().size()));
    if (!rank || *rank >= kMaxKvRanks || !entry.value().is_object()) continue;
    const json::object& source = entry.value().get_object();
    const json::value* const enabled = source.if_contains("enable_kv_cache_events");
    if (enabled != nullptr && enabled->is_bool() && !enabled->get_bool()) continue;
    if (const std::string publisher = StringAt(source, "publisher"); !publisher.empty() && publisher != "zmq")
      continue;
    std::string endpoint = StringAt(source, "endpoint");
    if (endpoint.empty()) continue;
    sources.push_back(
        {.rank = static_cast<uint32_t>(*rank),
         .endpoint = std::move(endpoint),
         .replay_endpoint = StringAt(source, "replay_endpoint"),
         .topic = StringAt(source, "topic")});
  }
  // "0" and "00" are one rank.
  std::ranges::stable_sort(sources, {}, &ReportedSource::rank);
  const auto same_rank = [](const ReportedSource& a, const ReportedSource& b) { return a.rank == b.rank; };
  sources.erase(std::unique(sources.begin(), sources.end(), same_rank), sources.end());
  return sources;
}

std::optional<std::vector<ReportedSource>> SourcesInServerInfo(std::string_view text) {
  const std::optional<json::object> info = ObjectIn(text);
  if (!info) return std::nullopt;
  const json::value* const events = info->if_contains("kv_events");
  if (events == nullptr || !events->is_object()) return std::nullopt;
  const json::object& told = events->get_object();
  if (const std::string publisher = StringAt(told, "publisher"); !publisher.empty() && publisher != "zmq")
    return std::nullopt;
  const std::optional<uint64_t> base = NumberAt(told, "endpoint_port_base", 65'535);
  if (!base || *base == 0) return std::nullopt;
  const std::string host = StringAt(told, "endpoint_host");
  const uint64_t ranks = std::max<uint64_t>(1, NumberAt(told, "dp_size", kMaxKvRanks).value_or(1));
  const std::optional<uint64_t> replay = NumberAt(told, "replay_endpoint_port_base", 65'535);
  std::vector<ReportedSource> sources;
  for (uint64_t rank = 0; rank < ranks && *base + rank <= 65'535; ++rank) {
    const std::string address = Concat("tcp://", host.empty() ? std::string("*") : host, ":");
    sources.push_back(
        {.rank = static_cast<uint32_t>(rank),
         .endpoint = Concat(address, *base + rank),
         .replay_endpoint = replay.value_or(0) != 0 && *replay + rank <= 65'535
                                ? Concat(address, *replay + rank)
                                : std::string(),
         .topic = StringAt(told, "topic")});
  }
  return sources;
}

std::vector<std::string> BaseModelsIn(std::string_view text) {
  std::vector<std::string> names;
  const std::optional<json::object> report = ObjectIn(text);
  if (!report) return names;
  const json::value* const models = report->if_contains("data");
  if (models == nullptr || !models->is_array()) return names;
  for (const json::value& model : models->get_array()) {
    if (!model.is_object() || names.size() == kMaxReportedModels) continue;
    const json::value* const parent = model.get_object().if_contains("parent");
    if (parent != nullptr && !parent->is_null()) continue;
    if (std::string id = StringAt(model.get_object(), "id"); !id.empty()) names.push_back(std::move(id));
  }
  return names;
}

}  // namespace vllm_router
