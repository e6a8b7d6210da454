#include "routing/request_fields.h"

#include <charconv>
#include <cstring>
#include <memory>
#include <vector>

#include "base/text.h"
#include "routing/json_reading.h"
#include "routing/json_scanner.h"
#include "routing/prefix_reader.h"
#include "routing/request_view.h"
#include "routing/routing_text_reader.h"

namespace vllm_router {
namespace {

namespace ondemand = simdjson::ondemand;
using json::ForEachMember;
using json::ReadToken;

static_assert(kBodyPadding >= simdjson::SIMDJSON_PADDING);

// A parser keeps memory for the largest body it has read, so one that read a large body is not kept.
constexpr size_t kKeptParserBytes = 1024 * 1024;

// The parser and, for bodies without padding, a padded copy. One per thread.
struct Scratch {
  ondemand::parser parser;
  std::vector<char> padded;
};

bool IsBlank(std::string_view text) {
  return text.find_first_not_of(json::kBlanks) == std::string_view::npos;
}

std::optional<std::string> ReadOwnString(ondemand::value& value) {
  const std::optional<std::string_view> text = json::ReadString(value);
  if (!text) return std::nullopt;
  return std::string(*text);
}

// -?(0|[1-9][0-9]*)
bool IsInteger(std::string_view token) {
  if (token.starts_with('-')) token.remove_prefix(1);
  if (token.empty() || (token[0] == '0' && token.size() > 1)) return false;
  return token.find_first_not_of("0123456789") == std::string_view::npos;
}

// The owner of the request, by one member: a non-empty string, or an integer.
std::optional<std::string> ReadIdentity(ondemand::value& value) {
  ondemand::json_type type;
  if (value.type().get(type) != simdjson::SUCCESS) return std::nullopt;
  if (type == ondemand::json_type::string) {
    std::optional<std::string> text = ReadOwnString(value);
    if (text && IsBlank(*text)) return std::nullopt;
    return text;
  }
  if (type != ondemand::json_type::number) return std::nullopt;
  const std::string_view token = ReadToken(value);
  if (!IsInteger(token)) return std::nullopt;
  return std::string(token == "-0" ? "0" : token);
}

std::optional<uint64_t> ReadCount(ondemand::value& value) {
  ondemand::json_type type;
  if (value.type().get(type) != simdjson::SUCCESS || type != ondemand::json_type::number) return std::nullopt;
  const std::string_view token = ReadToken(value);
  if (!IsInteger(token)) return std::nullopt;
  return ParseDecimal(token == "-0" ? "0" : token);
}

std::optional<int32_t> ReadInt32(ondemand::value& value) {
  ondemand::json_type type;
  if (value.type().get(type) != simdjson::SUCCESS || type != ondemand::json_type::number) return std::nullopt;
  const std::string_view token = ReadToken(value);
  int32_t number = 0;
  const auto [end, error] = std::from_chars(token.data(), token.data() + token.size(), number);
  if (!IsInteger(token) || error != std::errc() || end != token.data() + token.size()) return std::nullopt;
  return number;
}

std::optional<bool> ReadBool(ondemand::value& value) {
  bool flag;
  if (value.get_bool().get(flag) != simdjson::SUCCESS) return std::nullopt;
  return flag;
}

// The member `place` of an object; any other value has none. False when the object is malformed.
bool ReadIdentityIn(
    std::string_view place, ondemand::value& value, const char* end, std::optional<std::string>* identity) {
  identity->reset();
  ondemand::json_type type;
  if (value.type().get(type) != simdjson::SUCCESS || type != ondemand::json_type::object) return true;
  ondemand::object object;
  if (value.get_object().get(object) != simdjson::SUCCESS) return false;
  return ForEachMember(object, end, [&](std::string_view name, ondemand::value member) {
    if (name == place) *identity = ReadIdentity(member);
    return true;
  });
}

// Claude Code's metadata.user_id: {"device_id":"…","session_id":"…"} as text; in versions before 2.1 that was
// user_<hex>_account_<uuid>_session_<uuid>.
std::optional<std::string> SessionIn(std::string_view user_id) {
  constexpr std::string_view kSession = "_session_";
  JsonScanner text(user_id);
  if (!text.Take('{')) {
    const size_t at = user_id.starts_with("user_") ? user_id.rfind(kSession) : std::string_view::npos;
    if (at == std::string_view::npos || IsBlank(user_id.substr(at + kSession.size()))) return std::nullopt;
    return std::string(user_id.substr(at + kSession.size()));
  }
  while (text.Peek() == '"') {
    const size_t name_at = text.at();
    if (!text.SkipString()) break;
    const bool is_session = user_id.substr(name_at, text.at() - name_at) == "\"session_id\"";
    if (!text.Take(':')) break;
    text.SkipBlanks();
    const size_t value_at = text.at();
    if (!text.SkipValue()) break;
    const std::string_view value = user_id.substr(value_at, text.at() - value_at);
    if (is_session && value.starts_with('"')) {
      std::optional<std::string> session = UnescapedJson(value.substr(1, value.size() - 2));
      return session && !IsBlank(*session) ? session : std::nullopt;
    }
    if (!text.Take(',')) break;
  }
  return std::nullopt;
}

// *torn: a reader of prompts stopped in the middle of a value. The position is then unknown, so the body
// must be read again without that reader.
bool ReadBody(
    ondemand::parser& parser, simdjson::padded_string_view json, const PromptWanted* prompt,
    const PrefixWanted* prefix, RequestFields* fields, bool* torn) {
  ondemand::document document;
  ondemand::object object;
  if (parser.iterate(json).get(document) != simdjson::SUCCESS) return false;
  if (document.get_object().get(object) != simdjson::SUCCESS) return false;
  const char* const end = json.data() + json.size();
  std::optional<RoutingTextReader> text;
  if (prompt != nullptr) text.emplace(*prompt, std::string_view(json.data(), json.size()));
  std::optional<PrefixReader> anchor;
  if (prefix != nullptr) anchor.emplace(prefix->limit, end, prefix->anchor);
  std::optional<uint64_t> max_tokens;
  std::optional<uint64_t> max_completion_tokens;
  const bool whole = ForEachMember(object, end, [&](std::string_view name, ondemand::value value) {
    if (name == "model") {
      fields->model = ReadOwnString(value);
    } else if (name == "stream") {
      fields->stream = ReadBool(value);
    } else if (name == "user") {
      fields->user = ReadIdentity(value);
    } else if (name == "session_id") {
      fields->session_id = ReadIdentity(value);
    } else if (name == "user_id") {
      fields->user_id = ReadIdentity(value);
    } else if (name == "priority") {
      fields->priority = ReadInt32(value);
    } else if (name == "max_tokens") {
      max_tokens = ReadCount(value);
    } else if (name == "max_completion_tokens") {
      max_completion_tokens = ReadCount(value);
    } else if (name == "prompt_cache_key") {
      fields->prompt_cache_key = ReadIdentity(value);
    } else if (name == "conversation_id") {
      fields->conversation_id = ReadIdentity(value);
    } else if (name == "conversation") {
      if (text && !json::IsNull(value)) text->ContinuesStored();
      if (json::TypeOf(value) == ondemand::json_type::object)
        return ReadIdentityIn("id", value, end, &fields->conversation);
      fields->conversation = ReadIdentity(value);
    } else if (name == "metadata") {
      std::optional<std::string> user_id;
      if (!ReadIdentityIn("user_id", value, end, &user_id)) return false;
      fields->metadata_session_id = user_id ? SessionIn(*user_id) : std::nullopt;
    } else if (name == "session_params") {
      return ReadIdentityIn("session_id", value, end, &fields->session_params_session_id);
    } else if (text) {
      text->Read(name, value);
      *torn = text->broken();
    } else if (anchor) {
      *torn = !anchor->Read(name, value);
    }
    return !*torn;
  });
  fields->max_tokens = max_completion_tokens ? max_completion_tokens : max_tokens;
  // At the end there is no location: anything else means that bytes follow the object.
  if (!whole || document.current_location().error() != simdjson::OUT_OF_BOUNDS) return false;
  if (text) text->Finish(fields->model ? *fields->model : std::string_view());
  if (anchor) anchor->Finish();
  return true;
}

}  // namespace

RequestFields ParseRequestFields(
    std::string_view body, bool padded, const PromptWanted* prompt, const PrefixWanted* prefix) {
  RequestFields fields;
  if (prompt != nullptr) prompt->text->kind = RoutingText::Kind::kMissing;
  if (prefix != nullptr) *prefix->anchor = {};
  body = WithoutByteOrderMark(body);
  if (body.empty() || body.size() > kMaxParsedBodyBytes) return fields;
  thread_local std::unique_ptr<Scratch> scratch;
  if (scratch == nullptr) scratch = std::make_unique<Scratch>();
  if (!padded) {
    scratch->padded.resize(body.size() + kBodyPadding);
    std::memcpy(scratch->padded.data(), body.data(), body.size());
    body = {scratch->padded.data(), body.size()};
  }
  const simdjson::padded_string_view json(body.data(), body.size(), body.size() + kBodyPadding);
  if (prompt != nullptr && prefix != nullptr) {
    RequestFields others;
    bool torn = false;
    ReadBody(scratch->parser, json, nullptr, prefix, &others, &torn);
    prefix = nullptr;
  }
  bool torn = false;
  fields.is_object = ReadBody(scratch->parser, json, prompt, prefix, &fields, &torn);
  if (torn) {
    fields = {};
    torn = false;
    fields.is_object = ReadBody(scratch->parser, json, nullptr, nullptr, &fields, &torn);
  }
  if (!fields.is_object) fields = {};
  if (body.size() > kKeptParserBytes) scratch.reset();
  return fields;
}

}  // namespace vllm_router
