#include "proxy/admin/replies.h"

#include <utility>

#include <boost/json.hpp>

#include "base/text.h"
#include "http/query.h"
#include "proxy/api/json_text.h"

namespace vllm_router {
namespace json = boost::json;

AdminReply JsonReply(int status, const json::value& value) {
  return {.status = status, .body = JsonText(value)};
}

AdminReply TextReply(int status, std::string text) {
  return {.status = status, .body = std::move(text), .content_type = "text/plain; charset=utf-8"};
}

AdminReply ErrorReply(HttpError error, std::string_view message, int status) {
  const ErrorRow& row = ErrorOf(error);
  return {
      .status = status != 0 ? status : row.status,
      .body = ErrorBody(message, row.type, row.code),
      .error_code = row.code};
}

AdminReply RejectedReply(const Status& status) {
  return ErrorReply(HttpError::kInvalidArgument, std::string(status.message()));
}

StatusOr<std::optional<std::string>> QueryValue(std::string_view query, std::string_view name) {
  std::optional<std::string> value;
  while (const std::optional<QueryPair> pair = TakeQueryPair(&query)) {
    if (pair->name != name || !pair->value) continue;
    if (value.has_value()) {
      return absl::InvalidArgumentError(Concat("The query parameter '", name, "' is given more than once"));
    }
    value = PercentDecoded(*pair->value, true);
    if (!value.has_value()) {
      return absl::InvalidArgumentError(Concat(
          "The query parameter '", name, "' is ", Quoted(*pair->value),
          ", which has a '%' without two hexadecimal digits"));
    }
  }
  return value;
}

StatusOr<std::string> DetailOf(std::string_view query, std::string_view name) {
  const StatusOr<std::optional<std::string>> value = QueryValue(query, name);
  if (!value.ok()) return value.status();
  return value->has_value() ? Concat(name, "=", **value) : std::string();
}

std::optional<std::string> ValueOf(std::string_view detail) {
  if (detail.empty()) return std::nullopt;
  return std::string(detail.substr(detail.find('=') + 1));
}

}  // namespace vllm_router
