// LineWriter writes the lines of all threads in a thread of its own. So a full disk, or a pipe without a
// reader, delays neither a request nor a health check. The access log and the traffic log have one each,
// and so has each destination of the log (log.cc).
//
//   thread 0  Take or Put --.
//   thread 1  Take or Put --+--> waiting, at most kMaxAccessLogBytes --> thread --> sink
//
// Without room, Take() leaves the lines to the caller: Telemetry keeps as many again and then drops and
// counts. Put() is for callers that cannot keep them: it drops and counts. It goes on dropping until the sink
// has returned, and then the notice says how many lines are missing at that place.
//
// The thread starts with the first line, so what never has one costs no thread. It takes no signals, SIGPIPE
// included. Cost: a lock and a copy of at most 64 KiB per call. Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

namespace vllm_router {

class LineWriter {
 public:
  using Sink = std::function<void(std::string_view lines)>;     // may block; empty after a Wake()
  using Notice = std::function<std::string(uint64_t dropped)>;  // a line for the sink, or nothing

  // The thread may outlive this object (Close()); what the sink refers to must outlive the thread.
  explicit LineWriter(Sink sink, Notice notice = nullptr);
  ~LineWriter();  // Close(), unless already called

  // The number of a line that is to be written: 1, 2, … over all threads. A gap in the output shows
  // dropped lines.
  uint64_t NextNumber();
  // True: `lines` have been taken over, and the string is empty. False: there was no room.
  bool Take(std::string* lines);
  // Takes the lines, or drops all of them for want of room.
  void Put(std::string_view lines);
  uint64_t dropped() const;  // lines, by Put()
  // Calls the sink soon, even if no line waits.
  void Wake();
  // Waits until everything taken has been written, for at most `timeout_ms`. Returns true if it has.
  bool WaitUntilWritten(int64_t timeout_ms) const;
  // The same, and then ends the thread; a thread that hangs in the sink is left behind. Returns true unless it
  // is. Put() drops what comes later.
  bool Close();

 private:
  struct State;
  static void Run(State& state);
  static void WakeLocked(const std::shared_ptr<State>& state);

  const std::shared_ptr<State> state_;  // shared with the thread, which may be left behind
};

// Lines of a text; a last one need not be ended.
uint64_t CountLines(std::string_view text);

}  // namespace vllm_router
