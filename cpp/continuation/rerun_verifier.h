// RerunVerifier: the second run of a request whose first stream was lost. What the client has is compared and dropped;
// what is new goes to the client as a part of the first stream.
//
//   the client has      "The sea is"
//   second run          {"content":"The "} {"content":"sea"} {"content":" is blue"} {"content":"."}
//   goes to the client                                       {"content":" blue"}    {"content":"."}
//
//   RerunVerifier verifier(delivered);
//   state = verifier.Add(bytes, &to_client);       // bytes of the body, in any pieces; to_client grows by whole events
//
// The transcripts of both runs are compared (transcript.h), choice by choice, and not their events, whose sizes depend on
// the load of the engine. As soon as a choice of the new run is as long as what the client has of it, digests are
// compared. They differ, or the new run ends earlier: kDiffers, and from then on nothing goes to the client. So a client
// has the text of one run, or a stream that was cut.
//
// An event that crosses the place is kept with the new part of its texts. One with log probabilities or token ids cannot
// be divided: that is kDiffers, too. Of each event that goes on, id, created and model become those of the first stream;
// ids of tool calls that the client knows become null, as it has them. The usage is the second run's, which is a whole
// one. An event of another shape goes on behind the
// place as it is. Comments are dropped, and so are events that only repeat: a role, an empty text, a finish_reason.
//
// Memory: 80 bytes a choice and one incomplete event. Cost: that of ReadChoiceEvent() per event, and a copy of
// what goes on. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "continuation/choice_event.h"
#include "continuation/delivered_text.h"
#include "http/sse_reader.h"

namespace vllm_router {

enum class RerunState : uint8_t {
  kVerifying,  // of some choice the new run is shorter than what the client has
  kCaughtUp,   // every byte that comes is new
  kDiffers,
};

enum class RerunProblem : uint8_t {
  kNone,
  kText,        // it says something else, or goes on where the first one had ended
  kShort,       // it ends before the place
  kDivided,     // an event with log probabilities or token ids crosses the place
  kUnreadable,  // an event of another shape in front of the place, or one that is too long
};
inline constexpr size_t kRerunProblems = 5;
std::string_view RerunProblemName(RerunProblem problem);

class RerunVerifier {
 public:
  // REQUIRES: delivered.ok(). What is needed of it is copied.
  explicit RerunVerifier(const DeliveredText& delivered);
  // The same for a run that goes on behind what the client has, but for these last bytes of its text, which come again.
  // REQUIRES: one choice at most.
  RerunVerifier(const DeliveredText& delivered, TextKind kind, std::string_view repeated);

  RerunState Add(std::string_view bytes, std::string* to_client);

  RerunState state() const;
  RerunProblem problem() const { return problem_; }
  uint64_t dropped_bytes() const { return dropped_bytes_; }  // of text, over all choices

 private:
  struct Choice {
    uint64_t index = 0;
    TextDigest target = {};  // of what the client has
    uint64_t calls = 0;      // that the client knows
    bool ended = false;      // for the client
    bool begun = false;      // in the new run
    bool known = false;      // by the client
    Transcript said = {};    // by the new run, up to the target

    bool caught_up() const { return said.bytes() == target.bytes(); }
  };
  // Of a choice in one event.
  struct Part {
    size_t choice = 0;
    bool dropped = false;  // some of its text
    bool fresh = false;    // some of its text is new
    bool is_first = false;
  };

  bool TakeEvent(std::string_view data, std::string* to_client);
  bool TakeDone(std::string* to_client);
  bool TakeTexts(const ChoiceEvent& event);
  bool TakeText(const DeltaText& text, Part* part);
  bool TakeEnds(const ChoiceEvent& event);
  bool IsNews(const ChoiceEvent& event) const;
  void EditRest(const ChoiceEvent& event);
  void EditHead(const ChoiceEvent& event);
  bool AllCaughtUp() const;
  size_t PlaceOf(uint64_t index);
  bool Fail(RerunProblem problem) {
    problem_ = problem;
    return false;
  }

  SseReader reader_;
  std::vector<Choice> choices_;
  std::vector<Part> parts_;              // of the event under way, as its choices
  std::vector<TextEdit> edits_;          // as the texts of the event, and others
  size_t taken_ = 0;                     // of the text before, which may be repeated
  const uint64_t known_without_choice_;  // events that the client has; the first ones of the new run
  uint64_t without_choice_ = 0;          // events of the new run
  const std::string id_;
  const std::string created_;
  const std::string model_;
  uint64_t dropped_bytes_ = 0;
  RerunProblem problem_ = RerunProblem::kNone;
};

}  // namespace vllm_router
