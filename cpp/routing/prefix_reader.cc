#include "routing/prefix_reader.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace vllm_router {
namespace {

namespace ondemand = json::ondemand;
using json::ForEachElement;
using json::ForEachMember;
using json::ReadString;
using json::TypeOf;
using ondemand::json_type;

bool IsNull(ondemand::value& value) { return value.raw_json_token().starts_with("null"); }

bool IsLead(std::string_view role) { return role == "system" || role == "developer"; }

bool IsText(std::string_view type) { return type == "text" || type == "input_text" || type == "output_text"; }

}  // namespace

void PrefixReader::Text::Append(std::string_view piece, size_t limit) {
  any = any || !piece.empty();
  if (full) return;
  const std::string_view fits = CutAtCharacter(piece, limit - bytes.size());
  bytes.append(fits);
  full = fits.size() < piece.size();
}

void PrefixReader::Text::Clear() {
  bytes.clear();
  any = full = false;
}

void PrefixReader::Read(std::string_view name, ondemand::value& value) {
  if (IsNull(value)) return;
  if (name == "messages") {
    StartOver(Form::kMessages);
    prompt_broken_ = !ReadMessages(value);
  } else if (name == "input") {
    ReadPrompt(Form::kInput, value);
  } else if (name == "prompt") {
    ReadPrompt(Form::kPrompt, value);
  } else if (name == "text") {
    ReadPrompt(Form::kText, value);
  } else if (name == "input_ids") {
    ReadPrompt(Form::kInputIds, value);
  } else if (name == "token_ids") {
    ReadPrompt(Form::kTokenIds, value);
  } else if (name == "query") {
    ReadPrompt(Form::kQuery, value);
  } else if (name == "system") {
    system_.Clear();
    system_broken_ = !ReadContent(value, &system_);
  } else if (name == "instructions") {
    instructions_.Clear();
    instructions_broken_ = !ReadContent(value, &instructions_);
  }
}

void PrefixReader::StartOver(Form form) {
  form_ = form;
  lead_.Clear();
  first_.Clear();
  has_lead_ = has_first_ = false;
  ids_.clear();
  prompt_broken_ = false;
}

bool PrefixReader::ReadMessages(ondemand::value& value) {
  ondemand::array messages;
  if (value.get_array().get(messages) != simdjson::SUCCESS) return false;
  return ForEachElement(
      messages, end_, [this](ondemand::value& message) { return Decided() || ReadMessage(message); });
}

// Nothing is read twice, since the parser has room for each string once. So content that comes before its role is kept
// until that is known.
bool PrefixReader::ReadMessage(ondemand::value& value) {
  ondemand::object message;
  if (value.get_object().get(message) != simdjson::SUCCESS) return false;
  std::string_view role;
  Text content;
  bool skipped = false;
  bool broken = false;  // matters only if the message counts
  const auto counts = [this](std::string_view role) { return IsLead(role) ? !has_lead_ : !has_first_; };
  const bool whole = ForEachMember(message, end_, [&](std::string_view member, ondemand::value& field) {
    if (member == "role") {
      const std::optional<std::string_view> given = IsNull(field) ? std::string_view() : ReadString(field);
      role = given.value_or("");
      return given.has_value();
    }
    if (member != "content") return true;
    content.Clear();
    skipped = !role.empty() && !counts(role);
    broken = !skipped && !IsNull(field) && !ReadContent(field, &content);
    return true;
  });
  if (!whole) return false;
  if (role.empty() || !counts(role)) return true;  // an item without a role is no message
  // Skipped though it counts: its role was there twice, and the first one did not count.
  if (broken || skipped) return false;
  (IsLead(role) ? has_lead_ : has_first_) = true;
  (IsLead(role) ? lead_ : first_) = std::move(content);
  return true;
}

