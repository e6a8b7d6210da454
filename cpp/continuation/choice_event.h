// ChoiceEvent: what one event of a stream of completions or chat completions says, and where it says it.
//
//   {"id":"x","choices":[{"index":0,"delta":{"content":"Hi"},"finish_reason":null}]}
//         ~~~ id                                      ~~~~ one DeltaText           the views lie in the event
//
// A delta may have role, content, reasoning (or reasoning_content; both must then be equal), refusal and tool_calls.
// Another member that says anything makes the event unreadable, since its text would be missed. An event's texts are in
// the order reasoning, content, refusal, tool calls by place, in which parsers let them out.
//
// Pure; any thread. The event must outlive what is made from it. Cost: a pass over the event and
// some allocations (benchmarks/micro/continuation.cc).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "continuation/transcript.h"

namespace vllm_router {

struct DeltaText {
  size_t choice = 0;  // its place in ChoiceEvent::choices
  TextKind kind = TextKind::kContent;
  uint64_t call = 0;       // index of the tool call
  std::string_view value;  // as spelled, with quotes
  std::string text;        // what it means
  bool repeats = false;    // the text before this one under another name, which counts once
};

struct EventChoice {
  uint64_t index = 0;
  std::string_view role;           // as spelled; empty: none
  std::string_view finish_reason;  // as spelled; empty: it has not ended
  bool has_details = false;        // logprobs or token ids, which are of the whole text
};

struct EventCallId {
  size_t choice = 0;
  uint64_t call = 0;
  std::string_view value;  // as spelled
};

struct ChoiceEvent {
  std::vector<EventChoice> choices;
  std::vector<DeltaText> texts;
  std::vector<EventCallId> call_ids;
  std::string_view id;  // as spelled; empty: none
  std::string_view created;
  std::string_view model;
};

// nullopt: not such an event, or one that says more than is known here.
std::optional<ChoiceEvent> ReadChoiceEvent(std::string_view event);

// Other texts in place of parts of a text.
struct TextEdit {
  std::string_view part;  // in the text
  std::string by;
};
// Sorts the edits, none of which overlaps another.
std::string WithEdits(std::string_view text, std::span<TextEdit> edits);

}  // namespace vllm_router
