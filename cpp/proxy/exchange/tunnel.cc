#include "proxy/exchange/tunnel.h"

#include <algorithm>

#include "base/limits.h"
#include "net/write_all.h"
#include "proxy/thread/server_limits.h"

namespace vllm_router {

Tunnel::Tunnel(EventLoop& loop, Socket& client, Socket& worker, const Limits& limits, const Hooks& hooks)
    : loop_(loop),
      limits_(limits),
      hooks_(hooks),
      to_worker_{
          .from = client,
          .to = worker,
          .write_ms = limits.worker_write_ms,
          .stalled = hooks.worker_stalled,
          .from_gone = End::kClientGone,
          .to_gone = End::kWorkerGone},
      to_client_{
          .from = worker,
          .to = client,
          .write_ms = limits.client_write_ms,
          .stalled = hooks.client_stalled,
          .from_gone = End::kWorkerGone,
          .to_gone = End::kClientGone} {}

Task<Tunnel::End> Tunnel::Run(std::string_view head, Buffer& from_client, Buffer& from_worker) {
  Moved();
  aside_ = true;
  Spawn(MoveAside(to_worker_, from_client));
  const End end = co_await Move(to_client_, head, from_worker);
  if (end != End::kDone) Break(end);
  while (aside_) co_await aside_ended_;
  idle_timer_.Disarm();
  co_return end_;
}

Task<void> Tunnel::MoveAside(Pump& pump, Buffer& buffer) {
  const End end = co_await Move(pump, {}, buffer);
  if (end != End::kDone) Break(end);
  aside_ = false;
  aside_ended_.Notify();
}

// A reset, so that a side that waits for more cannot take this for a proper end.
void Tunnel::Break(End end) {
  if (end_ != End::kDone) return;
  end_ = end;
  if (end == End::kWorkerGone) to_client_.to.Abort();
  if (end == End::kClientGone) to_worker_.to.Abort();
  to_client_.to.Close();
  to_worker_.to.Close();
}

void Tunnel::Moved() { idle_timer_.Arm(loop_.timers(), limits_.idle_ms, hooks_.idle, hooks_.context); }

Task<Tunnel::End> Tunnel::Move(Pump& pump, std::string_view head, Buffer& buffer) {
  size_t window = kRelayBufferFirst;
  for (;;) {
    co_await loop_.TurnEnd();  // other work has its turn, and what is sent leaves together
    if (!head.empty()) {
      const End end = co_await Write(pump, head);
      if (end != End::kDone) co_return end;
      head = {};
    }
    if (!buffer.empty()) {
      const End end = co_await Write(pump, buffer.view());
      if (end != End::kDone) co_return end;
      pump.bytes += buffer.size();
      const bool brimful = buffer.room().empty();
      if (brimful) window = std::min(buffer.capacity() * 4, kRelayBufferMost);
      buffer.Clear();
    }
    buffer.Release();
    const bool readable = co_await pump.from.Readable();
    if (!readable) co_return End::kClosed;
    buffer.Reserve(window);
    window = kRelayBufferFirst;
    const IoResult read = pump.from.TryRead(buffer.room());
    if (read.would_block()) continue;
    if (read.eof) {
      buffer.Release();
      pump.to.ShutdownWrite();
      co_return End::kDone;
    }
    if (!read.ok()) co_return pump.from.is_open() ? pump.from_gone : End::kClosed;
    buffer.Commit(static_cast<size_t>(read.bytes));
    Moved();
  }
}

Task<Tunnel::End> Tunnel::Write(Pump& pump, std::string_view bytes) {
  while (!bytes.empty()) {
    const iovec piece = Piece(bytes);
    const IoResult write = pump.to.TryWrite({&piece, 1});
    if (write.would_block()) {
      ++pump.stalls;
      // From the last byte that it took: a wake-up without bytes is no progress.
      if (!pump.timer.armed()) pump.timer.Arm(loop_.timers(), pump.write_ms, pump.stalled, hooks_.context);
      const bool writable = co_await pump.to.Writable();
      if (!writable) co_return End::kClosed;
      continue;
    }
    pump.timer.Disarm();
    if (write.error != 0) co_return pump.to.is_open() ? pump.to_gone : End::kClosed;
    bytes.remove_prefix(static_cast<size_t>(write.bytes));
    Moved();
  }
  co_return End::kDone;
}

}  // namespace vllm_router