// A prompt without roles: a string, token ids, or a list of either, of which the first counts.
void PrefixReader::ReadPrompt(Form form, ondemand::value& value) {
  const std::optional<json_type> type = TypeOf(value);
  if (form_ < form || (type != json_type::string && type != json_type::array)) return;
  StartOver(form);
  if (*type == json_type::string) {
    const std::optional<std::string_view> text = ReadString(value);
    if (text) first_.Append(*text, limit_);
    prompt_broken_ = !text;
    return;
  }
  ondemand::array array;
  prompt_broken_ = value.get_array().get(array) != simdjson::SUCCESS || !ReadFirst(array, /*nested=*/false);
}

bool PrefixReader::ReadFirst(ondemand::array& array, bool nested) {
  bool first = true;
  std::optional<json_type> kind;
  const size_t most_ids = std::max<size_t>(1, limit_ / sizeof(uint32_t));  // one says that there are some
  return ForEachElement(array, end_, [&](ondemand::value& element) {
    const std::optional<json_type> type = TypeOf(element);
    if (!type) return false;
    if (first) kind = type;
    const bool is_first = std::exchange(first, false);
    if (*type != *kind) return false;
    switch (*type) {
      case json_type::number: {
        if (ids_.size() == most_ids) return true;
        uint64_t id = 0;
        if (element.get_uint64().get(id) != simdjson::SUCCESS || id > UINT32_MAX) return false;
        ids_.push_back(static_cast<uint32_t>(id));
        return true;
      }
      case json_type::string: {
        if (!is_first) return true;
        const std::optional<std::string_view> text = ReadString(element);
        if (text) first_.Append(*text, limit_);
        return text.has_value();
      }
      case json_type::array: {
        if (nested) return false;
        if (!is_first) return true;
        ondemand::array inner;
        return element.get_array().get(inner) == simdjson::SUCCESS && ReadFirst(inner, /*nested=*/true);
      }
      case json_type::object:  // Responses' items
        return !nested && form_ == Form::kInput && (Decided() || ReadMessage(element));
      default:
        return false;
    }
  });
}

bool PrefixReader::ReadContent(ondemand::value& value, Text* text) {
  const std::optional<json_type> type = TypeOf(value);
  if (type == json_type::string) {
    const std::optional<std::string_view> piece = ReadString(value);
    if (piece) text->Append(*piece, limit_);
    return piece.has_value();
  }
  if (type == json_type::object) return ReadPart(value, text);
  if (type != json_type::array) return false;
  ondemand::array array;
  if (value.get_array().get(array) != simdjson::SUCCESS) return false;
  return ForEachElement(array, end_, [&](ondemand::value& part) {
    if (TypeOf(part) == json_type::object) return ReadPart(part, text);
    const std::optional<std::string_view> piece = ReadString(part);
    if (piece) text->Append(*piece, limit_);
    return piece.has_value();
  });
}

// Parts that are no text (images, thinking, tool calls) are passed over.
bool PrefixReader::ReadPart(ondemand::value& value, Text* text) {
  ondemand::object part;
  if (value.get_object().get(part) != simdjson::SUCCESS) return false;
  std::string_view type;
  std::string_view piece;
  const bool whole = ForEachMember(part, end_, [&](std::string_view member, ondemand::value& field) {
    if (member != "type" && member != "text") return true;
    const std::optional<std::string_view> given = IsNull(field) ? std::string_view() : ReadString(field);
    (member == "type" ? type : piece) = given.value_or("");
    return given.has_value();
  });
  if (whole && (type.empty() || IsText(type))) text->Append(piece, limit_);
  return whole;
}

void PrefixReader::Finish() {
  using Kind = PrefixAnchor::Kind;
  *out_ = {};
  if (prompt_broken_ || system_broken_ || instructions_broken_) return;
  for (Text* system : {&system_, &instructions_, &lead_}) {
    if (!system->any) continue;
    *out_ = {Kind::kSystem, std::move(system->bytes)};
    return;
  }
  if (!ids_.empty()) {
    *out_ = AnchorOfTokens(ids_, limit_);
  } else if (first_.any) {
    *out_ = {Kind::kMessage, std::move(first_.bytes)};
  }
}

}  // namespace vllm_router
