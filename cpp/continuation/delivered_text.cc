#include "continuation/delivered_text.h"

#include <algorithm>
#include <optional>

#include "routing/json_scanner.h"

namespace vllm_router {

void DeliveredText::Add(std::string_view bytes) {
  while (true) {
    bytes.remove_prefix(AddRepeated(bytes));
    if (!ok_ || bytes.empty()) return;
    const std::string_view before = bytes;
    const bool begins_here = between_events_;
    const SseReader::Step step = reader_.Next(&bytes);
    between_events_ = step == SseReader::Step::kEvent;
    if (step == SseReader::Step::kNeedMore) return;
    const size_t size = begins_here ? before.size() - bytes.size() : 0;
    ok_ = between_events_ && TakeEvent(before.substr(0, size), reader_.data());
  }
}

size_t DeliveredText::AddRepeated(std::string_view bytes) {
  size_t added = 0;
  while (between_events_ && ok_ && !done_) {
    const RepeatedEvent::Match match = repeated_.Find(bytes.substr(added));
    if (match.bytes == 0 || !TakeRepeated(match)) break;
    added += match.bytes;
  }
  return added;
}

// False: the text cannot be read.
bool DeliveredText::TakeRepeated(const RepeatedEvent::Match& match) {
  Choice* const choice = ChoiceOf(repeated_.index());  // which the event before has made
  if (!match.is_escaped) {
    Say(choice, repeated_.kind(), repeated_.call(), match.spelled);
    return true;
  }
  const std::optional<std::string> text = UnescapedJson(match.spelled);
  if (text) Say(choice, repeated_.kind(), repeated_.call(), *text);
  return text.has_value();
}

bool DeliveredText::AllEnded(size_t choices) const {
  return choices_.size() >= choices && std::ranges::all_of(choices_, &Choice::ended);
}

ContinuePhase DeliveredText::phase() const {
  if (choices_.empty() || choices_.front().said.bytes() == 0) return ContinuePhase::kText;
  const Transcript& said = choices_.front().said;
  if (said.calls() > 0) return ContinuePhase::kToolCall;
  return said.kind() == TextKind::kReasoning ? ContinuePhase::kReasoning : ContinuePhase::kText;
}

// `event`: its bytes in the stream; empty if they are not here together.
bool DeliveredText::TakeEvent(std::string_view event, std::string_view data) {
  repeated_.Forget();
  if (done_) return false;
  if (data == "[DONE]") {
    done_ = true;
    return true;
  }
  const std::optional<ChoiceEvent> read = ReadChoiceEvent(data);
  if (!read || !TakeHead(*read)) return false;
  if (read->choices.empty()) ++events_without_choice_;
  std::vector<Choice*> of_event;
  for (const EventChoice& choice : read->choices) {
    if (ChoiceOf(choice.index) == nullptr) return false;
  }
  for (const EventChoice& choice : read->choices) of_event.push_back(ChoiceOf(choice.index));
  for (const DeltaText& text : read->texts) {
    if (!text.repeats) Say(of_event[text.choice], text.kind, text.call, text.text);
  }
  for (size_t i = 0; i < of_event.size(); ++i) {
    if (!read->choices[i].finish_reason.empty()) of_event[i]->ended = true;
  }
  repeated_.Learn(event, data, *read);
  return true;
}

bool DeliveredText::TakeHead(const ChoiceEvent& event) {
  if (has_head_) return true;
  has_head_ = true;
  if (event.id.size() + event.created.size() + event.model.size() > kMaxHeadBytes) return false;
  id_ = event.id;
  created_ = event.created;
  model_ = event.model;
  return true;
}

void DeliveredText::Say(Choice* choice, TextKind kind, uint64_t call, std::string_view text) {
  choice->said.Add(kind, call, text);
  if (tail_ != nullptr && choice == &choices_.front()) tail_->Add(kind, text);
}

// Null: there are too many.
DeliveredText::Choice* DeliveredText::ChoiceOf(uint64_t index) {
  const auto found = std::ranges::find(choices_, index, &Choice::index);
  if (found != choices_.end()) return &*found;
  if (choices_.size() == kMaxChoices) return nullptr;
  return &choices_.emplace_back(Choice{.index = index});
}

}  // namespace vllm_router
