#include "proxy/connection.h"

#include <utility>

#include "base/limits.h"
#include "proxy/exchange.h"
#include "proxy/tls_files.h"

namespace vllm_router {

Connection::Connection(Lane& lane, Socket socket, Endpoint peer, Door door)
    : lane(lane), socket(std::move(socket)), peer(std::move(peer)), door(door), in(lane.buffers) {
  lane.connections.insert(this);
  lane.recorder.client_connections.fetch_add(1, std::memory_order_relaxed);
}

Connection::~Connection() {
  lane.connections.erase(this);
  lane.recorder.client_connections.fetch_sub(1, std::memory_order_relaxed);
}

void Connection::Serve(Lane& lane, Socket socket, Endpoint peer, Door door) {
  if (lane.draining && door == Door::kPublic) return;
  auto* connection = new Connection(lane, std::move(socket), std::move(peer), door);
  Spawn([](std::unique_ptr<Connection> owned) -> Task<void> {
    co_await owned->Run();
  }(std::unique_ptr<Connection>(connection)));
}

// Whoever begins to speak TLS and does not go on has as long as for a request's head.
Task<bool> Connection::StartTls(std::shared_ptr<const TlsContext> tls) {
  socket.StartTls(std::move(tls));
  timer_.Arm(lane.loop.timers(), lane.options.client_head_timeout_ms, &Connection::OnTimeout, this);
  const bool agreed = co_await socket.Handshake();
  timer_.Disarm();
  if (!agreed) lane.recorder.tls_failures.fetch_add(1, std::memory_order_relaxed);
  co_return agreed;
}

Task<void> Connection::Run() {
  std::shared_ptr<const TlsContext> tls = door == Door::kMetrics ? nullptr : lane.tls.clients();
  if (tls != nullptr) {
    const bool agreed = co_await StartTls(std::move(tls));
    if (!agreed) co_return;
  }
  while (keep) {
    if (in.empty()) {
      if (lane.draining) break;
      in.Release();
      resting_ = true;
      timer_.Arm(lane.loop.timers(), lane.options.client_idle_timeout_ms, &Connection::OnTimeout, this);
      const bool readable = co_await socket.Readable();
      timer_.Disarm();
      resting_ = false;
      if (!readable) break;
    }
    keep = false;
    exchange_ = std::make_unique<Exchange>(*this);  // not in this frame, which has to be small while resting
    co_await exchange_->Run();
    exchange_.reset();
  }
  if (linger && socket.is_open()) co_await Linger();
  socket.Close();
}

// Closing with unread bytes makes the kernel send a reset, which can overtake our answer and destroy it.
Task<void> Connection::Linger() {
  socket.ShutdownWrite();
  timer_.Arm(lane.loop.timers(), kLingerSeconds * 1000, &Connection::OnTimeout, this);
  in.Clear();
  in.Reserve(kRelayBufferFirst);
  for (size_t discarded = 0; discarded < kLingerBytes;) {
    const IoResult read = socket.TryRead(in.room());
    if (read.would_block()) {
      const bool readable = co_await socket.Readable();
      if (!readable) break;
      continue;
    }
    if (!read.ok()) break;
    discarded += static_cast<size_t>(read.bytes);
  }
  timer_.Disarm();
}

void Connection::OnTimeout(void* connection) { static_cast<Connection*>(connection)->socket.Close(); }

void Connection::CutFrom(const Worker& worker) {
  if (exchange_ != nullptr && exchange_->IsAt(worker)) exchange_->Cancel(CancelReason::kDrained);
}

void Connection::WorkerDied(const Worker& worker) {
  if (exchange_ != nullptr && exchange_->IsAt(worker)) exchange_->WorkerDied();
}

void Connection::Drain(bool cut) {
  if (resting_) {
    if (cut || !socket.HasUnread()) socket.Close();
  } else if (exchange_ != nullptr) {
    if (cut || exchange_->OnLongErrand()) exchange_->Cancel(CancelReason::kShutdown);
  } else if (cut) {
    socket.Close();  // lingering
  }
}

}  // namespace vllm_router
