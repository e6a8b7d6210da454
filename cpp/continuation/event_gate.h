// EventGate: the whole events of a stream, out of pieces that end anywhere; an event that says that the worker failed does
// not pass.
//
//   bytes  data: {…}\n\n data: {…}\n\n da | ta: {"error":{"code":500}}\n\n
//   out    data: {…}\n\n data: {…}\n\n    |                                 ending() == kServerError, held() has the event
//
// So a client is always at the end of an event, where another stream may follow, and does not see why it follows. An event
// that does not pass is one by which StreamTail tells the end of a response (http/stream_tail.h): an error of the server,
// or a choice that the engine aborted. What was held goes to the client if nothing follows. Of an event that exceeds
// so many bytes, and from then on, everything passes as it comes.
//
// No byte is changed, added or left out: what passed and what is held is what came. Cost: a copy, and a search for two
// words. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace vllm_router {

// Looks for the end of the first event of a stream, with the empty line behind it. Lines end with LF, CR or CRLF.
class EventEnd {
 public:
  // The event's length; npos: it is incomplete. `stream`: that of the last call, and more; what was searched is not
  // searched again.
  size_t Find(std::string_view stream);

 private:
  size_t line_ = 0;      // where the last line begins
  size_t searched_ = 0;  // up to here it has no end
};

class EventGate {
 public:
  static constexpr size_t kMaxHeldBytes = size_t{1} << 20;

  enum class Ending : uint8_t { kNone, kAborted, kServerError };

  explicit EventGate(size_t most_held_bytes = kMaxHeldBytes) : most_held_bytes_(most_held_bytes) {}

  // What passes now; valid until the next call.
  std::string_view Take(std::string_view bytes);

  Ending ending() const { return ending_; }
  // What came and did not pass: an incomplete event, or the one that is an ending with all that follows it.
  std::string_view held() const { return held_; }
  bool passes_all() const { return passes_all_; }

 private:
  size_t most_held_bytes_;
  std::string held_;
  std::string passed_;
  EventEnd end_;  // of the first event of held_
  Ending ending_ = Ending::kNone;
  bool passes_all_ = false;
};

}  // namespace vllm_router
