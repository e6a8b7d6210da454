// TlsFiles: the certificates, keys and CAs that the flags name, as last read.
//
//   --tls-cert-path, --tls-key-path     presented to clients; without them clients connect without TLS
//   --epp-tls                           the same for gateways that have workers picked
//   --worker-ca-file, …                 for workers at https://, whose certificates are checked
//
// A Reloadable: all of them are read again. If any has an error, it is logged and the previous ones stay
// in force. Existing connections keep what they started with. Thread-safe, but for reloads
// (proxy/telemetry/reloadable.h).
#pragma once

#include <memory>
#include <optional>

#include "base/mutex.h"
#include "base/status.h"
#include "proxy/api/server_options.h"
#include "proxy/telemetry/reloadable.h"

namespace vllm_router {

class TlsContext;

class TlsFiles final : public Reloadable {
 public:
  // FailedPrecondition names the file.
  static StatusOr<std::unique_ptr<TlsFiles>> Open(const ServerOptions& options)
      ABSL_NO_THREAD_SAFETY_ANALYSIS;  // no other thread has it yet

  // Null: clients connect without TLS.
  std::shared_ptr<const TlsContext> clients() const;
  // The same certificate for gateways that speak gRPC to --epp-port; null: they connect without TLS.
  std::shared_ptr<const TlsContext> gateways() const;
  // Made on first use, which takes some ms if the system CAs are to be read; null if that fails.
  std::shared_ptr<const TlsContext> workers();
  // For external services: the system CAs, likewise.
  std::shared_ptr<const TlsContext> others();

  // When the certificates presented to clients and workers expire, Unix time in seconds; nullopt: none
  // is presented.
  std::optional<int64_t> clients_certificate_ends() const;
  std::optional<int64_t> workers_certificate_ends() const;

  bool any() const;  // whether the options name any file

 private:
  explicit TlsFiles(const ServerOptions& options) : Reloadable("certificates"), options_(options) {}
  StatusOr<std::shared_ptr<const TlsContext>> MakeClients(bool speaks_http2) const;
  StatusOr<std::shared_ptr<const TlsContext>> MakeWorkers() const;
  bool names_worker_files() const;
  Status ReadAgain() override;

  const ServerOptions options_;
  mutable Mutex mutex_;  // leaf
  std::shared_ptr<const TlsContext> clients_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<const TlsContext> gateways_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<const TlsContext> workers_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<const TlsContext> others_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace vllm_router
