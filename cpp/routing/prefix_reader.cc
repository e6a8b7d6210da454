#include "routing/prefix_reader.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/text.h"

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
  any = full = broken = false;
}

bool PrefixReader::Read(std::string_view name, ondemand::value& value) {
  if (IsNull(value)) return true;
  const PromptForm form = PromptFormOf(name);
  if (form == PromptForm::kMessages || form == PromptForm::kContents) return ReadMessages(form, value);
  if (form != PromptForm::kNone) return ReadPrompt(form, value);
  if (name == "system" || name == "instructions") {
    Text* const text = name == "system" ? &system_ : &instructions_;
    text->Clear();
    return ReadContent(value, text);
  }
  if (name == "systemInstruction" || name == "system_instruction") return ReadSystemParts(value);
  return true;
}

// Gemini's: {"parts": …}.
bool PrefixReader::ReadSystemParts(ondemand::value& value) {
  system_instruction_.Clear();
  if (TypeOf(value) != json_type::object) return ReadContent(value, &system_instruction_);
  return ReadContentIn("parts", value, &system_instruction_);
}

void PrefixReader::StartOver(PromptForm form) {
  form_ = form;
  lead_.Clear();
  first_.Clear();
  has_lead_ = has_first_ = false;
  ids_.clear();
  prompt_broken_ = false;
}

bool PrefixReader::ReadMessages(PromptForm form, ondemand::value& value) {
  if (form_ < form || (form == PromptForm::kContents && TypeOf(value) != json_type::array)) return true;
  StartOver(form);
  prompt_broken_ = TypeOf(value) != json_type::array;
  if (prompt_broken_) return true;
  ondemand::array messages;
  if (value.get_array().get(messages) != simdjson::SUCCESS) return false;
  return ForEachElement(messages, end_, [this](ondemand::value& message) {
    return Decided() || prompt_broken_ || ReadMessage(message);
  });
}

// The parser has memory for each string once, so no value is read twice. So content that comes before
// its role is kept until the role is known.
bool PrefixReader::ReadMessage(ondemand::value& value) {
  prompt_broken_ = TypeOf(value) != json_type::object;
  if (prompt_broken_) return true;
  ondemand::object message;
  if (value.get_object().get(message) != simdjson::SUCCESS) return false;
  const std::string_view place = form_ == PromptForm::kContents ? "parts" : "content";
  std::string_view role;
  Text content;
  bool skipped = false;
  const auto counts = [this](std::string_view role) { return IsLead(role) ? !has_lead_ : !has_first_; };
  const bool whole = ForEachMember(message, end_, [&](std::string_view member, ondemand::value& field) {
    if (member == "role") {
      const std::optional<std::string_view> given = IsNull(field) ? std::string_view() : ReadString(field);
      prompt_broken_ = prompt_broken_ || !given;
      role = given.value_or("");
      return true;
    }
    if (member != place) return true;
    content.Clear();
    skipped = !role.empty() && !counts(role);
    return skipped || IsNull(field) || ReadContent(field, &content);
  });
  if (!whole) return false;
  if (role.empty() || !counts(role)) return true;  // an item without a role is not a message
  // Skipped although it counts: its role was there twice, and the first one did not count.
  prompt_broken_ = prompt_broken_ || skipped || content.broken;
  (IsLead(role) ? has_lead_ : has_first_) = true;
  (IsLead(role) ? lead_ : first_) = std::move(content);
  return true;
}

// A prompt without roles: a string, token ids, or a list of either, of which the first counts.
bool PrefixReader::ReadPrompt(PromptForm form, ondemand::value& value) {
  const std::optional<json_type> type = TypeOf(value);
  const bool compared = type == json_type::object && IsCompared(form);
  if (form_ < form || (type != json_type::string && type != json_type::array && !compared)) return true;
  StartOver(form);
  if (*type == json_type::string) {
    const std::optional<std::string_view> text = ReadString(value);
    if (text) SetText(*text);
    prompt_broken_ = !text;
    return true;
  }
  if (compared) return ReadCompared(value);
  ondemand::array array;
  return value.get_array().get(array) == simdjson::SUCCESS && ReadFirst(array, /*nested=*/false);
}

