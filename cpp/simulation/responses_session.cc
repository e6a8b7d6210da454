#include "simulation/responses_session.h"

#include <simdjson.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/text.h"

namespace vllm_router {

namespace dom = simdjson::dom;

namespace {

void AppendItem(std::string_view item, std::string* items) {
  if (item.empty()) return;
  if (!items->empty()) items->append(",");
  items->append(item);
}

// False: it is neither a text nor a list.
bool AppendInput(dom::element input, std::string* items) {
  std::string_view text;
  if (input.get(text) == simdjson::SUCCESS) {
    AppendItem(Concat(R"({"role":"user","content":)", JsonQuoted(text), "}"), items);
    return true;
  }
  dom::array list;
  if (input.get(list) != simdjson::SUCCESS) return false;
  for (const dom::element item : list) AppendItem(simdjson::minify(item), items);
  return true;
}

}  // namespace

StatusOr<std::string> ResponsesSession::Expand(std::string_view message) {
  dom::parser parser;
  dom::object object;
  std::string_view type;
  const auto error = parser.parse(message.data(), message.size()).get(object);
  if (error != simdjson::SUCCESS || object.at_key("type").get(type) != simdjson::SUCCESS ||
      type != "response.create") {
    return absl::InvalidArgumentError(
        "The message must be a JSON object whose \"type\" is \"response.create\".");
  }
  std::string_view previous;
  const bool continues = object.at_key("previous_response_id").get(previous) == simdjson::SUCCESS;
  if (continues && (previous != id_ || id_.empty())) {
    return absl::NotFoundError(Concat(
        "Previous response with id ", Quoted(previous), " not found: this connection's last one is ",
        id_.empty() ? "none" : Quoted(id_), ". Send the whole input without previous_response_id."));
  }
  pending_ = continues ? items_ : "";
  constexpr std::array<std::string_view, 3> kLeftOut = {"type", "previous_response_id", "stream"};
  std::string input;
  StatusOr<std::string> body = WithItemsBefore(message, pending_, kLeftOut, &input);
  if (!body.ok()) return body.status();
  AppendItem(input, &pending_);
  return Concat(R"({"stream":true,)", body->substr(1));
}

StatusOr<std::string> WithItemsBefore(
    std::string_view body, std::string_view before, std::span<const std::string_view> left_out,
    std::string* input) {
  dom::parser parser;
  dom::object object;
  if (parser.parse(body.data(), body.size()).get(object) != simdjson::SUCCESS)
    return absl::InvalidArgumentError("The body must be a JSON object.");
  std::string rest;
  for (const auto& [key, value] : object) {
    if (key == "input") {
      if (!AppendInput(value, input))
        return absl::InvalidArgumentError("`input` must be a text or a list of items.");
    } else if (std::ranges::find(left_out, key) == left_out.end()) {
      rest += Concat(",", JsonQuoted(key), ":", std::string(simdjson::minify(value)));
    }
  }
  std::string items(before);
  AppendItem(*input, &items);
  return Concat(R"({"input":[)", items, "]", rest, "}");
}

void ResponsesSession::Complete(std::string_view id, std::string_view items) {
  id_ = id;
  items_ = std::exchange(pending_, "");
  AppendItem(items, &items_);
}

void WriteSessionError(const Status& status, std::string* out) {
  const bool unknown = absl::IsNotFound(status) && status.message().substr(0, 8) == "Previous";
  out->append(Concat(
      R"({"type":"error","status":400,"error":{"type":"invalid_request_error","code":)",
      unknown ? R"("previous_response_not_found")" : "null", R"(,"message":)",
      JsonQuoted(std::string_view(status.message().data(), status.message().size())), R"(,"param":)",
      unknown ? R"("previous_response_id")" : "null", "}}"));
}

}  // namespace vllm_router
