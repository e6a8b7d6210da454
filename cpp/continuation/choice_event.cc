#include "continuation/choice_event.h"

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "routing/body_map.h"
#include "routing/json_scanner.h"

namespace vllm_router {
namespace {

using Member = BodyMap::Member;
using Type = BodyMap::Type;

constexpr size_t kMostChoices = 128;
constexpr size_t kMostCalls = 128;

bool IsNull(const Member* member) { return member == nullptr || member->type == Type::kNull; }

// Neither text nor anything else.
bool SaysNothing(const Member& member) {
  return member.type == Type::kNull || member.type == Type::kFalse || member.value == R"("")" ||
         member.value == "[]" || member.value == "{}";
}

std::string_view ValueOf(const BodyMap& object, std::string_view name) {
  const Member* const member = object.Find(name);
  return IsNull(member) ? std::string_view() : member->value;
}

class Reader {
 public:
  std::optional<ChoiceEvent> Read(std::string_view text) {
    const BodyMap event = BodyMap::Read(text);
    const Member* const choices = event.Find("choices");
    if (!event.ok() || event.HasOddNames() || choices == nullptr) return std::nullopt;
    if (!IsNull(event.Find("error"))) return std::nullopt;
    event_.id = ValueOf(event, "id");
    event_.created = ValueOf(event, "created");
    event_.model = ValueOf(event, "model");
    const std::optional<std::vector<std::string_view>> elements = JsonElements(choices->value, kMostChoices);
    if (!elements || elements->size() == kMostChoices) return std::nullopt;
    for (const std::string_view element : *elements) {
      if (!TakeChoice(element)) return std::nullopt;
    }
    return std::move(event_);
  }

 private:
  bool TakeChoice(std::string_view text) {
    const BodyMap choice = BodyMap::Read(text);
    if (!choice.ok() || choice.HasOddNames()) return false;
    const std::string_view index = ValueOf(choice, "index");
    const std::optional<uint64_t> number = index.empty() ? 0 : ParseDecimal(index);
    if (!number) return false;
    event_.choices.push_back(
        {.index = *number,
         .role = {},
         .finish_reason = ValueOf(choice, "finish_reason"),
         .has_details = !IsNull(choice.Find("logprobs")) || !IsNull(choice.Find("token_ids"))});
    const Member* const delta = choice.Find("delta");
    const Member* const said = choice.Find("text");
    if (!IsNull(choice.Find("message"))) return false;  // of a response that is no stream
    if (IsNull(said)) return IsNull(delta) || TakeDelta(delta->value);
    return IsNull(delta) && TakeText(said, TextKind::kContent, 0);
  }

  bool TakeDelta(std::string_view text) {
    const BodyMap delta = BodyMap::Read(text);
    if (!delta.ok() || delta.HasOddNames()) return false;
    event_.choices.back().role = ValueOf(delta, "role");
    if (!TakeText(delta.Find("reasoning"), TextKind::kReasoning, 0)) return false;
    if (!TakeText(delta.Find("reasoning_content"), TextKind::kReasoning, 0)) return false;
    if (!TakeText(delta.Find("content"), TextKind::kContent, 0)) return false;
    if (!TakeText(delta.Find("refusal"), TextKind::kRefusal, 0)) return false;
    for (const Member& member : delta.members()) {
      const bool is_known = member.name == "role" || member.name == "content" || member.name == "reasoning" ||
                            member.name == "reasoning_content" || member.name == "refusal" ||
                            member.name == "tool_calls";
      if (!is_known && !SaysNothing(member)) return false;
    }
    const Member* const calls = delta.Find("tool_calls");
    return IsNull(calls) || TakeCalls(calls->value);
  }

  bool TakeCalls(std::string_view text) {
    const std::optional<std::vector<std::string_view>> elements = JsonElements(text, kMostCalls);
    if (!elements || elements->size() == kMostCalls) return false;
    for (const std::string_view element : *elements) {
      const BodyMap call = BodyMap::Read(element);
      if (!call.ok() || call.HasOddNames()) return false;
      const std::optional<uint64_t> index = ParseDecimal(ValueOf(call, "index"));
      if (!index || *index >= kMostCalls) return false;
      if (const std::string_view id = ValueOf(call, "id"); !id.empty()) {
        event_.call_ids.push_back({.choice = event_.choices.size() - 1, .call = *index, .value = id});
      }
      const Member* const function = call.Find("function");
      if (IsNull(function)) continue;
      const BodyMap inner = BodyMap::Read(function->value);
      if (!inner.ok() || inner.HasOddNames()) return false;
      if (!TakeText(inner.Find("name"), TextKind::kToolName, *index)) return false;
      if (!TakeText(inner.Find("arguments"), TextKind::kToolArguments, *index)) return false;
    }
    return true;
  }

  bool TakeText(const Member* member, TextKind kind, uint64_t call) {
    if (IsNull(member)) return true;
    std::optional<std::string> text = member->Text();
    if (!text) return false;
    const size_t choice = event_.choices.size() - 1;
    bool repeats = false;
    if (kind == TextKind::kReasoning && !event_.texts.empty()) {
      const DeltaText& last = event_.texts.back();
      repeats = last.choice == choice && last.kind == kind;
      if (repeats && last.text != *text) return false;
    }
    event_.texts.push_back(
        {.choice = choice,
         .kind = kind,
         .call = call,
         .value = member->value,
         .text = *std::move(text),
         .repeats = repeats});
    return true;
  }

  ChoiceEvent event_;
};

}  // namespace

std::optional<ChoiceEvent> ReadChoiceEvent(std::string_view event) { return Reader().Read(event); }

std::string WithEdits(std::string_view text, std::span<TextEdit> edits) {
  std::ranges::sort(edits, {}, [](const TextEdit& edit) { return edit.part.data(); });
  std::string edited;
  const char* at = text.data();
  for (const TextEdit& edit : edits) {
    edited.append(at, edit.part.data());
    edited += edit.by;
    at = edit.part.data() + edit.part.size();
  }
  edited.append(at, text.data() + text.size());
  return edited;
}

}  // namespace vllm_router
