#include "routing/stored_path.h"

#include <algorithm>
#include <cstdint>

#include "base/text.h"
#include "routing/json_reading.h"
#include "routing/json_scanner.h"
#include "routing/request_view.h"
#include "routing/truncated_json.h"

namespace vllm_router {
namespace {

namespace ondemand = simdjson::ondemand;

constexpr size_t kMostIdBytes = 256;
constexpr std::string_view kPrevious = "previous_response_id";
constexpr std::string_view kConversation = "conversation";

std::optional<std::string> AsId(ondemand::value& value) {
  std::string_view text;
  if (value.get_string().get(text) != simdjson::SUCCESS) return std::nullopt;
  if (text.empty() || text.size() > kMostIdBytes) return std::nullopt;
  return std::string(text);
}

enum class Repeated : uint8_t { kFirst, kLast };  // which one counts

// Calls `read` with the values of the object's members of that name.
template <typename Read>
void WithMember(
    ondemand::object& object, const char* end, std::string_view name, Repeated repeated, Read read) {
  json::ForEachMember(object, end, [&](std::string_view member, ondemand::value& value) {
    if (member == name) read(value);
    return member != name || repeated == Repeated::kLast;
  });
}

// The text must be padded. `visit(object, end)`.
template <typename Visit>
void WithObject(std::string_view padded, Visit visit) {
  ondemand::parser parser;
  ondemand::document document;
  ondemand::object object;
  padded = WithoutByteOrderMark(padded);
  const size_t capacity = padded.size() + kBodyPadding;
  if (parser.iterate(padded.data(), padded.size(), capacity).get(document) != simdjson::SUCCESS) return;
  if (document.get_object().get(object) == simdjson::SUCCESS) visit(object, padded.data() + padded.size());
}

template <typename Read>
void WithTopLevelMember(std::string_view padded, std::string_view name, Repeated repeated, Read read) {
  WithObject(padded, [&](ondemand::object& object, const char* end) {
    WithMember(object, end, name, repeated, read);
  });
}

// A string, or an object that has it as its `id`.
std::optional<std::string> IdIn(ondemand::value& value, const char* end) {
  if (json::TypeOf(value) != ondemand::json_type::object) return AsId(value);
  std::optional<std::string> id;
  ondemand::object object;
  if (value.get_object().get(object) != simdjson::SUCCESS) return id;
  WithMember(object, end, "id", Repeated::kLast, [&id](ondemand::value& inner) { id = AsId(inner); });
  return id;
}

// Whether the JSON has this text as a string. The quote in front is compared last, since it is everywhere.
bool HasString(std::string_view json, std::string_view text) {
  for (size_t at = json.find(text); at != std::string_view::npos; at = json.find(text, at + 1)) {
    if (at > 0 && json[at - 1] == '"' && json.substr(at + text.size()).starts_with('"')) return true;
  }
  return false;
}

// A name of their letters is spelled so, or with an escape of one of them, which no encoder of JSON writes by itself.
bool MayContinue(std::string_view body) {
  if (HasString(body, kPrevious) || HasString(body, kConversation)) return true;
  constexpr std::string_view kEscape = "\\u00";
  for (size_t at = body.find(kEscape); at != std::string_view::npos; at = body.find(kEscape, at + 1)) {
    const std::string_view digit = body.substr(at + kEscape.size(), 1);
    if (digit == "5" || digit == "6" || digit == "7") return true;
  }
  return false;
}

std::string_view IdOf(std::string_view stored_path) {
  const std::string_view collection = IsConversation(stored_path) ? kConversationsPath : kResponsesPath;
  return stored_path.substr(collection.size() + 1);
}

// The text behind the first `data:` of an event stream, to the end of the line or of the stream.
std::string_view FirstData(std::string_view stream) {
  constexpr std::string_view kData = "data:";
  while (!stream.empty()) {
    const size_t line_end = stream.find_first_of("\r\n");
    const std::string_view line = stream.substr(0, line_end);
    if (line.starts_with(kData)) return line.substr(kData.size());
    if (line_end == std::string_view::npos) break;
    stream.remove_prefix(line_end + 1);
  }
  return {};
}

}  // namespace

std::string_view StoredPathOf(std::string_view path) {
  for (const std::string_view collection : {kResponsesPath, kConversationsPath}) {
    const size_t before = collection.size() + 1;
    if (!path.starts_with(collection) || path.substr(0, before).back() != '/') continue;
    const std::string_view rest = path.substr(before);
    const size_t size = std::min(rest.find('/'), rest.size());
    const bool is_operation = collection == kResponsesPath && (rest == "compact" || rest == "input_tokens");
    return size == 0 || size > kMostIdBytes || is_operation ? std::string_view()
                                                            : path.substr(0, before + size);
  }
  return {};
}

bool LooksStored(std::string_view stored_path) {
  return IdOf(stored_path).starts_with(IsConversation(stored_path) ? "conv_" : "resp_");
}

bool HasPlainId(std::string_view stored_path) {
  constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.:[]";
  const std::string_view id = IdOf(stored_path);
  return !id.empty() && !id.starts_with('.') && id.find_first_not_of(kPlain) == std::string_view::npos;
}

std::optional<std::string> ContinuedPath(std::string_view body, bool padded) {
  if (!MayContinue(body)) return std::nullopt;
  std::string copy;
  if (!padded) {
    copy.reserve(body.size() + kBodyPadding);
    copy = body;
    body = copy;
  }
  std::optional<std::string> response, conversation;
  WithObject(body, [&](ondemand::object& object, const char* end) {
    json::ForEachMember(object, end, [&](std::string_view name, ondemand::value& value) {
      if (name == kPrevious) response = AsId(value);
      if (name == kConversation) conversation = IdIn(value, end);
      return true;
    });
  });
  if (response) return Concat(kResponsesPath, "/", *response);
  if (conversation) return Concat(kConversationsPath, "/", *conversation);
  return std::nullopt;
}

bool StoresNothing(std::string_view body) {
  if (body.find("\"store\"") == std::string_view::npos) return false;
  bool stores = true;
  WithTopLevelMember(body, "store", Repeated::kLast, [&stores](ondemand::value& value) {
    stores = value.get_bool().get(stores) != simdjson::SUCCESS || stores;
  });
  return !stores;
}

std::optional<std::string> CreatedId(std::string_view beginning, bool event_stream) {
  const std::string_view text = event_stream ? FirstData(beginning) : beginning;
  const std::optional<JsonRepair> whole = CloseJson(text);
  if (!whole) return std::nullopt;
  std::string padded;
  padded.reserve(whole->keep + whole->closing.size() + kBodyPadding);
  padded.append(text.substr(0, whole->keep)).append(whole->closing);
  std::optional<std::string> id;
  const auto read_id = [&](ondemand::value& value) {
    const std::string_view token = json::ReadToken(value);
    const bool cut = token.data() + token.size() > padded.data() + whole->keep;  // it may continue
    if (!cut) id = AsId(value);
  };
  if (!event_stream) {
    WithTopLevelMember(padded, "id", Repeated::kFirst, read_id);
    return id;
  }
  WithTopLevelMember(padded, "response", Repeated::kFirst, [&](ondemand::value& value) {
    ondemand::object response;
    if (value.get_object().get(response) != simdjson::SUCCESS) return;
    WithMember(response, padded.data() + padded.size(), "id", Repeated::kFirst, read_id);
  });
  return id;
}

}  // namespace vllm_router
