#include "proxy/exchange/connection.h"

#include <algorithm>
#include <utility>

#include "base/limits.h"
#include "base/time_units.h"
#include "net/tls.h"
#include "proxy/api/settings.h"
#include "proxy/client/tls_files.h"
#include "proxy/exchange/exchange.h"
#include "proxy/telemetry/telemetry.h"

namespace vllm_router {
Connection::Connection(
    IoThread& thread, Socket socket, Endpoint peer, ListenerKind listener_kind, const Pipeline& pipeline)
    : thread(thread),
      socket(std::move(socket)),
      peer(std::move(peer)),
      listener_kind(listener_kind),
      pipeline(pipeline),
      settings(thread.settings.Get()),
      in(thread.buffers) {
  thread.connections.insert(this);
  thread.telemetry.connections.clients.fetch_add(1, std::memory_order_relaxed);
}

Connection::~Connection() {
  thread.idle.Leave(this);
  thread.connections.erase(this);
  thread.telemetry.connections.clients.fetch_sub(1, std::memory_order_relaxed);
}

void Connection::Serve(
    IoThread& thread, Socket socket, Endpoint peer, ListenerKind listener_kind, const Pipeline& pipeline) {
  if (thread.draining && listener_kind == ListenerKind::kPublic) return;
  auto* connection = new Connection(thread, std::move(socket), std::move(peer), listener_kind, pipeline);
  Spawn([](std::unique_ptr<Connection> owned) -> Task<void> {
    co_await owned->Run();
  }(std::unique_ptr<Connection>(connection)));
}

Task<bool> Connection::StartTls(std::shared_ptr<const TlsContext> tls) {
  socket.StartTls(std::move(tls));
  const bool agreed = co_await socket.Handshake();
  if (!agreed && !evicted_) thread.telemetry.connections.tls_failures.fetch_add(1, std::memory_order_relaxed);
  co_return agreed;
}

Task<bool> Connection::AwaitBytes() {
  idle_ = true;
  const bool readable = co_await socket.Readable();
  idle_ = false;
  co_return readable;
}

// REQUIRES: none of its bytes has been read.
Task<bool> Connection::AwaitRequest() {
  in.Release();
  if (head_deadline_ns_ == 0) {
    thread.idle.Enter(this);
    timer_.Arm(
        thread.loop.timers(), thread.settings.Get()->client_idle_timeout_ms, &Connection::OnTimeout, this);
  }
  const bool readable = co_await AwaitBytes();
  timer_.Disarm();
  thread.idle.Leave(this);
  co_return readable;
}

Task<void> Connection::Run() {
  const int64_t head_timeout_ms = settings->client_head_timeout_ms;
  head_deadline_ns_ = thread.clock.NowNanos() + head_timeout_ms * kNanosPerMs;
  timer_.Arm(thread.loop.timers(), head_timeout_ms, &Connection::OnTimeout, this);
  thread.idle.Enter(this);
  const bool speaks = co_await AwaitBytes();
  if (!speaks) co_return;
  std::shared_ptr<const TlsContext> tls =
      listener_kind == ListenerKind::kMetrics ? nullptr : thread.tls.clients();
  if (tls != nullptr) {
    const bool agreed = co_await StartTls(std::move(tls));
    if (!agreed) co_return;
  }
  while (keep) {
    if (in.empty()) {
      if (thread.draining && !socket.HasUnread()) break;  // a request that has arrived is served
      const bool readable = co_await AwaitRequest();
      if (!readable) break;
    }
    keep = false;
    TakeSettings();
    exchange_ = std::make_unique<Exchange>(*this);  // not in this frame, which must be small while idle
    co_await exchange_->Run();
    exchange_.reset();
    head_deadline_ns_ = 0;
    // A thousand small requests that came together are a thousand turns.
    if (keep && !in.empty()) co_await thread.loop.Yield();
  }
  if (linger && socket.is_open()) co_await Linger();
  socket.Close();
}

// Compared first, since counting a reference costs more.
void Connection::TakeSettings() {
  const std::shared_ptr<const Settings>& latest = thread.settings.Get();
  if (latest != settings) settings = latest;
}

bool Connection::MayStillRead() const { return settings->serve_half_closed && !socket.IsBroken(); }

int64_t Connection::HeadTimeLeftMs() const {
  const int64_t timeout_ms = settings->client_head_timeout_ms;
  if (timeout_ms == 0 || head_deadline_ns_ == 0) return timeout_ms;
  return std::max<int64_t>(1, (head_deadline_ns_ - thread.clock.NowNanos()) / kNanosPerMs);
}

bool Connection::CloseLongestIdle(IoThread& thread) {
  IdleList::Member* const found = thread.idle.Find(
      [](IdleList::Member& member) { return !static_cast<Connection&>(member).socket.HasUnread(); });
  if (found == nullptr) return false;
  auto* connection = static_cast<Connection*>(found);
  thread.idle.Leave(connection);
  connection->evicted_ = true;
  connection->socket.Close();
  thread.telemetry.connections.evicted.fetch_add(1, std::memory_order_relaxed);
  return true;
}

// Closing with unread bytes makes the kernel send a reset, which can overtake our response and destroy
// it.
Task<void> Connection::Linger() {
  socket.ShutdownWrite();
  timer_.Arm(thread.loop.timers(), kLingerSeconds * 1000, &Connection::OnTimeout, this);
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

// A client that has not begun its first request gets no 408: it could take that response for the one to
// its next request.
void Connection::OnTimeout(void* context) {
  auto* connection = static_cast<Connection*>(context);
  if (connection->idle_ && connection->head_deadline_ns_ != 0) {
    connection->thread.telemetry.connections.never_begun.fetch_add(1, std::memory_order_relaxed);
  }
  connection->socket.Close();
}

void Connection::CutFrom(const Worker& worker) {
  if (exchange_ != nullptr && exchange_->IsAt(worker)) exchange_->WorkerDrained(worker);
}

void Connection::HandOverFrom(const Worker& worker) {
  if (exchange_ != nullptr && exchange_->IsAt(worker)) exchange_->WorkerDrains(worker);
}

void Connection::WorkerDied(const Worker& worker) {
  if (exchange_ != nullptr && exchange_->IsAt(worker)) exchange_->WorkerDied(worker);
}

void Connection::CutReader(const AdminReply& page) {
  if (exchange_ != nullptr && exchange_->IsWriting(page)) exchange_->Cancel(CancelReason::kSlowClient);
}

void Connection::Drain(bool cut) {
  if (idle_) {
    if (cut || !socket.HasUnread()) socket.Close();
  } else if (exchange_ != nullptr) {
    if (cut || exchange_->IsLongRunning()) exchange_->Cancel(CancelReason::kShutdown);
  } else if (cut) {
    socket.Close();  // lingering
  }
}

}  // namespace vllm_router
