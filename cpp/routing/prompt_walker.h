// PromptWalker: the one walk over the members of a body that hold a prompt (prompt_members.h): which of
// them counts, what shapes each may have, and where its texts, ids, messages and parts are. A reader
// derives from it, gets what the walk finds, and makes of it what it needs. Heavy (json_reading.h).
//
//   {"system": content, "messages": [message, …], "prompt": text | ids | list of either, …}
//
//   class PrefixReader : private PromptWalker<PrefixReader, Text> { … };   // Text: where content goes
//
// What a reader provides, all called in the order of the body:
//
//   StartOver(form)               a better member than those before, or the same one again
//   ReadMessage(value)            a message, or an item of `input`
//   SetText(text, alone)          the prompt's text; alone: not in a list
//   WantsIds(), AddId(id)         the prompt's token ids
//   Enough()                      further messages may be skipped
//   Prompt(), System(name)        where the content of a prompt, or of an emptied system text, goes
//   StartPart(target), AddText(text, target), ReadPart(value, target)
//   ReadOther(name, value)        any member that holds none of these
//   NoPrompt(), NoContent(target) what is there is well-formed, but no prompt or content
//
// Those that return a bool return false to end the walk. Read() does so as well when a value is
// malformed: then the position is unknown, and the body must not be read on. Cost: that of one on-demand
// pass; nothing virtual. One thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

#include "routing/json_reading.h"
#include "routing/prompt_members.h"

namespace vllm_router {

inline bool IsLead(std::string_view role) { return role == "system" || role == "developer"; }

template <typename Reader, typename Target>
class PromptWalker {
  using Value = json::ondemand::value;
  using Array = json::ondemand::array;
  using Type = json::ondemand::json_type;

 protected:
  // `end`: where the body ends.
  explicit PromptWalker(const char* end) : end_(end) {}

  // Takes a member of the body.
  bool ReadMember(std::string_view name, Value& value) {
    if (json::IsNull(value)) return true;
    const PromptForm form = PromptFormOf(name);
    if (form == PromptForm::kMessages || form == PromptForm::kContents) return ReadMessages(form, value);
    if (form != PromptForm::kNone) return ReadPrompt(form, value);
    if (name == "system" || name == "instructions") return ReadContent(value, reader().System(name));
    if (name == "systemInstruction" || name == "system_instruction") {
      Target* const system = reader().System(name);
      return json::TypeOf(value) == Type::object ? ReadContentIn("parts", value, system)
                                                 : ReadContent(value, system);
    }
    return reader().ReadOther(name, value);
  }

  // Text, a part, or a list of them.
  bool ReadContent(Value& value, Target* target) {
    if (json::TypeOf(value) != Type::array) return ReadPartOrText(value, target);
    Array array;
    if (value.get_array().get(array) != simdjson::SUCCESS) return false;
    return json::ForEachElement(array, end_, [&](Value& part) { return ReadPartOrText(part, target); });
  }

  const char* const end_;
  PromptForm form_ = PromptForm::kNone;  // of the best member so far

 private:
  Reader& reader() { return static_cast<Reader&>(*this); }

  bool ReadMessages(PromptForm form, Value& value) {
    const bool is_list = json::TypeOf(value) == Type::array;
    if (form_ < form || (form == PromptForm::kContents && !is_list)) return true;
    form_ = form;
    reader().StartOver(form);
    if (!is_list) return reader().NoPrompt();
    Array messages;
    if (value.get_array().get(messages) != simdjson::SUCCESS) return false;
    return json::ForEachElement(messages, end_, [this](Value& message) {
      return reader().Enough() || reader().ReadMessage(message);
    });
  }

  // A prompt without roles: a string, token ids, or a list of either, of which the first counts.
  bool ReadPrompt(PromptForm form, Value& value) {
    const std::optional<Type> type = json::TypeOf(value);
    const bool compared = type == Type::object && IsCompared(form);
    if (form_ < form || (type != Type::string && type != Type::array && !compared)) return true;
    form_ = form;
    reader().StartOver(form);
    if (*type == Type::string) return ReadText(value, /*alone=*/true);
    if (compared) return ReadContentIn("content", value, reader().Prompt());
    Array array;
    return value.get_array().get(array) == simdjson::SUCCESS && ReadFirst(array, /*nested=*/false);
  }

  bool ReadText(Value& value, bool alone) {
    const std::optional<std::string_view> text = json::ReadString(value);
    if (!text) return reader().NoPrompt();
    reader().SetText(*text, alone);
    return true;
  }

  bool ReadFirst(Array& array, bool nested) {
    bool first = true;
    std::optional<Type> kind;
    return json::ForEachElement(array, end_, [&](Value& element) {
      const std::optional<Type> type = json::TypeOf(element);
      if (first) kind = type;
      const bool is_first = std::exchange(first, false);
      if (!type || type != kind) return reader().NoPrompt();
      switch (*type) {
        case Type::number: {  // all of them are one prompt
          if (!reader().WantsIds()) return true;
          uint64_t id = 0;
          if (element.get_uint64().get(id) != simdjson::SUCCESS || id > UINT32_MAX)
            return reader().NoPrompt();
          reader().AddId(static_cast<uint32_t>(id));
          return true;
        }
        case Type::string:
          return !is_first || ReadText(element, /*alone=*/false);
        case Type::array: {
          if (nested) return reader().NoPrompt();
          if (!is_first) return true;
          Array inner;
          return element.get_array().get(inner) == simdjson::SUCCESS && ReadFirst(inner, /*nested=*/true);
        }
        case Type::object:  // {"content": parts}, or Responses' items, for any path
          if (!nested && IsCompared(form_)) {
            return !is_first || ReadContentIn("content", element, reader().Prompt());
          }
          if (nested || form_ != PromptForm::kInput) return reader().NoPrompt();
          return reader().Enough() || reader().ReadMessage(element);
        default:
          return reader().NoPrompt();
      }
    });
  }

  // The content in the member `place` of an object.
  bool ReadContentIn(std::string_view place, Value& value, Target* target) {
    json::ondemand::object object;
    if (value.get_object().get(object) != simdjson::SUCCESS) return false;
    return json::ForEachMember(object, end_, [&](std::string_view member, Value& field) {
      return member != place || json::IsNull(field) || ReadContent(field, target);
    });
  }

  bool ReadPartOrText(Value& value, Target* target) {
    reader().StartPart(target);
    if (json::TypeOf(value) == Type::object) return reader().ReadPart(value, target);
    const std::optional<std::string_view> text = json::ReadString(value);
    if (!text) return reader().NoContent(target);
    reader().AddText(*text, target);
    return true;
  }
};

}  // namespace vllm_router
