// How a server ends: settle, stop accepting, finish what is in flight, then cut.
#include <algorithm>
#include <string>
#include <utility>

#include "base/log.h"
#include "base/time_units.h"
#include "net/event_loop.h"
#include "proxy/api/settings.h"
#include "proxy/client/http_client.h"
#include "proxy/client/remote_tokenizer.h"
#include "proxy/client/upstream_pool.h"
#include "proxy/security/authorizer.h"
#include "proxy/server/server.h"
#include "proxy/telemetry/telemetry.h"
#include "redis/redis_link.h"

namespace vllm_router {
namespace {

constexpr int64_t kShutdownPollNanos = 5'000'000;
// For a connection in progress to reach the process that it was given to: a round trip around the earth,
// with one packet sent twice.
constexpr int64_t kHandoverNanos = 1'000'000'000;
constexpr int64_t kNextHandoverNanos = 20'000'000;
constexpr int64_t kCutNanos = 3'000'000'000;  // for cut exchanges to unwind and lingering connections to end

}  // namespace

// Waits until `done`, the timeout, or a second Shutdown() that ends the wait.
Task<void> Server::WaitUntil(std::function<bool()> done, int64_t nanos, bool may_hurry) {
  Delay delay(io_threads_.back()->loop);
  const int64_t end = io_threads_.back()->clock.NowNanos() + nanos;
  while (!done() && io_threads_.back()->clock.NowNanos() < end && !(may_hurry && cut_now_.load())) {
    co_await delay.For(kShutdownPollNanos);
  }
}

// Whether another process listens too, and gets the new connections from now on.
bool Server::YieldPort(size_t ours) { return listeners_.front()->YieldPort(ours); }

Task<void> Server::ShutDown() {
  IoThread& control = *io_threads_.back();
  configuration_->Close();
  // Not ready any more, but still accepting: load balancers need time to notice.
  admin_->BeginShutdown();
  const auto wait = [this](int64_t nanos) { return WaitUntil([] { return false; }, nanos, true); };
  const int64_t settle = control.settings.Get()->shutdown_settle_ms * kNanosPerMs;
  bool relieved = YieldPort(listeners_.size());
  const int64_t first_wait = relieved ? std::max(settle, kHandoverNanos) : settle;
  co_await wait(first_wait);
  if (!relieved && settle > 0) {
    relieved = YieldPort(listeners_.size());
    if (relieved) co_await wait(kHandoverNanos);
  }

  // No new connections. Idle ones close now, busy ones after their response. With a successor, the ports
  // close one after the other, since connections that the next port gets meanwhile must be accepted.
  for (size_t i = listeners_.size(); i-- > 0;) {
    if (relieved && i + 1 < listeners_.size()) {
      YieldPort(i + 1);
      co_await wait(kNextHandoverNanos);
    }
    IoThread& thread = *io_threads_[i];
    thread.loop.Post([&thread, listener = listeners_[i].get()] {
      listener->Stop();
      thread.draining = true;
      for (Connection* connection : thread.connections) connection->Drain(false);
      thread.stopped_listening.store(true);
    });
    const auto stopped = [&thread] { return thread.stopped_listening.load(); };
    if (relieved) co_await WaitUntil(stopped, kCutNanos, false);
  }
  services_->Drain();
  const auto all_closed = [this] {
    for (size_t i = 0; i + 1 < io_threads_.size(); ++i) {
      if (!io_threads_[i]->stopped_listening.load()) return false;
    }
    return OpenConnections() == 0;
  };
  const auto all_done = [this, &all_closed] { return all_closed() && services_->idle(); };
  co_await WaitUntil(all_done, control.settings.Get()->shutdown_grace_ms * kNanosPerMs, true);

  if (!all_done()) {
    for (size_t i = 0; i + 1 < io_threads_.size(); ++i) {
      cut_ += static_cast<uint64_t>(std::max<int64_t>(0, io_threads_[i]->telemetry.in_flight.load()));
    }
    if (cut_ > 0) {
      Log(LogLevel::kWarning, "shutting down: " + std::to_string(cut_) +
                                  (cut_ == 1 ? " exchange is aborted" : " exchanges are aborted"));
    }
    ForEachDataThread([](IoThread& thread, Listener&) {
      for (Connection* connection : thread.connections) connection->Drain(true);
      thread.http.Stop();
    });
    co_await WaitUntil(all_closed, kCutNanos, false);
  }

  ForEachDataThread([](IoThread& thread, Listener&) {
    thread.http.Stop();
    if (thread.redis != nullptr) thread.redis->Stop();
  });
  const auto none_in_background = [this] {
    return std::ranges::all_of(io_threads_, [this](const auto& thread) {
      const bool links_ended =
          thread->redis == nullptr || thread == io_threads_.back() || thread->redis->running() == 0;
      return links_ended && thread->tokenizer.background_calls() == 0;
    });
  };
  co_await WaitUntil(none_in_background, kCutNanos, false);

  // First the control thread's own services, then the loops.
  reload_timer_.Disarm();
  services_->Stop();
  if (admin_listener_ != nullptr) admin_listener_->Stop();
  if (metrics_listener_ != nullptr) metrics_listener_->Stop();
  control.draining = true;
  for (Connection* connection : control.connections) connection->Drain(true);
  control.http.Stop();
  if (control.redis != nullptr) control.redis->Stop();
  co_await WaitUntil(
      [&control, this] {
        return control.connections.empty() && admin_->ended() &&
               (control.redis == nullptr || control.redis->running() == 0) && services_->ended() &&
               (keys_.validator == nullptr || keys_.validator->ended());
      },
      kCutNanos, false);
  for (const std::unique_ptr<IoThread>& thread : io_threads_) {
    thread->loop.Post([&thread = *thread] {
      thread.upstreams.CloseAll();
      thread.loop.Stop();
    });
  }
}

}  // namespace vllm_router
