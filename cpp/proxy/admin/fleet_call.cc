#include "proxy/admin/fleet_call.h"

#include <charconv>
#include <utility>

#include <boost/json.hpp>

#include "base/text.h"
#include "proxy/admin/replies.h"
#include "routing/json_scanner.h"

namespace vllm_router {
namespace json = boost::json;
namespace {

StatusOr<std::optional<double>> NumberInQuery(std::string_view query, std::string_view name) {
  const StatusOr<std::optional<std::string>> text = QueryValue(query, name);
  if (!text.ok()) return text.status();
  if (!text->has_value()) return std::optional<double>();
  const std::string& digits = **text;
  const char* const end = digits.data() + digits.size();
  double number = 0;
  const auto [stop, error] = std::from_chars(digits.data(), end, number);
  if (error == std::errc() && stop == end) return std::optional(number);
  return absl::InvalidArgumentError(
      Concat("The query parameter '", name, "' is ", Quoted(digits), "; it must be a number such as 2.5."));
}

StatusOr<FleetCall> CallInQuery(std::string_view query) {
  StatusOr<std::optional<std::string>> url = QueryValue(query, "url");
  if (!url.ok() || url->value_or("").empty()) {
    return absl::InvalidArgumentError(Concat(
        url.ok() ? std::string("The query parameter 'url' is missing") : std::string(url.status().message()),
        "; write for example ?url=http://gpu-0:8000."));
  }
  const StatusOr<std::optional<double>> weight = NumberInQuery(query, "weight");
  if (!weight.ok()) return weight.status();
  const StatusOr<std::optional<double>> timeout = NumberInQuery(query, "timeout_secs");
  if (!timeout.ok()) return timeout.status();
  const StatusOr<std::optional<double>> wait = NumberInQuery(query, "wait");
  if (!wait.ok()) return wait.status();
  return FleetCall{**std::move(url), weight->value_or(1.0), *timeout, *wait};
}

StatusOr<std::optional<double>> NumberInBody(const json::object& object, std::string_view name) {
  const json::value* given = object.if_contains(name);
  if (given == nullptr) return std::optional<double>();
  boost::system::error_code error;
  const double number = given->to_number<double>(error);
  if (!error) return std::optional(number);
  return absl::InvalidArgumentError(Concat("'", name, "' must be a number"));
}

StatusOr<WorkerRole> RoleInBody(const json::object& object) {
  WorkerRole role;
  if (const json::value* type = object.if_contains("worker_type"); type != nullptr && !type->is_null()) {
    const std::optional<Stage> stage =
        type->is_string() ? StageByName(std::string_view(type->as_string())) : std::nullopt;
    if (!stage) return absl::InvalidArgumentError("'worker_type' must be one of regular, prefill, decode");
    role.stage = *stage;
  }
  if (const json::value* port = object.if_contains("bootstrap_port"); port != nullptr && !port->is_null()) {
    boost::system::error_code error;
    const auto number = port->to_number<uint16_t>(error);
    if (error || number == 0) {
      return absl::InvalidArgumentError("'bootstrap_port' must be a whole number between 1 and 65535");
    }
    role.bootstrap_port = number;
  }
  // Without it the worker would be a partner of all.
  for (const std::string_view mistake : {"kv-group", "kvgroup", "kvGroup", "KV_GROUP"}) {
    if (object.contains(mistake))
      return absl::InvalidArgumentError(Concat("'", mistake, "' is not known; did you mean 'kv_group'?"));
  }
  if (const json::value* group = object.if_contains("kv_group"); group != nullptr && !group->is_null()) {
    if (!group->is_string()) return absl::InvalidArgumentError("'kv_group' must be a string");
    role.kv_group = group->as_string();
  }
  return role;
}

}  // namespace

StatusOr<FleetCall> CallInBody(std::string_view body) {
  boost::system::error_code error;
  const json::value parsed = json::parse(WithoutByteOrderMark(body), error);
  const json::object* object = error ? nullptr : parsed.if_object();
  const json::value* url = object == nullptr ? nullptr : object->if_contains("url");
  if (url == nullptr || !url->is_string()) {
    return absl::InvalidArgumentError(
        R"(the body must be a JSON object with a string member 'url', for example {"url": "http://gpu-0:8000"})");
  }
  const StatusOr<std::optional<double>> weight = NumberInBody(*object, "weight");
  if (!weight.ok()) return weight.status();
  const StatusOr<std::optional<double>> timeout = NumberInBody(*object, "timeout_secs");
  if (!timeout.ok()) return timeout.status();
  const StatusOr<std::optional<double>> wait = NumberInBody(*object, "wait");
  if (!wait.ok()) return wait.status();
  const StatusOr<WorkerRole> role = RoleInBody(*object);
  if (!role.ok()) return role.status();
  return FleetCall{std::string(url->as_string()), weight->value_or(1.0), *timeout, *wait, *role};
}

StatusOr<FleetCall> QueryElseBody(const AdminRequest& request) {
  return request.query.empty() ? CallInBody(request.body) : CallInQuery(request.query);
}

StatusOr<FleetCall> ReadCall(const AdminRequest& request) {
  return request.query.empty() && !request.body.empty() ? CallInBody(request.body)
                                                        : CallInQuery(request.query);
}

}  // namespace vllm_router
