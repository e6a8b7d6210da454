#include "proxy/client/tls_files.h"

#include <string>
#include <utility>

#include "base/log.h"
#include "base/text.h"
#include "net/tls.h"

namespace vllm_router {
namespace {

using Context = std::shared_ptr<const TlsContext>;

TlsVersion Least(const ServerOptions& options) {
  return options.tls_min_version == "1.3" ? TlsVersion::k13 : TlsVersion::k12;
}

void Complain(const Status& status) { Log(LogLevel::kError, Concat("TLS: ", std::string(status.message()))); }

}  // namespace

StatusOr<std::unique_ptr<TlsFiles>> TlsFiles::Open(const ServerOptions& options) {
  ROUTER_RETURN_IF_ERROR(CheckTlsCiphers(options.tls_ciphers));
  std::unique_ptr<TlsFiles> files(new TlsFiles(options));
  StatusOr<Context> clients = files->MakeClients(/*speaks_http2=*/false);
  if (!clients.ok()) return clients.status();
  files->clients_ = *std::move(clients);
  if (options.epp_tls) {
    StatusOr<Context> gateways = files->MakeClients(/*speaks_http2=*/true);
    if (!gateways.ok()) return gateways.status();
    files->gateways_ = *std::move(gateways);
  }
  if (files->names_worker_files()) {
    StatusOr<Context> workers = files->MakeWorkers();
    if (!workers.ok()) return workers.status();
    files->workers_ = *std::move(workers);
  }
  return files;
}

bool TlsFiles::names_worker_files() const {
  return !options_.worker_ca_file.empty() || !options_.worker_cert_path.empty();
}

bool TlsFiles::any() const { return !options_.tls_cert_path.empty() || names_worker_files(); }

StatusOr<Context> TlsFiles::MakeClients(bool speaks_http2) const {
  if (options_.tls_cert_path.empty()) return Context();
  return TlsContext::Make(TlsContext::ForClients{
      .cert_path = options_.tls_cert_path,
      .key_path = options_.tls_key_path,
      .client_ca_path = options_.tls_client_ca_file,
      .least = Least(options_),
      .ciphers = options_.tls_ciphers,
      .speaks_http2 = speaks_http2});
}

StatusOr<Context> TlsFiles::MakeWorkers() const {
  return TlsContext::Make(TlsContext::ForWorkers{
      .ca_path = options_.worker_ca_file,
      .insecure = options_.worker_tls_insecure,
      .cert_path = options_.worker_cert_path,
      .key_path = options_.worker_key_path,
      .least = Least(options_),
      .ciphers = options_.tls_ciphers});
}

Context TlsFiles::clients() const {
  MutexLock lock(mutex_);
  return clients_;
}

Context TlsFiles::gateways() const {
  MutexLock lock(mutex_);
  return gateways_;
}

Context TlsFiles::workers() {
  MutexLock lock(mutex_);
  if (workers_ != nullptr) return workers_;
  StatusOr<Context> made = MakeWorkers();
  if (made.ok()) {
    workers_ = *std::move(made);
  } else {
    Complain(made.status());
  }
  return workers_;
}

Context TlsFiles::others() {
  MutexLock lock(mutex_);
  if (others_ != nullptr) return others_;
  StatusOr<Context> made =
      TlsContext::Make(TlsContext::ForWorkers{.least = Least(options_), .ciphers = options_.tls_ciphers});
  if (made.ok()) {
    others_ = *std::move(made);
  } else {
    Complain(made.status());
  }
  return others_;
}

std::optional<int64_t> TlsFiles::clients_certificate_ends() const {
  MutexLock lock(mutex_);
  return clients_ != nullptr ? clients_->certificate_ends() : std::nullopt;
}

std::optional<int64_t> TlsFiles::workers_certificate_ends() const {
  MutexLock lock(mutex_);
  return workers_ != nullptr ? workers_->certificate_ends() : std::nullopt;
}

Status TlsFiles::ReadAgain() {
  StatusOr<Context> clients = MakeClients(/*speaks_http2=*/false);
  StatusOr<Context> gateways =
      options_.epp_tls ? MakeClients(/*speaks_http2=*/true) : StatusOr<Context>(Context());
  StatusOr<Context> workers = names_worker_files() ? MakeWorkers() : StatusOr<Context>(Context());
  for (const StatusOr<Context>& made : {clients, gateways, workers}) {
    if (made.ok()) continue;
    Complain(made.status());
    Log(LogLevel::kError, "TLS: the previous certificates and keys stay in force");
    return made.status();
  }
  {
    MutexLock lock(mutex_);
    clients_ = *std::move(clients);
    gateways_ = *std::move(gateways);
    others_ = nullptr;
    workers_ = *std::move(workers);  // without files of ours: loads the system CAs when next needed
  }
  Log(LogLevel::kInfo, "TLS: certificates and keys reloaded");
  return absl::OkStatus();
}

}  // namespace vllm_router
