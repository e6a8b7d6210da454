#include "continuation/token_event.h"

#include <algorithm>

#include "base/text.h"
#include "continuation/choice_event.h"
#include "http/sse_reader.h"
#include "routing/body_map.h"
#include "routing/json_scanner.h"

namespace vllm_router {
namespace {

using Member = BodyMap::Member;
using Type = BodyMap::Type;

constexpr std::string_view kDataField = "data:";
constexpr size_t kMostOffsets = 4096;
// More than any stream has, so sums of two stay far from overflow.
constexpr uint64_t kMostTokens = uint64_t{1} << 53;

std::string_view ValueOfType(const BodyMap& object, std::string_view name, Type type) {
  const Member* const member = object.Find(name);
  return member != nullptr && member->type == type ? member->value : std::string_view();
}

bool IsNullOrAbsent(const Member* member) { return member == nullptr || member->type == Type::kNull; }

void ReadChoice(const BodyMap& choice, TokenEvent* event) {
  if (event->prompt.empty()) event->prompt = ValueOfType(choice, "prompt_token_ids", Type::kArray);
  event->output = ValueOfType(choice, "token_ids", Type::kArray);
  const Member* const delta = choice.Find("delta");
  const bool says_nothing = delta != nullptr && delta->value == "{}" &&
                            IsNullOrAbsent(choice.Find("finish_reason")) &&
                            IsNullOrAbsent(choice.Find("logprobs"));
  event->is_of_ids = says_nothing && !event->output.empty();
  if (const std::string_view logprobs = ValueOfType(choice, "logprobs", Type::kObject); !logprobs.empty()) {
    event->text_offsets = ValueOfType(BodyMap::Read(logprobs), "text_offset", Type::kArray);
  }
}

std::optional<uint64_t> CountOf(const BodyMap& object, std::string_view name) {
  const std::optional<uint64_t> count = ParseDecimal(ValueOfType(object, name, Type::kNumber));
  return count && *count <= kMostTokens ? count : std::nullopt;
}

// Of an object that is the value of a member, one number.
void EditInner(
    const BodyMap& object, std::string_view name, std::string_view number,
    uint64_t (*edit)(uint64_t, uint64_t), uint64_t by, std::vector<TextEdit>* edits) {
  const BodyMap inner = BodyMap::Read(ValueOfType(object, name, Type::kObject));
  const std::optional<uint64_t> count = CountOf(inner, number);
  if (count) edits->push_back({.part = inner.Find(number)->value, .by = Concat(edit(*count, by))});
}

}  // namespace

std::optional<TokenEvent> ReadTokenEvent(std::string_view data) {
  const BodyMap map = BodyMap::Read(data);
  const std::string_view choices = ValueOfType(map, "choices", Type::kArray);
  if (!map.ok() || map.HasOddNames() || choices.empty()) return std::nullopt;
  const std::optional<std::vector<std::string_view>> elements = JsonElements(choices, 2);
  if (!elements) return std::nullopt;
  TokenEvent event{
      .prompt = ValueOfType(map, "prompt_token_ids", Type::kArray),
      .output = {},
      .usage = ValueOfType(map, "usage", Type::kObject),
      .text_offsets = {},
      .has_choice = !elements->empty(),
      .has_several = elements->size() > 1};
  if (!event.has_choice) return event;
  const BodyMap choice = BodyMap::Read(elements->front());
  if (!choice.ok() || choice.HasOddNames()) return std::nullopt;
  ReadChoice(choice, &event);
  return event;
}

std::string_view OneLineData(std::string_view event) {
  if (!event.starts_with(kDataField)) return {};
  std::string_view data = event.substr(kDataField.size());
  const size_t end = FindLineEnd(data);
  if (data.find_first_not_of("\r\n", std::min(end, data.size())) != std::string_view::npos) return {};
  data = data.substr(0, end);
  if (data.starts_with(' ')) data.remove_prefix(1);
  return data;
}

std::string UsageOfWhole(std::string_view usage, const TokensBefore& before) {
  const BodyMap map = BodyMap::Read(usage);
  const std::optional<uint64_t> output = CountOf(map, "completion_tokens");
  if (!output || !CountOf(map, "prompt_tokens")) return std::string(usage);
  const uint64_t whole = *output + before.output;
  std::vector<TextEdit> edits;
  edits.push_back({.part = map.Find("prompt_tokens")->value, .by = Concat(before.prompt)});
  edits.push_back({.part = map.Find("completion_tokens")->value, .by = Concat(whole)});
  if (CountOf(map, "total_tokens")) {
    edits.push_back({.part = map.Find("total_tokens")->value, .by = Concat(before.prompt + whole)});
  }
  EditInner(
      map, "prompt_tokens_details", "cached_tokens",
      [](uint64_t cached, uint64_t prompt) { return std::min(cached, prompt); }, before.prompt, &edits);
  EditInner(
      map, "completion_tokens_details", "reasoning_tokens",
      [](uint64_t tokens, uint64_t more) { return tokens + more; }, before.reasoning, &edits);
  return WithEdits(usage, edits);
}

std::string OffsetsInWhole(std::string_view offsets, const TokensBefore& before) {
  const std::optional<std::vector<std::string_view>> elements = JsonElements(offsets, kMostOffsets);
  if (!elements) return std::string(offsets);
  std::vector<TextEdit> edits;
  for (const std::string_view element : *elements) {
    const std::optional<uint64_t> offset = ParseDecimal(element);
    if (!offset || *offset > kMostTokens) return std::string(offsets);
    edits.push_back({.part = element, .by = Concat(*offset + before.letters)});
  }
  return WithEdits(offsets, edits);
}

}  // namespace vllm_router
