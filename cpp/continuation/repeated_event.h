// RepeatedEvent: the event that most events of a stream are: the bytes of an earlier one around another text. It is told by
// a comparison of bytes, where ReadChoiceEvent() reads JSON.
//
//   learned  data: {"id":"x","choices":[{"index":0,"delta":{"content":"Hi"},"finish_reason":null}]}\n\n
//            |------------------------ front -------------------------|  |---------- back ---------|
//   matches  the same front, a text without a raw quote or line end, the same back
//
// An event that matches says what the learned one said, but for its text: a string of JSON ends at the first
// unescaped quote, so all that stands around it is read alike.
//
// Memory: one event, up to kMaxBytes. Cost: two comparisons of bytes, and a look at each byte of the text. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "continuation/choice_event.h"
#include "continuation/transcript.h"

namespace vllm_router {

class RepeatedEvent {
 public:
  static constexpr size_t kMaxBytes = 1024;  // of front and back together

  struct Match {
    size_t bytes = 0;               // of the event; 0: another one, or not all of it is there
    std::string_view spelled = {};  // the text between its quotes
    bool is_escaped = false;        // there is a backslash in it
  };

  // `event`: its bytes in the stream, all of them, and what was read of its data. Forgets the one before; learns nothing of
  // an event that does more than add one text to one choice, or whose data is not its one line.
  void Learn(std::string_view event, std::string_view data, const ChoiceEvent& read);
  void Forget() { around_.clear(); }

  // Of the event at the beginning of `stream`.
  Match Find(std::string_view stream) const;

  // Of the learned event; what its text is of.
  uint64_t index() const { return index_; }
  TextKind kind() const { return kind_; }
  uint64_t call() const { return call_; }

 private:
  std::string around_;  // front and back; empty: nothing was learned
  size_t front_ = 0;    // bytes, the opening quote included
  uint64_t index_ = 0;
  uint64_t call_ = 0;
  TextKind kind_ = TextKind::kContent;
};

}  // namespace vllm_router
