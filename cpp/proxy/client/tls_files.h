// TlsFiles: the certificates, keys and CAs that the flags name, as last read.
//
//   --tls-cert-path, --tls-key-path     presented to clients; without them clients connect without TLS
//   --worker-ca-file, …                 for workers at https://, whose certificates are checked
//
// Reload() reads all of them again. If any has an error, it is logged and the previous ones stay in
// force. Existing connections keep what they started with. Thread-safe, but Reload() belongs to one
// thread.
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

  // Null: clients connect without TLS.
  std::shared_ptr<const TlsContext> clients() const;
  // Made on first use, which takes some ms if the system CAs are to be read; null if that fails.
  std::shared_ptr<const TlsContext> workers();
  // For external services: the system CAs, likewise.
  std::shared_ptr<const TlsContext> others();

  bool Reload();
  const Counter& reloads_done() const { return reloads_done_; }
  const Counter& reloads_failed() const { return reloads_failed_; }

  // When the certificates presented to clients and workers expire, Unix time in seconds; nullopt: none
  // is presented.
  std::optional<int64_t> clients_certificate_ends() const;
  std::optional<int64_t> workers_certificate_ends() const;

  bool any() const;  // whether the options name any file

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
