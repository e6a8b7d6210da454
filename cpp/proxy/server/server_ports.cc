#include "proxy/server/server_ports.h"

#include <utility>

#include "base/limits.h"
#include "proxy/api/settings.h"
#include "proxy/server/server_threads.h"
#include "proxy/telemetry/telemetry.h"
#include "proxy/thread/io_thread.h"

namespace vllm_router {

ServerPorts::ServerPorts(const FixedOptions& options, const ServerThreads& threads)
    : options_(options), threads_(threads) {}

ServerPorts::~ServerPorts() = default;

StatusOr<std::unique_ptr<Listener>> ServerPorts::Open(
    IoThread& thread, const Listener::Where& where, ListenerKind kind, const Pipeline& pipeline) const {
  return Listener::Open(thread.loop, where, [this, &thread, kind, &pipeline](Socket socket, Endpoint peer) {
    if (!MakeRoom(thread, kind)) return;
    Connection::Serve(thread, std::move(socket), std::move(peer), kind, pipeline);
  });
}

Status ServerPorts::OpenPublic(const Pipeline& pipeline) {
  port_ = options_.port;
  for (const std::unique_ptr<IoThread>& thread : threads_.data()) {
    const bool joins = !public_.empty() || options_.reuse_port;
    StatusOr<std::unique_ptr<Listener>> listener =
        Open(*thread, {.host = options_.host, .port = port_, .join = joins}, ListenerKind::kPublic, pipeline);
    if (!listener.ok()) return listener.status();
    public_.push_back(*std::move(listener));
    port_ = public_.back()->port();
  }
  return absl::OkStatus();
}

Status ServerPorts::OpenAside(const Pipeline& pipeline) {
  const auto open = [&](const std::string& host, int32_t port, ListenerKind kind,
                        std::unique_ptr<Listener>* opened) -> Status {
    if (port < 0) return absl::OkStatus();
    StatusOr<std::unique_ptr<Listener>> listener = Open(
        threads_.control(), {.host = host, .port = static_cast<uint16_t>(port), .join = options_.reuse_port},
        kind, pipeline);
    if (listener.ok()) *opened = *std::move(listener);
    return listener.status();
  };
  ROUTER_RETURN_IF_ERROR(open(options_.admin_host, options_.admin_port, ListenerKind::kAdmin, &admin_));
  return open(options_.prometheus_host, options_.prometheus_port, ListenerKind::kMetrics, &metrics_);
}

void ServerPorts::Start() {
  for (const std::unique_ptr<Listener>& listener : public_) listener->Start();
  if (admin_ != nullptr) admin_->Start();
  if (metrics_ != nullptr) metrics_->Start();
}

void ServerPorts::StopAside() {
  if (admin_ != nullptr) admin_->Stop();
  if (metrics_ != nullptr) metrics_->Stop();
}

void ServerPorts::Close() {
  admin_.reset();
  metrics_.reset();
  public_.clear();
}

std::optional<uint16_t> ServerPorts::PortOf(const std::unique_ptr<Listener>& listener) {
  if (listener == nullptr) return std::nullopt;
  return listener->port();
}

// Whether a connection that `thread` has accepted may stay. At the limit it replaces an idle one: the
// longest idle of its own thread or, if that has none, of the thread with the most. The kernel spreads
// connections evenly, so the longest idle one here is about as old as any; finding the oldest over all
// threads would delay each new connection. Another thread closes its connection in its next turn. If all
// of its idle ones have become busy by then, the limit is exceeded by one until a connection ends.
bool ServerPorts::MakeRoom(IoThread& thread, ListenerKind kind) const {
  const int64_t open = threads_.OpenConnections() +
                       threads_.control().telemetry.connections.clients.load(std::memory_order_relaxed);
  const int64_t reserved = kind == ListenerKind::kPublic ? 0 : kReservedAdminConnections;
  if (open < thread.settings.Get()->max_connections + reserved) return true;
  if (Connection::CloseLongestIdle(thread)) return true;
  IoThread* most_idle = threads_.all().front().get();
  for (const std::unique_ptr<IoThread>& other : threads_.all()) {
    if (other->idle.size() > most_idle->idle.size()) most_idle = other.get();
  }
  if (most_idle != &thread && most_idle->idle.Claim()) {
    most_idle->loop.Post([most_idle] {
      most_idle->idle.EndClaim();
      Connection::CloseLongestIdle(*most_idle);
    });
    return true;
  }
  thread.telemetry.connections.rejected.fetch_add(1, std::memory_order_relaxed);
  return false;
}

}  // namespace vllm_router
