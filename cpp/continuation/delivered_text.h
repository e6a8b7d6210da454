// DeliveredText: what a client has of a stream of completions or chat completions, as far as another run of the request
// is compared with it: a transcript of each choice, and what the first event called the response.
//
//   DeliveredText delivered;
//   delivered.Add(bytes);          // of the body, as the client gets them, in any pieces
//   delivered.ok()                 // false: of more choices than are kept, or of events that cannot be read
//
// Memory: 56 bytes a choice, and at most kMaxHeadBytes; the text is not kept. One event is kept while it is
// incomplete, so pieces may end anywhere. After a continuation it goes on with the bytes of the new stream that the client
// gets, if those before end with an event. Cost: that of RepeatedEvent::Find() for an event that differs from the one before
// in its text alone, else that of ReadChoiceEvent(). One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "continuation/choice_event.h"
#include "continuation/eligibility.h"
#include "continuation/repeated_event.h"
#include "continuation/transcript.h"
#include "http/sse_reader.h"

namespace vllm_router {

class DeliveredText {
 public:
  static constexpr size_t kMaxChoices = 16;
  static constexpr size_t kMaxHeadBytes = 512;  // of id, created and model together
  static constexpr size_t kMaxEventBytes = size_t{1} << 20;

  struct Choice {
    uint64_t index = 0;
    Transcript said = {};
    bool ended = false;  // with a finish_reason
  };

  // `tail`, which outlives it, gets the text of the first choice; null: nothing does.
  explicit DeliveredText(TextTail* tail = nullptr) : reader_(kMaxEventBytes), tail_(tail) {}

  void Add(std::string_view bytes);
  // Of bytes that Add() would get, takes the whole events at their front that differ from the one before in their text
  // alone: none of them is an error, or the end of a choice. Returns their bytes.
  size_t AddRepeated(std::string_view bytes);

  bool ok() const { return ok_; }
  bool done() const { return done_; }  // [DONE] was among the bytes
  // All of so many choices have ended.
  bool AllEnded(size_t choices) const;
  // Where its first choice is.
  ContinuePhase phase() const;
  std::span<const Choice> choices() const { return choices_; }
  // Events of no choice, as the one that has the usage alone.
  uint64_t events_without_choice() const { return events_without_choice_; }
  // Of the first event, as spelled; empty if it had none.
  const std::string& id() const { return id_; }
  const std::string& created() const { return created_; }
  const std::string& model() const { return model_; }

 private:
  bool TakeEvent(std::string_view event, std::string_view data);
  bool TakeRepeated(const RepeatedEvent::Match& match);
  bool TakeHead(const ChoiceEvent& event);
  Choice* ChoiceOf(uint64_t index);
  void Say(Choice* choice, TextKind kind, uint64_t call, std::string_view text);

  SseReader reader_;
  TextTail* tail_;
  RepeatedEvent repeated_;  // what the last event was
  std::vector<Choice> choices_;
  uint64_t events_without_choice_ = 0;
  std::string id_;
  std::string created_;
  std::string model_;
  bool has_head_ = false;
  bool ok_ = true;
  bool done_ = false;
  bool between_events_ = true;
};

}  // namespace vllm_router
