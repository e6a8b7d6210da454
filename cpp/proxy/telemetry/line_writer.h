// LineWriter writes the lines of all threads in a thread of its own. So a full disk, or a pipe without a
// reader, delays neither a request nor a health check. The access log and the traffic log have one each.
//
//   thread 0  Telemetry --Take--.
//   thread 1  Telemetry --Take--+--> waiting, at most kMaxAccessLogBytes --> thread --> sink
//
// Without room, Take() leaves the lines to the Telemetry, which keeps as many again and then drops and
// counts. Cost: a lock and a copy of at most 64 KiB per Take(). Thread-safe.
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
  using Sink = std::function<void(std::string_view lines)>;  // may block

  // The thread may outlive this object (Close()); what the sink refers to must outlive the thread.
  explicit LineWriter(Sink sink);
  ~LineWriter();  // Close(), unless already called

  // The number of a line that is to be written: 1, 2, … over all threads. A gap in the output shows
  // dropped lines.
  uint64_t NextNumber();
  // True: `lines` have been taken over, and the string is empty. False: there was no room.
  bool Take(std::string* lines);
  // Waits until everything taken has been written, for at most `timeout_ms`. Returns true if it has.
  bool WaitUntilWritten(int64_t timeout_ms) const;
  // The same, and then ends the thread; a thread that hangs in the sink is left behind.
  void Close();

 private:
  struct State;
  static void Run(State& state);

  const std::shared_ptr<State> state_;  // shared with the thread, which may be left behind
  std::thread thread_;
};

}  // namespace vllm_router
