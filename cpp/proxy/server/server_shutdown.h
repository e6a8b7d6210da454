// ServerShutdown: how a server ends. A coroutine of the control thread:
//
//   settle    not ready any more, but still accepting, since load balancers need time to notice; a successor on the same
//             port gets the new connections
//   drain     no new connections; what is in flight may end within --shutdown-grace-period-secs
//   cut       what is left
//   end       calls in the background, services, endpoints; then the threads' loops stop
//
// Begin() and cut() from any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

#include "net/task.h"

namespace vllm_router {

class Admin;
class Configuration;
class KeyValidator;
class ServerPorts;
class ServerReloads;
class ServerThreads;
class Services;
struct IoThread;

class ServerShutdown {
 public:
  // What ends, in parts that outlive it.
  struct Parts {
    const ServerThreads& threads;
    ServerPorts& ports;
    ServerReloads& reloads;
    Services& services;
    Admin& admin;
    Configuration& configuration;
    const KeyValidator* validator;  // null: none
  };
  explicit ServerShutdown(const Parts& parts) : parts_(parts) {}

  // A second call cuts what is still in flight.
  void Begin();
  // Exchanges that were cut at the end of the grace period. REQUIRES: the threads have ended.
  uint64_t cut() const { return cut_; }

 private:
  Task<void> Run();
  Task<bool> Settle();  // whether a successor listens
  Task<void> StopListening(bool relieved);
  Task<void> EndExchanges();
  Task<void> EndBackgroundCalls();
  Task<void> EndControl();
  Task<void> WaitUntil(std::function<bool()> done, int64_t nanos, bool may_hurry);
  Task<void> Pause(int64_t nanos);
  bool AllClosed() const;

  const Parts parts_;
  std::atomic<bool> begun_{false};
  std::atomic<bool> cut_now_{false};
  std::atomic<uint64_t> cut_{0};
};

}  // namespace vllm_router
