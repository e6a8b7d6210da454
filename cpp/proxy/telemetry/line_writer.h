// LineWriter: writes the lines of all threads in a thread of its own, so that a full disk or a pipe that nobody reads holds
// up neither a request nor a health check. The access log and the record log have one each.
//
//   thread 0  Telemetry --Take--.
//   thread 1  Telemetry --Take--+--> waiting, at most kMaxAccessLogBytes --> thread --> sink
//
// When there is no room, Take() leaves the lines to the Telemetry, which keeps as many again and then drops and counts.
// Cost: a lock and a copy of 64 KiB at most per Take(). Thread-safe.
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

  // The thread may outlive this (Close()), and what the sink refers to must outlive the thread.
  explicit LineWriter(Sink sink);
  ~LineWriter();  // Close(), unless that has been done

  // Of a line that is to be written: 1, 2, … over all threads. A gap in what was written says that lines were dropped.
  uint64_t NextNumber();
  // True: `lines` have been taken over, and the string is empty. False: there was no room.
  bool Take(std::string* lines);
  // Waits until everything taken has been written, and gives up after `timeout_ms`. True if it has.
  bool WaitUntilWritten(int64_t timeout_ms) const;
  // The same, and then the thread ends; one that hangs in the sink is left behind.
  void Close();

 private:
  struct State;
  static void Run(State& state);

  const std::shared_ptr<State> state_;  // the thread's as well, since it may be left behind
  std::thread thread_;
};

}  // namespace vllm_router
