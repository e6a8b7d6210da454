#include "proxy/exchange/attempt_connection.h"

#include <atomic>
#include <cerrno>
#include <utility>
#include <vector>

#include "net/tls.h"
#include "proxy/client/tls_files.h"
#include "proxy/telemetry/telemetry.h"
#include "proxy/thread/io_thread.h"
#include "proxy/thread/quarantine.h"

namespace vllm_router {
namespace {

// Whether errno of a failed connect says something about the worker, and not about this process.
bool IsWorkersFault(int error) {
  return error == ECONNREFUSED || error == ECONNRESET || error == EHOSTUNREACH || error == ENETUNREACH ||
         error == ETIMEDOUT;
}

}  // namespace

bool AttemptConnection::TakeIdle(WorkerId worker) {
  lease_ = thread_.upstreams.Acquire(worker);
  return is_leased();
}

Task<std::optional<HttpError>> AttemptConnection::Connect(const Worker& worker, int64_t timeout_ms) {
  const WorkerUrl& url = worker.url;
  connect_timed_out_ = false;
  deadline_.Arm(thread_.loop.timers(), timeout_ms, &AttemptConnection::OnConnectTimeout, this);
  name_ = std::make_shared<Resolver::Waiter>(thread_.loop);
  StatusOr<std::vector<Address>> addresses = co_await thread_.resolver.Resolve(url.host, name_);
  name_ = nullptr;
  const std::shared_ptr<const TlsContext> tls = url.tls ? thread_.tls.workers() : nullptr;
  int error = ECANCELED;
  Connector connector(thread_.loop, tls, url.host);
  if (addresses.ok() && (tls != nullptr || !url.tls) && !closed_ && !connect_timed_out_) {
    connector_ = &connector;
    error = co_await connector.ConnectToAny(*std::move(addresses), url.port);
    connector_ = nullptr;
  }
  deadline_.Disarm();
  if (closed_) co_return HttpError::kConnectFailed;
  if (error == 0) {
    thread_.telemetry.connections.connects.Add(true);
    lease_ = thread_.upstreams.Adopt(connector.TakeSocket(), worker.id);
    co_return std::nullopt;
  }
  thread_.telemetry.connections.connects.Add(false);
  thread_.resolver.ReportFailure(url.host);
  if (connect_timed_out_ || IsWorkersFault(error)) ReportWorkerDown(thread_, url);
  co_return connect_timed_out_ ? HttpError::kConnectTimeout : HttpError::kConnectFailed;
}

void AttemptConnection::Close() {
  closed_ = true;
  if (name_ != nullptr) Resolver::Waiter::Cancel(name_);
  if (connector_ != nullptr) connector_->Cancel();
  if (lease_ != nullptr) lease_->socket.Close();
}

void AttemptConnection::GiveUp(HttpError why) {
  if (!given_up_) given_up_ = why;
  lease_->socket.Close();
}

void AttemptConnection::GiveUpAfter(int64_t timeout_ms) {
  deadline_.Arm(thread_.loop.timers(), timeout_ms, &AttemptConnection::OnFirstByteTimeout, this);
}

void AttemptConnection::InterruptReadAfter(int64_t timeout_ms) {
  deadline_.Arm(thread_.loop.timers(), timeout_ms, &AttemptConnection::OnReadTimeout, this);
}

void AttemptConnection::OnConnectTimeout(void* context) {
  auto* connection = static_cast<AttemptConnection*>(context);
  connection->connect_timed_out_ = true;
  if (connection->name_ != nullptr) Resolver::Waiter::Cancel(connection->name_);
  if (connection->connector_ != nullptr) connection->connector_->Cancel();
}

void AttemptConnection::OnFirstByteTimeout(void* context) {
  static_cast<AttemptConnection*>(context)->GiveUp(HttpError::kFirstByteTimeout);
}

void AttemptConnection::OnReadTimeout(void* context) {
  static_cast<AttemptConnection*>(context)->socket().InterruptRead();
}

void AttemptConnection::Release(bool reusable) {
  if (lease_ != nullptr && reusable) thread_.upstreams.Release(std::move(lease_));
  lease_.reset();
}

}  // namespace vllm_router
