// LoadPoller: asks every worker, at an interval, how many requests it has, ours and those of others, so that policies see
// what other routers send it (docs/reference/policies.md, "Reported load").
//
//   reported 9, of which 4 are ours   ->   5 of others   ->   WorkerLoad::requests() = open requests + 5
//
// The same of requests that wait, where the worker tells them apart.
// Where a worker says so is found out by LoadSource. What is not heard for kForgottenPolls polls counts as none. The
// counters that tickets write are only read. On the control thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "net/event_loop.h"
#include "net/task.h"
#include "proxy/client/load_report.h"
#include "worker/worker.h"

namespace vllm_router {

struct IoThread;

class LoadPoller {
 public:
  static constexpr int kForgottenPolls = 3;

  explicit LoadPoller(IoThread& thread);

  void Start();  // the first poll comes after one interval
  // Ends in one of the loop's next turns, polls under way when they do.
  void Stop();
  bool ended() const { return open_ == 0; }

 private:
  struct Host {
    LoadSource source;
    bool polled = false;  // and not answered yet
    int missed = 0;       // polls in a row
  };
  using Workers = std::vector<std::shared_ptr<Worker>>;

  Task<void> Run();
  Task<void> Poll(std::shared_ptr<Host> host, Workers workers);

  IoThread& thread_;
  Delay delay_;
  bool stopped_ = false;
  int open_ = 0;                                        // coroutines of ours
  std::map<std::string, std::shared_ptr<Host>> hosts_;  // by base URL
};

}  // namespace vllm_router
