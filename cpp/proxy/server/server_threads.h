// ServerThreads: the I/O threads of a server: data threads, which serve clients, and behind them the control thread. What
// they have (IoThread) is there from the start, for others to refer to; they run from Run() on.
//
//   threads.Run(close_logs);
//   threads.OnDataThreads([](IoThread& thread) { … });     on each, soon
//   threads.Wait(-1);                                      their loops have stopped
//
// The destructor joins them. All methods from any thread, except where a comment says otherwise.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "proxy/thread/io_thread.h"

namespace vllm_router {

class ServerThreads {
 public:
  using Make = std::function<std::unique_ptr<IoThread>()>;

  // One data thread at least.
  ServerThreads(uint32_t data_threads, const Make& make);
  ~ServerThreads();

  std::span<const std::unique_ptr<IoThread>> all() const { return threads_; }
  std::span<const std::unique_ptr<IoThread>> data() const { return all().first(threads_.size() - 1); }
  IoThread& control() const { return *threads_.back(); }
  const std::vector<const Telemetry*>& telemetries() const { return telemetries_; }

  void OnDataThreads(const std::function<void(IoThread&)>& action) const;
  // The same, for each connection of a client.
  void OnConnections(std::function<void(Connection&)> action) const;
  int64_t OpenConnections() const;  // of the data threads

  // Once. `at_end` is called by the last thread that ends; then Wait() returns.
  void Run(std::function<void()> at_end);
  bool running() const { return !running_threads_.empty(); }
  // True when all have ended; false after `timeout_ms` (negative: no limit).
  bool Wait(int64_t timeout_ms);
  // Not on one of them. REQUIRES: Wait() returned true.
  void Join();

 private:
  void Serve(IoThread& thread);

  std::vector<std::unique_ptr<IoThread>> threads_;  // the last one is the control thread
  std::vector<const Telemetry*> telemetries_;
  std::function<void()> at_end_;
  std::vector<std::thread> running_threads_;
  std::atomic<size_t> running_{0};
  Mutex mutex_;
  std::condition_variable ended_signal_;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace vllm_router
