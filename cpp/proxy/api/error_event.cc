#include "proxy/api/error_event.h"

#include <algorithm>
#include <optional>

#include "base/text.h"
#include "proxy/api/error_response.h"
#include "routing/body_map.h"

namespace vllm_router {
namespace {

using Type = BodyMap::Type;

constexpr std::string_view kDone = "data: [DONE]\n\n";

// On one line. Between tokens a line end is a blank, and strings of JSON hold none.
std::string OnOneLine(std::string_view json) {
  std::string line(json);
  std::ranges::replace_if(
      line, [](char c) { return c == '\n' || c == '\r'; }, ' ');
  return line;
}

// The value of a member, or null.
std::string_view ValueOf(const BodyMap& object, std::string_view name) {
  const BodyMap::Member* const member = object.Find(name);
  return member != nullptr ? member->value : "null";
}

// The object with `message`: the member `error`, or all of the body, as older engines have it. nullopt: neither.
std::optional<std::string_view> ErrorIn(const BodyMap& body) {
  const BodyMap::Member* const error = body.Find("error");
  if (error != nullptr && error->type == Type::kObject) return error->value;
  const BodyMap::Member* const message = body.Find("message");
  if (message != nullptr && message->type == Type::kString) return body.body();
  return std::nullopt;
}

// The same in our words, and in the worker's where its body has a text.
std::string WorkersError(const BodyMap& body, int status) {
  std::string message = Concat("\"The worker responded with status ", status, " and no event stream.\"");
  for (const std::string_view name : {"error", "detail"}) {
    const BodyMap::Member* const text = body.Find(name);
    if (text != nullptr && text->type == Type::kString) message = text->value;
  }
  return Concat(
      R"({"message":)", message, R"(,"type":)",
      status < 500 ? R"("invalid_request_error")" : R"("server_error")", R"(,"param":null,"code":)", status,
      "}");
}

}  // namespace

bool HasEventStreams(Route route) {
  return route == Route::kChatCompletions || route == Route::kCompletions || route == Route::kGenerate ||
         route == Route::kMessages || route == Route::kResponses;
}

std::string ErrorEvent(Route route, int status, std::string_view body) {
  const BodyMap map = BodyMap::Read(body);
  const std::optional<std::string_view> found = map.ok() ? ErrorIn(map) : std::nullopt;
  const std::string error = OnOneLine(found ? *found : WorkersError(map, status));
  const BodyMap members = BodyMap::Read(error);
  if (route == Route::kMessages) {
    const bool is_anthropics = found && ValueOf(map, "type") == R"("error")";
    const std::string whole = is_anthropics
                                  ? OnOneLine(map.body())
                                  : Concat(
                                        R"({"type":"error","error":{"type":")", AnthropicType(status),
                                        R"(","message":)", ValueOf(members, "message"), "}}");
    return Concat("event: error\ndata: ", whole, "\n\n");
  }
  if (route == Route::kResponses) {
    return Concat(
        "event: error\n", R"(data: {"type":"error","code":)", ValueOf(members, "code"), R"(,"message":)",
        ValueOf(members, "message"), R"(,"param":)", ValueOf(members, "param"),
        R"(,"sequence_number":0,"error":)", error, "}\n\n");
  }
  return Concat(R"(data: {"error":)", error, "}\n\n");
}

std::string ErrorEvents(Route route, int status, std::string_view body) {
  const bool ends_by_itself = route == Route::kMessages || route == Route::kResponses;
  return Concat(ErrorEvent(route, status, body), ends_by_itself ? std::string_view() : kDone);
}

std::string WholeAsEvents(Route route, std::string_view body) {
  if (route == Route::kMessages || route == Route::kResponses || !BodyMap::Read(body).ok()) return {};
  return Concat("data: ", OnOneLine(body), "\n\n", kDone);
}

}  // namespace vllm_router
