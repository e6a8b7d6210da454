// ServerReloads: the files of a server that are read again while it runs: keys, certificates, and the traffic log, which may
// have been moved (proxy/telemetry/reloadable.h).
//
//   each second   a file that has changed
//   SIGHUP        Reload(): all of them, and the logs
//   SIGUSR1       ReopenLogs(): the logs alone
//
// Reload() and ReopenLogs() from any thread; both return when that is done.
#pragma once

#include <initializer_list>
#include <vector>

#include "base/mutex.h"
#include "net/event_loop.h"
#include "proxy/telemetry/reloadable.h"

namespace vllm_router {

class ServerReloads {
 public:
  // All outlive it. Those of `files` that are null are left out. `traffic_log`: one of them, or null.
  ServerReloads(EventLoop& control, std::initializer_list<Reloadable*> files, Reloadable* traffic_log);

  const std::vector<Reloadable*>& files() const { return files_; }

  // Start() and Stop() on the control thread.
  void Start();
  void Stop() { timer_.Disarm(); }

  // The result is logged.
  void Reload();
  // Opens the files of the log and of the traffic log again, which may have been moved.
  void ReopenLogs();

 private:
  static void OnTimer(void* reloads);

  EventLoop& control_;
  std::vector<Reloadable*> files_;
  Reloadable* const traffic_log_;
  Mutex reload_mutex_;  // held while files are read
  Mutex reopen_mutex_;  // the same of logs, whose disk no other thread shall wait for
  Timer timer_;
};

}  // namespace vllm_router
