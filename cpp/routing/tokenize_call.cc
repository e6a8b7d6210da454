#include "routing/tokenize_call.h"

#include <array>
#include <cstring>
#include <limits>
#include <utility>

#include "base/text.h"
#include "routing/json_reading.h"
#include "routing/json_scanner.h"
#include "routing/request_fields.h"
#include "routing/request_view.h"

namespace vllm_router {
namespace {

namespace ondemand = json::ondemand;
using ondemand::json_type;

// The members of a chat that vLLM's /tokenize supports, and the values it assumes for a prompt.
constexpr std::array<std::string_view, 10> kChatMembers = {
    "model",
    "messages",
    "tools",
    "chat_template",
    "chat_template_kwargs",
    "add_generation_prompt",
    "continue_final_message",
    "add_special_tokens",
    "mm_processor_kwargs",
    "media_io_kwargs"};
constexpr std::array<std::string_view, 2> kTokenizeMembers = {"model", "add_special_tokens"};
constexpr std::string_view kGeneration = "add_generation_prompt";

// The value as written in the body; nullopt when it is malformed.
std::optional<std::string_view> Raw(ondemand::value& value, const char* end) {
  const std::optional<json_type> type = json::TypeOf(value);
  if (type == json_type::object) {
    ondemand::object object;
    if (value.get_object().get(object) != simdjson::SUCCESS) return std::nullopt;
    return json::ReadRaw(object, end);
  }
  if (type == json_type::array) {
    ondemand::array array;
    if (value.get_array().get(array) != simdjson::SUCCESS) return std::nullopt;
    return json::ReadRaw(array, end);
  }
  return type ? json::ReadToken(value) : std::string_view();
}

// A string, or the first of a list of strings; empty for any other value, nullopt when it is malformed.
std::optional<std::string_view> RawPrompt(ondemand::value& value, const char* end) {
  const std::optional<json_type> type = json::TypeOf(value);
  if (type == json_type::string) return json::ReadToken(value);
  std::string_view raw;
  if (type != json_type::array) return raw;
  ondemand::array array;
  if (value.get_array().get(array) != simdjson::SUCCESS) return std::nullopt;
  bool is_first = true;
  const bool whole = json::ForEachElement(array, end, [&](ondemand::value& text) {
    if (std::exchange(is_first, false) && json::TypeOf(text) == json_type::string)
      raw = json::ReadToken(text);
    return true;
  });
  if (!whole) return std::nullopt;
  return raw;
}

void AddMember(std::string_view name, std::string_view raw, std::string* call) {
  call->append(call->empty() ? "{\"" : ",\"").append(name).append("\":").append(raw);
}

// The prompt's member, as RoutingTextReader ranks them; the larger the better, 0: none.
int RankOf(std::string_view name) {
  return name == "input" ? 3 : name == "prompt" ? 2 : name == "text" ? 1 : 0;
}

}  // namespace

std::optional<std::string> WriteTokenizeCall(std::string_view body, bool padded, TokenCall call_form) {
  body = WithoutByteOrderMark(body);
  if (body.empty() || body.size() > kMaxParsedBodyBytes) return std::nullopt;
  if (TokenEndpointOf(call_form) != 0) return std::string(body);
  const bool is_chat = call_form == TokenCall::kChat;
  std::string copy;
  if (!padded) {
    copy.reserve(body.size() + kBodyPadding);
    copy.append(body).append(kBodyPadding, ' ');
    body = {copy.data(), body.size()};
  }
  ondemand::parser parser;
  ondemand::document document;
  ondemand::object object;
  const simdjson::padded_string_view text(body.data(), body.size(), body.size() + kBodyPadding);
  if (parser.iterate(text).get(document) != simdjson::SUCCESS) return std::nullopt;
  if (document.get_object().get(object) != simdjson::SUCCESS) return std::nullopt;

  std::array<std::string_view, kChatMembers.size()> found;
  std::string_view prompt;
  int rank = 0;
  const char* const end = body.data() + body.size();
  // False when the value is malformed.
  const auto keep = [end](ondemand::value& value, std::string_view* raw) {
    const std::optional<std::string_view> read = Raw(value, end);
    if (read) *raw = *read;
    return read.has_value();
  };
  const bool whole = json::ForEachMember(object, end, [&](std::string_view name, ondemand::value& value) {
    if (is_chat) {
      for (size_t i = 0; i < kChatMembers.size(); ++i) {
        if (name == kChatMembers[i]) return keep(value, &found[i]);
      }
      return true;
    }
    for (size_t i = 0; i < kTokenizeMembers.size(); ++i) {
      if (name == kTokenizeMembers[i]) return keep(value, &found[i]);
    }
    if (const int own = RankOf(name); own != 0 && own >= rank) {
      const std::optional<std::string_view> raw = RawPrompt(value, end);
      if (!raw) return false;
      if (!raw->empty()) {
        prompt = *raw;
        rank = own;
      }
    }
    return true;
  });
  // At the end there is no location: anything else means that bytes follow the object.
  if (!whole || document.current_location().error() != simdjson::OUT_OF_BOUNDS) return std::nullopt;

  std::string call;
  if (!is_chat) {
    if (prompt.empty()) return std::nullopt;
    for (size_t i = 0; i < kTokenizeMembers.size(); ++i) {
      if (!found[i].empty()) AddMember(kTokenizeMembers[i], found[i], &call);
    }
    AddMember("prompt", prompt, &call);
    return call += '}';
  }
  if (found[1].empty()) return std::nullopt;
  bool generates = false;
  for (size_t i = 0; i < kChatMembers.size(); ++i) {
    if (found[i].empty()) continue;
    generates |= kChatMembers[i] == kGeneration;
    AddMember(kChatMembers[i], found[i], &call);
  }
  if (!generates) AddMember(kGeneration, "true", &call);
  return call += '}';
}

TokenizeFault FaultOf(int status, std::string_view body) {
  simdjson::dom::parser parser;
  const auto error = parser.parse(body.data(), body.size()).at_key("error");
  const auto says = [&error](std::string_view member, std::string_view value) {
    std::string_view text;
    return error.at_key(member).get(text) == simdjson::SUCCESS && text == value;
  };
  switch (status) {
    case 400:
    case 401:
    case 413:
    case 422:
      return TokenizeFault::kRequest;
    case 403:
      return says("type", "PermissionDeniedError") ? TokenizeFault::kEndpoint : TokenizeFault::kRequest;
    case 404:
      return error.error() == simdjson::SUCCESS && !says("message", "Not Found") ? TokenizeFault::kRequest
                                                                                 : TokenizeFault::kEndpoint;
    case 405:
    case 501:
      return TokenizeFault::kEndpoint;
    default:
      return TokenizeFault::kWorker;
  }
}

StatusOr<std::vector<uint32_t>> ParseTokenizeResponse(std::string_view answer) {
  // The whole text is checked, unread values included.
  simdjson::dom::parser parser;
  simdjson::dom::object object;
  if (parser.parse(answer.data(), answer.size()).get(object) != simdjson::SUCCESS) {
    return absl::FailedPreconditionError("the response is not one JSON object");
  }
  std::optional<simdjson::dom::array> tokens;
  std::optional<uint64_t> count;
  for (const simdjson::dom::key_value_pair member : object) {
    if (member.key == "tokens" || member.key == "token_ids") {
      simdjson::dom::array array;
      if (tokens || member.value.get(array) != simdjson::SUCCESS) {
        return absl::FailedPreconditionError("'tokens' or 'token_ids' is not a list, or appears twice");
      }
      tokens = array;
    } else if (member.key == "count") {
      uint64_t number = 0;
      if (count || member.value.get(number) != simdjson::SUCCESS) {
        return absl::FailedPreconditionError("'count' is not a whole number, or appears twice");
      }
      count = number;
    }
  }
  if (!tokens) return absl::FailedPreconditionError("the response has no 'tokens' or 'token_ids'");
  std::vector<uint32_t> ids;
  for (const simdjson::dom::element element : *tokens) {
    uint64_t id = 0;
    if (element.get(id) != simdjson::SUCCESS || id > std::numeric_limits<uint32_t>::max()) {
      return absl::FailedPreconditionError("the list has an item that is not a token id");
    }
    if (ids.size() == kMaxTokenizedIds) {
      return absl::FailedPreconditionError(Concat("the list has more than ", kMaxTokenizedIds, " ids"));
    }
    ids.push_back(static_cast<uint32_t>(id));
  }
  if (ids.empty()) return absl::FailedPreconditionError("the list of ids is empty");
  if (count && *count != ids.size()) {
    return absl::FailedPreconditionError(
        Concat("'count' is ", *count, " and the list has ", ids.size(), " ids"));
  }
  return ids;
}

}  // namespace vllm_router