void PrefixReader::SetText(std::string_view text) {
  if (form_ == PromptForm::kPromptEmbeds && !text.empty()) {
    first_.Append(NameOfData(text), limit_);
  } else {
    first_.Append(text, limit_);
  }
}

// {"content": parts}.
bool PrefixReader::ReadCompared(ondemand::value& value) {
  const bool whole = ReadContentIn("content", value, &first_);
  prompt_broken_ = prompt_broken_ || first_.broken;
  return whole;
}

bool PrefixReader::ReadFirst(ondemand::array& array, bool nested) {
  bool first = true;
  std::optional<json_type> kind;
  const size_t most_ids = std::max<size_t>(1, limit_ / sizeof(uint32_t));  // one shows that there are ids
  return ForEachElement(array, end_, [&](ondemand::value& element) {
    const std::optional<json_type> type = TypeOf(element);
    if (first) kind = type;
    const bool is_first = std::exchange(first, false);
    prompt_broken_ = prompt_broken_ || !type || type != kind;
    if (prompt_broken_) return true;
    switch (*type) {
      case json_type::number: {
        if (ids_.size() == most_ids) return true;
        uint64_t id = 0;
        prompt_broken_ = element.get_uint64().get(id) != simdjson::SUCCESS || id > UINT32_MAX;
        ids_.push_back(static_cast<uint32_t>(id));
        return true;
      }
      case json_type::string: {
        if (!is_first) return true;
        const std::optional<std::string_view> text = ReadString(element);
        if (text) SetText(*text);
        prompt_broken_ = !text;
        return true;
      }
      case json_type::array: {
        prompt_broken_ = nested;
        if (nested || !is_first) return true;
        ondemand::array inner;
        return element.get_array().get(inner) == simdjson::SUCCESS && ReadFirst(inner, /*nested=*/true);
      }
      case json_type::object:  // Responses' items
        if (!nested && IsCompared(form_)) return !is_first || ReadCompared(element);
        prompt_broken_ = nested || form_ != PromptForm::kInput;
        return prompt_broken_ || Decided() || ReadMessage(element);
      default:
        prompt_broken_ = true;
        return true;
    }
  });
}

// The content in the member `place` of an object.
bool PrefixReader::ReadContentIn(std::string_view place, ondemand::value& value, Text* text) {
  ondemand::object object;
  if (value.get_object().get(object) != simdjson::SUCCESS) return false;
  return ForEachMember(object, end_, [&](std::string_view member, ondemand::value& field) {
    return member != place || IsNull(field) || ReadContent(field, text);
  });
}

bool PrefixReader::ReadContent(ondemand::value& value, Text* text) {
  const auto read_string = [&](ondemand::value& string) {
    const std::optional<std::string_view> piece = ReadString(string);
    if (piece) text->Append(*piece, limit_);
    text->broken = text->broken || !piece;
    return true;
  };
  const std::optional<json_type> type = TypeOf(value);
  if (type == json_type::object) return ReadPart(value, text);
  if (type != json_type::array) return read_string(value);
  ondemand::array array;
  if (value.get_array().get(array) != simdjson::SUCCESS) return false;
  return ForEachElement(array, end_, [&](ondemand::value& part) {
    return TypeOf(part) == json_type::object ? ReadPart(part, text) : read_string(part);
  });
}

// Parts that are not text (images, thinking, tool calls) are skipped.
bool PrefixReader::ReadPart(ondemand::value& value, Text* text) {
  ondemand::object part;
  if (value.get_object().get(part) != simdjson::SUCCESS) return false;
  std::string_view type;
  std::string_view piece;
  const bool whole = ForEachMember(part, end_, [&](std::string_view member, ondemand::value& field) {
    if (member != "type" && member != "text") return true;
    const std::optional<std::string_view> given = IsNull(field) ? std::string_view() : ReadString(field);
    text->broken = text->broken || !given;
    (member == "type" ? type : piece) = given.value_or("");
    return true;
  });
  if (whole && (type.empty() || IsText(type))) text->Append(piece, limit_);
  return whole;
}

void PrefixReader::Finish() {
  using Kind = PrefixAnchor::Kind;
  *out_ = {};
  if (prompt_broken_ || system_.broken || instructions_.broken || system_instruction_.broken) return;
  for (Text* system : {&system_, &instructions_, &system_instruction_, &lead_}) {
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
