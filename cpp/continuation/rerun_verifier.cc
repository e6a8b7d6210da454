#include "continuation/rerun_verifier.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/text.h"

namespace vllm_router {
namespace {

constexpr std::array<std::string_view, kRerunProblems> kProblemNames = {
    "none", "text", "short", "divided", "unreadable"};

constexpr size_t kMostOfSecondRun = 128;  // that the new run has

// An event of an event stream; a line of data for each line.
void AppendEvent(std::string_view data, std::string* out) {
  while (true) {
    const size_t end = data.find('\n');
    *out += "data: ";
    *out += data.substr(0, end);
    *out += '\n';
    if (end == std::string_view::npos) break;
    data.remove_prefix(end + 1);
  }
  *out += '\n';
}

}  // namespace

std::string_view RerunProblemName(RerunProblem problem) {
  return kProblemNames[static_cast<size_t>(problem)];
}

RerunVerifier::RerunVerifier(const DeliveredText& delivered)
    : reader_(DeliveredText::kMaxEventBytes),
      known_without_choice_(delivered.events_without_choice()),
      id_(delivered.id()),
      created_(delivered.created()),
      model_(delivered.model()) {
  ROUTER_CHECK(delivered.ok(), "another run is compared with what was read to its end");
  for (const DeliveredText::Choice& choice : delivered.choices()) {
    choices_.push_back(
        {.index = choice.index,
         .target = choice.said.digest(),
         .calls = choice.said.calls(),
         .ended = choice.ended,
         .known = true});
  }
}

RerunVerifier::RerunVerifier(const DeliveredText& delivered, TextKind kind, std::string_view repeated)
    : RerunVerifier(delivered) {
  ROUTER_CHECK(choices_.size() <= 1, "the rest of one choice follows");
  if (choices_.empty()) return;
  Transcript target;
  target.Add(kind, /*call=*/0, repeated);
  choices_.front().target = target.digest();
}

RerunState RerunVerifier::Add(std::string_view bytes, std::string* to_client) {
  while (problem_ == RerunProblem::kNone && !bytes.empty()) {
    const SseReader::Step step = reader_.Next(&bytes);
    if (step == SseReader::Step::kNeedMore) break;
    if (step == SseReader::Step::kTooLong) {
      Fail(RerunProblem::kUnreadable);
    } else {
      TakeEvent(reader_.data(), to_client);
    }
  }
  return state();
}

RerunState RerunVerifier::state() const {
  if (problem_ != RerunProblem::kNone) return RerunState::kDiffers;
  return AllCaughtUp() ? RerunState::kCaughtUp : RerunState::kVerifying;
}

// False: it differs.
bool RerunVerifier::TakeEvent(std::string_view data, std::string* to_client) {
  if (data == "[DONE]") return TakeDone(to_client);
  const std::optional<ChoiceEvent> event = ReadChoiceEvent(data);
  if (!event) {
    if (!AllCaughtUp()) return Fail(RerunProblem::kUnreadable);
    AppendEvent(data, to_client);
    return true;
  }
  parts_.clear();
  edits_.clear();
  for (const EventChoice& choice : event->choices) {
    const size_t place = PlaceOf(choice.index);
    if (place == kMostOfSecondRun) return Fail(RerunProblem::kUnreadable);
    parts_.push_back({.choice = place, .is_first = !std::exchange(choices_[place].begun, true)});
  }
  if (event->choices.empty()) ++without_choice_;
  if (!TakeTexts(*event) || !TakeEnds(*event)) return false;
  if (!IsNews(*event)) return true;
  EditRest(*event);
  EditHead(*event);
  AppendEvent(WithEdits(data, edits_), to_client);
  return true;
}

bool RerunVerifier::TakeDone(std::string* to_client) {
  if (!AllCaughtUp()) return Fail(RerunProblem::kShort);
  AppendEvent("[DONE]", to_client);
  return true;
}

bool RerunVerifier::TakeTexts(const ChoiceEvent& event) {
  for (const DeltaText& text : event.texts) {
    if (!text.repeats && !TakeText(text, &parts_[text.choice])) return false;
    if (taken_ != 0) edits_.push_back({.part = text.value, .by = JsonQuoted(text.text.substr(taken_))});
  }
  for (size_t i = 0; i < parts_.size(); ++i) {
    const Part& part = parts_[i];
    if (part.dropped && part.fresh && event.choices[i].has_details) return Fail(RerunProblem::kDivided);
  }
  return true;
}

// Leaves in taken_ how many bytes of the text the client has.
bool RerunVerifier::TakeText(const DeltaText& text, Part* part) {
  Choice& choice = choices_[part->choice];
  taken_ = 0;
  if (text.text.empty()) return true;
  if (!choice.caught_up()) {
    const uint64_t missing = choice.target.bytes() - choice.said.bytes();
    const uint64_t mark = choice.said.MarkBytes(text.kind, text.call);
    if (missing <= mark) return Fail(RerunProblem::kText);
    taken_ = static_cast<size_t>(std::min<uint64_t>(missing - mark, text.text.size()));
    choice.said.Add(text.kind, text.call, std::string_view(text.text).substr(0, taken_));
    dropped_bytes_ += taken_;
    part->dropped = true;
    if (choice.caught_up() && choice.said.digest() != choice.target) return Fail(RerunProblem::kText);
  }
  if (taken_ == text.text.size()) return true;
  if (choice.ended) return Fail(RerunProblem::kText);
  part->fresh = true;
  return true;
}

bool RerunVerifier::TakeEnds(const ChoiceEvent& event) {
  for (size_t i = 0; i < parts_.size(); ++i) {
    const bool ends = !event.choices[i].finish_reason.empty();
    if (ends && !choices_[parts_[i].choice].caught_up()) return Fail(RerunProblem::kShort);
  }
  return true;
}

// The client has not all that the event says.
bool RerunVerifier::IsNews(const ChoiceEvent& event) const {
  if (event.choices.empty()) return without_choice_ > known_without_choice_ && AllCaughtUp();
  for (size_t i = 0; i < parts_.size(); ++i) {
    const Part& part = parts_[i];
    const Choice& choice = choices_[part.choice];
    if (part.fresh || !choice.known) return true;
    if (choice.ended) continue;
    if (!event.choices[i].finish_reason.empty()) return true;
    // Behind the place, an event without text goes on as it is. The first one is a role, which the client has.
    if (choice.caught_up() && !part.dropped && !part.is_first) return true;
  }
  return false;
}

void RerunVerifier::EditRest(const ChoiceEvent& event) {
  for (size_t i = 0; i < parts_.size(); ++i) {
    const Choice& choice = choices_[parts_[i].choice];
    if (!choice.known) continue;
    const EventChoice& said = event.choices[i];
    if (parts_[i].is_first && !said.role.empty()) edits_.push_back({.part = said.role, .by = "null"});
    if (choice.ended && !said.finish_reason.empty()) {
      edits_.push_back({.part = said.finish_reason, .by = "null"});
    }
  }
  for (const EventCallId& id : event.call_ids) {
    const Choice& choice = choices_[parts_[id.choice].choice];
    if (id.call < choice.calls) edits_.push_back({.part = id.value, .by = "null"});
  }
}

void RerunVerifier::EditHead(const ChoiceEvent& event) {
  const auto put = [this](std::string_view value, const std::string& first) {
    if (!value.empty() && !first.empty() && value != first) edits_.push_back({.part = value, .by = first});
  };
  put(event.id, id_);
  put(event.created, created_);
  put(event.model, model_);
}

bool RerunVerifier::AllCaughtUp() const {
  return std::ranges::all_of(choices_, [](const Choice& choice) { return choice.caught_up(); });
}

// kMostOfSecondRun: there are too many.
size_t RerunVerifier::PlaceOf(uint64_t index) {
  const auto found = std::ranges::find(choices_, index, &Choice::index);
  if (found != choices_.end()) return static_cast<size_t>(found - choices_.begin());
  if (choices_.size() == kMostOfSecondRun) return kMostOfSecondRun;
  choices_.push_back({.index = index});
  return choices_.size() - 1;
}

}  // namespace vllm_router
