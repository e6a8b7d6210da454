// TlsFiles: the certificates, keys and authorities that the flags name, as they were when they were read last.
//
//   --tls-cert-path, --tls-key-path     what clients are shown; without them clients come in plain
//   --worker-ca-file, …                 for workers at https://, whose certificates are checked
//
// Reload() reads all of them again; with a mistake in any, the log says so and what was read before stays in force.
// Connections that exist keep what they began with. Thread-safe, but Reload() is one thread's.
#pragma once

#include <memory>
#include <mutex>
#include <optional>

#include "base/status.h"
#include "proxy/api/server_options.h"
#include "proxy/telemetry/counters.h"

namespace vllm_router {

class TlsContext;

class TlsFiles {
 public:
  // FailedPrecondition names the file.
  static StatusOr<std::unique_ptr<TlsFiles>> Open(const ServerOptions& options);

  // Null: clients come in plain.
  std::shared_ptr<const TlsContext> clients() const;
  // Made when it is first asked for, which takes some ms where the system's authorities are to be read; null if it
  // cannot be.
  std::shared_ptr<const TlsContext> workers();
  // For those that are neither clients nor workers: the system's authorities, likewise.
  std::shared_ptr<const TlsContext> others();

  bool Reload();
  const Counter& reloads_done() const { return reloads_done_; }
  const Counter& reloads_failed() const { return reloads_failed_; }

  // When the certificates that clients and workers are shown end, Unix time in seconds; nullopt: they are shown none.
  std::optional<int64_t> clients_certificate_ends() const;
  std::optional<int64_t> workers_certificate_ends() const;

  bool any() const;  // file that the options name

 private:
  explicit TlsFiles(const ServerOptions& options) : options_(options) {}
  StatusOr<std::shared_ptr<const TlsContext>> MakeClients() const;
  StatusOr<std::shared_ptr<const TlsContext>> MakeWorkers() const;
  bool names_worker_files() const;
  bool ReadAgain();

  const ServerOptions options_;
  mutable std::mutex mutex_;  // leaf; guards all three
  std::shared_ptr<const TlsContext> clients_;
  std::shared_ptr<const TlsContext> workers_;
  std::shared_ptr<const TlsContext> others_;
  Counter reloads_done_;
  Counter reloads_failed_;
};

}  // namespace vllm_router
