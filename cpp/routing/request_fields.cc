#include "routing/request_fields.h"

#include <simdjson.h>

#include <cstring>
#include <memory>
#include <vector>

#include "base/text.h"
#include "routing/request_view.h"

namespace vllm_router {
namespace {

namespace ondemand = simdjson::ondemand;

static_assert(kBodyPadding >= simdjson::SIMDJSON_PADDING);

// A parser keeps the memory of the largest body it has seen, so one that saw a large one is not kept.
constexpr size_t kKeptParserBytes = 1024 * 1024;

// The parser and, for bodies that come without padding, the copy that has some. One per thread.
struct Scratch {
  ondemand::parser parser;
  std::vector<char> padded;
};

constexpr std::string_view kBlanks = " \t\r\n\v\f";

bool IsBlank(std::string_view text) { return text.find_first_not_of(kBlanks) == std::string_view::npos; }

// A member's name as it is meant. Nearly every name is written without a backslash and is a view into the body; the
// others are unescaped. A name that cannot be unescaped is nobody's name.
std::string_view MemberName(ondemand::field& field, const char* end) {
  const char* begin = field.key().raw();
  const void* quote = std::memchr(begin, '"', static_cast<size_t>(end - begin));
  if (quote == nullptr) return {};
  const std::string_view raw(begin, static_cast<size_t>(static_cast<const char*>(quote) - begin));
  if (raw.find('\\') == std::string_view::npos) return raw;
  std::string_view unescaped;
  if (field.unescaped_key().get(unescaped) != simdjson::SUCCESS) return {};
  return unescaped;
}

std::optional<std::string> ReadString(ondemand::value& value) {
  std::string_view text;
  // A bad escape or a lone surrogate fails here too, and is no value.
  if (value.get_string().get(text) != simdjson::SUCCESS) return std::nullopt;
  return std::string(text);
}

// The spelling of a number, `true`, `false` or `null`.
std::string_view ReadToken(ondemand::value& value) {
  const std::string_view token = value.raw_json_token();
  return token.substr(0, token.find_last_not_of(kBlanks) + 1);
}

// -?(0|[1-9][0-9]*)
bool IsInteger(std::string_view token) {
  if (token.starts_with('-')) token.remove_prefix(1);
  if (token.empty() || (token[0] == '0' && token.size() > 1)) return false;
  return token.find_first_not_of("0123456789") == std::string_view::npos;
}

// Who the request belongs to, by one member: a string with something in it, or an integer.
std::optional<std::string> ReadIdentity(ondemand::value& value) {
  ondemand::json_type type;
  if (value.type().get(type) != simdjson::SUCCESS) return std::nullopt;
  if (type == ondemand::json_type::string) {
    std::optional<std::string> text = ReadString(value);
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

std::optional<bool> ReadBool(ondemand::value& value) {
  bool flag;
  if (value.get_bool().get(flag) != simdjson::SUCCESS) return std::nullopt;
  return flag;
}

// True if this is the beginning of a value and, unless that is a container, a comma or the closing brace comes after
// it. simdjson skips an unread value by counting brackets, from the value on: a string with a colon after it passes as
// a name there, a stray bracket as an end, and the count runs on into the bytes after the text.
bool IsProperMember(ondemand::value& value, const char* end) {
  const std::string_view token = value.raw_json_token();  // reaches to the next token
  if (token.starts_with('{') || token.starts_with('[')) return true;
  if (token.empty() || std::string_view("]},:").find(token[0]) != std::string_view::npos) return false;
  const char* next = token.data() + token.size();
  return next < end && (*next == ',' || *next == '}');
}

// One pass over an object's members; `read` sees each name and value. `end` is where the whole text ends. False when
// the object does not hold together.
template <typename Read>
bool ForEachMember(ondemand::object& object, const char* end, Read read) {
  for (auto result : object) {
    ondemand::field field;
    if (std::move(result).get(field) != simdjson::SUCCESS) return false;
    const std::string_view name = MemberName(field, end);
    if (!IsProperMember(field.value(), end) || !read(name, field.value())) return false;
  }
  return true;
}

// False when the object does not hold together.
bool ReadSessionParams(ondemand::value& value, const char* end, std::optional<std::string>* session_id) {
  session_id->reset();
  ondemand::json_type type;
  if (value.type().get(type) != simdjson::SUCCESS || type != ondemand::json_type::object) return true;
  ondemand::object object;
  if (value.get_object().get(object) != simdjson::SUCCESS) return false;
  return ForEachMember(object, end, [&](std::string_view name, ondemand::value member) {
    if (name == "session_id") *session_id = ReadIdentity(member);
    return true;
  });
}

bool ReadBody(ondemand::parser& parser, simdjson::padded_string_view json, RequestFields* fields) {
  ondemand::document document;
  ondemand::object object;
  if (parser.iterate(json).get(document) != simdjson::SUCCESS) return false;
  if (document.get_object().get(object) != simdjson::SUCCESS) return false;
  const char* const end = json.data() + json.size();
  std::optional<uint64_t> max_tokens;
  std::optional<uint64_t> max_completion_tokens;
  const bool whole = ForEachMember(object, end, [&](std::string_view name, ondemand::value value) {
    if (name == "model") {
      fields->model = ReadString(value);
    } else if (name == "stream") {
      fields->stream = ReadBool(value);
    } else if (name == "user") {
      fields->user = ReadIdentity(value);
    } else if (name == "session_id") {
      fields->session_id = ReadIdentity(value);
    } else if (name == "user_id") {
      fields->user_id = ReadIdentity(value);
    } else if (name == "max_tokens") {
      max_tokens = ReadCount(value);
    } else if (name == "max_completion_tokens") {
      max_completion_tokens = ReadCount(value);
    } else if (name == "session_params") {
      return ReadSessionParams(value, end, &fields->session_params_session_id);
    }
    return true;
  });
  fields->max_tokens = max_completion_tokens ? max_completion_tokens : max_tokens;
  // At the end there is no location: anything else means that something follows the object.
  return whole && document.current_location().error() == simdjson::OUT_OF_BOUNDS;
}

}  // namespace

RequestFields ParseRequestFields(std::string_view body, bool padded) {
  RequestFields fields;
  if (body.empty() || body.size() > kMaxParsedBodyBytes) return fields;
  thread_local std::unique_ptr<Scratch> scratch;
  if (scratch == nullptr) scratch = std::make_unique<Scratch>();
  if (!padded) {
    scratch->padded.resize(body.size() + kBodyPadding);
    std::memcpy(scratch->padded.data(), body.data(), body.size());
    body = {scratch->padded.data(), body.size()};
  }
  const simdjson::padded_string_view json(body.data(), body.size(), body.size() + kBodyPadding);
  fields.is_object = ReadBody(scratch->parser, json, &fields);
  if (!fields.is_object) fields = {};
  if (body.size() > kKeptParserBytes) scratch.reset();
  return fields;
}

}  // namespace vllm_router
