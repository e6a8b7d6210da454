// Replies of the router's own endpoints, and the query parameters of their requests. Pure; any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "proxy/api/admin_reply.h"
#include "proxy/api/error_response.h"

namespace boost::json {
class value;
}

namespace vllm_router {

AdminReply JsonReply(int status, const boost::json::value& value);
AdminReply TextReply(int status, std::string text);
// In OpenAI's form. `status`, 0: the error's own.
AdminReply ErrorReply(HttpError error, std::string_view message, int status = 0);
AdminReply RejectedReply(const Status& status);  // 400 with its message

// Value of `name` in a query string, decoded; nullopt if it is absent.
StatusOr<std::optional<std::string>> QueryValue(std::string_view query, std::string_view name);

// Of a page that depends on one parameter (OwnEndpoint::detail): what names its value, and the value in it; both are empty
// if it is absent.
StatusOr<std::string> DetailOf(std::string_view query, std::string_view name);
std::optional<std::string> ValueOf(std::string_view detail);

}  // namespace vllm_router
