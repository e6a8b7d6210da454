#include "continuation/delivered_text.h"

#include <algorithm>
#include <optional>

namespace vllm_router {

void DeliveredText::Add(std::string_view bytes) {
  while (ok_ && !bytes.empty()) {
    const SseReader::Step step = reader_.Next(&bytes);
    if (step == SseReader::Step::kNeedMore) return;
    ok_ = step == SseReader::Step::kEvent && TakeEvent(reader_.data());
  }
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

bool DeliveredText::TakeEvent(std::string_view data) {
  if (done_) return false;
  if (data == "[DONE]") {
    done_ = true;
    return true;
  }
  const std::optional<ChoiceEvent> event = ReadChoiceEvent(data);
  if (!event || !TakeHead(*event)) return false;
  if (event->choices.empty()) ++events_without_choice_;
  std::vector<Choice*> of_event;
  for (const EventChoice& choice : event->choices) {
    if (ChoiceOf(choice.index) == nullptr) return false;
  }
  for (const EventChoice& choice : event->choices) of_event.push_back(ChoiceOf(choice.index));
  for (const DeltaText& text : event->texts) {
    if (!text.repeats) of_event[text.choice]->said.Add(text.kind, text.call, text.text);
  }
  for (size_t i = 0; i < of_event.size(); ++i) {
    if (!event->choices[i].finish_reason.empty()) of_event[i]->ended = true;
  }
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

// Null: there are too many.
DeliveredText::Choice* DeliveredText::ChoiceOf(uint64_t index) {
  const auto found = std::ranges::find(choices_, index, &Choice::index);
  if (found != choices_.end()) return &*found;
  if (choices_.size() == kMaxChoices) return nullptr;
  return &choices_.emplace_back(Choice{.index = index});
}

}  // namespace vllm_router
