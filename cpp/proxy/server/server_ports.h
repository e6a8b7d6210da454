// ServerPorts: where a server listens: one port for clients, which all data threads share, and ports that the control thread
// serves for admins and for metrics, if they are configured. They admit connections up to --max-connections.
//
//   OpenPublic(), OpenAside()   listen; clients wait in the kernel's queue
//   Start()                     accept
//   Yield()                     another process that listens on the port gets what is new
//
// Opened, started and closed while no thread runs. The ports' numbers from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/status.h"
#include "net/listener.h"
#include "proxy/api/server_options.h"
#include "proxy/exchange/connection.h"
#include "proxy/exchange/step.h"

namespace vllm_router {

class ServerThreads;

class ServerPorts {
 public:
  // Both outlive it.
  ServerPorts(const FixedOptions& options, const ServerThreads& threads);
  ~ServerPorts();

  // `pipeline` outlives the threads.
  Status OpenPublic(const Pipeline& pipeline);
  Status OpenAside(const Pipeline& pipeline);
  void Start();
  // All, when no thread runs any more.
  void Close();

  uint16_t port() const { return port_; }
  std::optional<uint16_t> admin_port() const { return PortOf(admin_); }
  std::optional<uint16_t> metrics_port() const { return PortOf(metrics_); }

  // For shutdown, on the control thread. Whether another process listens too, and gets the new connections from now on:
  // `ours` sockets of this process are left.
  bool Yield(size_t ours) { return public_.front()->YieldPort(ours); }
  // To be stopped on its data thread.
  Listener& listener(size_t data_thread) const { return *public_[data_thread]; }
  void StopAside();

 private:
  static std::optional<uint16_t> PortOf(const std::unique_ptr<Listener>& listener);
  StatusOr<std::unique_ptr<Listener>> Open(
      IoThread& thread, const Listener::Where& where, ListenerKind kind, const Pipeline& pipeline) const;
  bool MakeRoom(IoThread& thread, ListenerKind kind) const;

  const FixedOptions& options_;
  const ServerThreads& threads_;
  std::vector<std::unique_ptr<Listener>> public_;  // of each data thread
  std::unique_ptr<Listener> admin_;                // null: there is none
  std::unique_ptr<Listener> metrics_;              // likewise
  uint16_t port_ = 0;
};

}  // namespace vllm_router
