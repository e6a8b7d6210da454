// The common part of readers of JSON bodies with simdjson's on-demand parser, which skips unread values.
// Heavy: for request_fields.cc and the readers of prompts only.
#pragma once

#include <simdjson.h>

#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace vllm_router::json {

namespace ondemand = simdjson::ondemand;

inline constexpr std::string_view kBlanks = " \t\r\n\v\f";

// A member's name, unescaped. Nearly every name is written without a backslash and is a view into the
// body. A name that cannot be unescaped equals no name.
inline std::string_view MemberName(ondemand::field& field, const char* end) {
  const char* const begin = field.key().raw();
  const char* at = begin;
  while (at != end && *at != '"' && *at != '\\') ++at;
  if (at == end) return {};
  if (*at == '"') return {begin, static_cast<size_t>(at - begin)};
  std::string_view unescaped;
  if (field.unescaped_key().get(unescaped) != simdjson::SUCCESS) return {};
  return unescaped;
}

// The spelling of a number, `true`, `false` or `null`.
inline std::string_view ReadToken(ondemand::value& value) {
  const std::string_view token = value.raw_json_token();
  return token.substr(0, token.find_last_not_of(kBlanks) + 1);
}

// Unescaped, valid as long as the parser reads this body: a string without a backslash where it lies, others in the
// parser's buffer. nullopt for a bad escape or a lone surrogate.
inline std::optional<std::string_view> ReadString(ondemand::value& value) {
  const std::string_view token = ReadToken(value);
  if (token.starts_with('"') && token.size() > 1 && token.find('\\') == std::string_view::npos) {
    ondemand::raw_json_string raw;
    if (value.get_raw_json_string().get(raw) != simdjson::SUCCESS) return std::nullopt;
    return token.substr(1, token.size() - 2);
  }
  std::string_view text;
  if (value.get_string().get(text) != simdjson::SUCCESS) return std::nullopt;
  return text;
}

inline bool IsNull(ondemand::value& value) { return value.raw_json_token().starts_with("null"); }

inline std::optional<ondemand::json_type> TypeOf(ondemand::value& value) {
  ondemand::json_type type;
  if (value.type().get(type) != simdjson::SUCCESS) return std::nullopt;
  return type;
}

// True if this is the start of a value and, unless that is a container, a comma or the `closing` bracket
// comes after it. simdjson skips an unread value by counting brackets, from the value on: a string with
// a colon after it passes as a name there, a stray bracket as an end, and the count runs on into the
// bytes after the text.
inline bool IsProper(ondemand::value& value, char closing, const char* end) {
  const std::string_view token = value.raw_json_token();  // reaches to the next token
  if (token.starts_with('{') || token.starts_with('[')) return true;
  if (token.empty() || token[0] == ']' || token[0] == '}' || token[0] == ',' || token[0] == ':') return false;
  const char* next = token.data() + token.size();
  return next < end && (*next == ',' || *next == closing);
}

// One pass over an object's members; `read` gets each name and value, and may return false to stop.
// `end` is the end of the whole text. False when the object is malformed, or `read` stopped.
template <typename Read>
bool ForEachMember(ondemand::object& object, const char* end, Read read) {
  for (auto result : object) {
    ondemand::field field;
    if (std::move(result).get(field) != simdjson::SUCCESS) return false;
    const std::string_view name = MemberName(field, end);
    if (!IsProper(field.value(), '}', end) || !read(name, field.value())) return false;
  }
  return true;
}

// The same for an array's elements.
template <typename Read>
bool ForEachElement(ondemand::array& array, const char* end, Read read) {
  for (auto result : array) {
    ondemand::value value;
    if (std::move(result).get(value) != simdjson::SUCCESS) return false;
    if (!IsProper(value, ']', end) || !read(value)) return false;
  }
  return true;
}

// The text of a container, from bracket to bracket; nullopt when its first element is not proper.
// raw_json() counts brackets only from the first element's value on, so an improper one would make it
// end elsewhere than skipping the container does.
template <typename Container>
std::optional<std::string_view> TextOf(Container& container, bool proper) {
  std::string_view raw;
  if (!proper || container.reset().error() != simdjson::SUCCESS) return std::nullopt;
  if (container.raw_json().get(raw) != simdjson::SUCCESS) return std::nullopt;
  return raw;
}

inline std::optional<std::string_view> ReadRaw(ondemand::object& object, const char* end) {
  bool first = false;
  const bool empty = ForEachMember(object, end, [&first](std::string_view, ondemand::value&) {
    first = true;
    return false;
  });
  return TextOf(object, first || empty);
}

inline std::optional<std::string_view> ReadRaw(ondemand::array& array, const char* end) {
  bool first = false;
  const bool empty = ForEachElement(array, end, [&first](ondemand::value&) {
    first = true;
    return false;
  });
  return TextOf(array, first || empty);
}

}  // namespace vllm_router::json
