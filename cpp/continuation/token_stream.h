// TokenStream: the token ids of one stream, noted as its events pass, and what the client sees of these events.
//
//   engine   {"text":"Hi","prompt_token_ids":[1,2],"token_ids":[7]}
//   client   {"text":"Hi","prompt_token_ids":null,"token_ids":null}      as without "return_token_ids" in the request
//
// Each run of the request is read by the way in which it came about:
//
//   first        its ids are those of the stream
//   BeginRerun() it is compared with what the client has; its ids are the stream's from PromoteRun() on
//   BeginRest()  its prompt has to be all ids so far, or it is unfit(): so says its first event that is no comment, or
//                EndRun(). Its ids follow them. Of its usage and the places in its text the client sees those of the whole.
//
//   std::string_view for_client = tokens.Take(event);   // a whole event; empty: the client gets none of it
//   tokens.Mark();                                      // once the client has what it gets
//
// Where an event ended in the text is kept for the last kPlaces of them (settle.h looks there). Ids are forgotten for good,
// and known() is false, once an event has a text and no ids, or what is there cannot be read, or there is no memory for it.
// What the client sees stays the same.
//
// Memory: 2.8 bytes an id, and some hundred. `Room`: asked before it grows. One thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "continuation/id_log.h"
#include "continuation/token_event.h"
#include "continuation/transcript.h"

namespace vllm_router {

class TokenStream {
 public:
  static constexpr size_t kPlaces = 16;

  // May so many more bytes be used? Null: they may.
  struct Room {
    bool (*grow)(void* context, uint64_t bytes) = nullptr;
    void* context = nullptr;
  };
  struct Options {
    bool hides = true;         // the client did not ask for ids
    bool is_chat = false;      // whose events may be there for ids alone
    uint64_t most_ids = 1000;  // of prompt and output together; 0: none are kept
    Room room = {};
  };
  // What was delivered when an event had passed.
  struct Place {
    size_t ids = 0;
    uint64_t bytes = 0;
  };

  explicit TokenStream(const Options& options);

  std::string_view Take(std::string_view event);
  void Mark();
  // The run is whole.
  void EndRun();
  // Events that end the stream, as the client sees them.
  std::string Hidden(std::string_view events) const;

  void BeginRerun();
  // A rerun has said all that the client has. Behind the event by which it has, in front of Mark().
  void PromoteRun();
  // The ids behind the first ones are drawn again. `swallowed`: what the client has behind their text, which comes again.
  // REQUIRES: known().
  void BeginRest(size_t ids, std::string_view swallowed);
  bool unfit() const { return unfit_; }
  // Nothing says yet what the prompt of the rest was.
  bool lacks_receipt() const { return run_ == Run::kRest && !has_event_; }
  bool hides() const { return options_.hides; }

  // Prompt and output are known, so another request can go on.
  bool known() const { return has_prompt_ && !is_forgotten_; }
  const IdLog& prompt() const { return prompt_; }
  const IdLog& output() const { return output_; }
  // Of the last events, the oldest first.
  std::vector<Place> places() const;
  // What the client has; DeliveredText adds to it.
  TextTail& tail() { return tail_; }
  const TextTail& tail() const { return tail_; }
  // Where this run began; zeros: at the request's own prompt.
  const TokensBefore& before() const { return before_; }
  uint64_t bytes() const { return taken_; }  // that `room` has granted

 private:
  enum class Run : uint8_t { kFirst, kRerun, kRest };

  void Note(const TokenEvent& event);
  bool NotePrompt(std::string_view array);
  enum class Before : uint8_t { kPrompt, kAll };
  bool IsBefore(Before before, std::string_view array) const;
  void Grow();
  void Forget();
  std::string_view Edited(std::string_view event, std::string_view data, const TokenEvent& read);

  const Options options_;
  IdLog prompt_;
  IdLog output_;
  IdLog rerun_;  // output of a run that is compared
  TextTail tail_;
  std::array<Place, kPlaces> places_{};  // a ring
  size_t placed_ = 0;
  TokensBefore before_;
  std::string edited_;
  uint64_t marked_bytes_ = 0;
  uint64_t taken_ = 0;
  uint64_t reasoning_ = 0;  // ids of events that had some
  Run run_ = Run::kFirst;
  bool has_prompt_ = false;
  bool is_forgotten_ = false;
  bool has_event_ = false;  // of this run
  bool had_ids_ = false;    // the last event
  bool unfit_ = false;
};

// Whole events, as the client would see them. For a run that is compared before it takes the place of another.
std::string WithoutIds(std::string_view events, bool is_chat);

}  // namespace vllm_router
