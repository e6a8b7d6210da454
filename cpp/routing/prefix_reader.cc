#include "routing/prefix_reader.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/text.h"
#include "routing/billing_header.h"

namespace vllm_router {
namespace {

namespace ondemand = json::ondemand;
using json::ForEachMember;
using json::IsNull;
using json::ReadString;
using json::TypeOf;
using ondemand::json_type;

bool IsText(std::string_view type) { return type == "text" || type == "input_text" || type == "output_text"; }

}  // namespace

void PrefixText::Append(std::string_view piece, size_t limit) {
  any = any || !piece.empty();
  if (full) return;
  const std::string_view fits = CutAtCharacter(piece, limit - bytes.size());
  bytes.append(fits);
  full = fits.size() < piece.size();
}

void PrefixText::Clear() {
  bytes.clear();
  any = full = broken = false;
}

PrefixText* PrefixReader::System(std::string_view name) {
  Text* const text = name == "system"         ? &system_
                     : name == "instructions" ? &instructions_
                                              : &system_instruction_;
  text->Clear();
  return text;
}

void PrefixReader::StartOver(PromptForm /*form*/) {
  lead_.Clear();
  first_.Clear();
  has_lead_ = has_first_ = false;
  ids_.clear();
  prompt_broken_ = false;
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

void PrefixReader::SetText(std::string_view text, bool /*alone*/) {
  if (form_ == PromptForm::kPromptEmbeds && !text.empty()) {
    first_.Append(NameOfData(text), limit_);
  } else {
    first_.Append(text, limit_);
  }
}

// One shows that there are ids.
bool PrefixReader::WantsIds() const { return ids_.size() < std::max<size_t>(1, limit_ / sizeof(uint32_t)); }

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
  const bool is_prompt = text != &system_ || !IsBillingHeader(piece);
  if (whole && is_prompt && (type.empty() || IsText(type))) text->Append(piece, limit_);
  return whole;
}

void PrefixReader::Finish() {
  using Kind = PrefixAnchor::Kind;
  *out_ = {};
  if (prompt_broken_ || first_.broken || system_.broken || instructions_.broken || system_instruction_.broken)
    return;
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
