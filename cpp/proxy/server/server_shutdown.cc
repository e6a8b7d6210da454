#include "proxy/server/server_shutdown.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "base/log.h"
#include "base/time_units.h"
#include "net/event_loop.h"
#include "proxy/admin/admin.h"
#include "proxy/admin/configuration.h"
#include "proxy/api/settings.h"
#include "proxy/client/http_client.h"
#include "proxy/client/remote_tokenizer.h"
#include "proxy/client/upstream_pool.h"
#include "proxy/control/services.h"
#include "proxy/exchange/connection.h"
#include "proxy/security/authorizer.h"
#include "proxy/server/server_ports.h"
#include "proxy/server/server_reloads.h"
#include "proxy/server/server_threads.h"
#include "proxy/telemetry/telemetry.h"
#include "proxy/thread/io_thread.h"
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

void ServerShutdown::Begin() {
  if (begun_.exchange(true)) {
    cut_now_.store(true);
    return;
  }
  parts_.threads.control().loop.Post([this] { Spawn(Run()); });
}

// Waits until `done`, the timeout, or a second Begin() that ends the wait.
Task<void> ServerShutdown::WaitUntil(std::function<bool()> done, int64_t nanos, bool may_hurry) {
  IoThread& control = parts_.threads.control();
  Delay delay(control.loop);
  const int64_t end = control.clock.NowNanos() + nanos;
  while (!done() && control.clock.NowNanos() < end && !(may_hurry && cut_now_.load())) {
    co_await delay.For(kShutdownPollNanos);
  }
}

Task<void> ServerShutdown::Pause(int64_t nanos) {
  co_await WaitUntil([] { return false; }, nanos, true);
}

Task<void> ServerShutdown::Run() {
  parts_.configuration.Close();
  parts_.admin.BeginShutdown();
  const bool relieved = co_await Settle();
  co_await StopListening(relieved);
  parts_.services.Drain();
  co_await EndExchanges();
  co_await EndBackgroundCalls();
  co_await EndControl();
  for (const std::unique_ptr<IoThread>& thread : parts_.threads.all()) {
    thread->loop.Post([&thread = *thread] {
      thread.upstreams.CloseAll();
      thread.loop.Stop();
    });
  }
}

// Not ready any more, but still accepting: load balancers need time to notice.
Task<bool> ServerShutdown::Settle() {
  const size_t listeners = parts_.threads.data().size();
  const int64_t settle = parts_.threads.control().settings.Get()->shutdown_settle_ms * kNanosPerMs;
  bool relieved = parts_.ports.Yield(listeners);
  co_await Pause(relieved ? std::max(settle, kHandoverNanos) : settle);
  if (!relieved && settle > 0) {
    relieved = parts_.ports.Yield(listeners);
    if (relieved) co_await Pause(kHandoverNanos);
  }
  co_return relieved;
}

// No new connections. Idle ones close now, busy ones after their response. With a successor, the ports
// close one after the other, since connections that the next port gets meanwhile must be accepted.
Task<void> ServerShutdown::StopListening(bool relieved) {
  const auto threads = parts_.threads.data();
  for (size_t i = threads.size(); i-- > 0;) {
    if (relieved && i + 1 < threads.size()) {
      parts_.ports.Yield(i + 1);
      co_await Pause(kNextHandoverNanos);
    }
    IoThread& thread = *threads[i];
    thread.loop.Post([&thread, &listener = parts_.ports.listener(i)] {
      listener.Stop();
      thread.draining = true;
      for (Connection* connection : thread.connections) connection->Drain(false);
      thread.stopped_listening.store(true);
    });
    const auto stopped = [&thread] { return thread.stopped_listening.load(); };
    if (relieved) co_await WaitUntil(stopped, kCutNanos, false);
  }
}

bool ServerShutdown::AllClosed() const {
  const auto stopped = [](const auto& thread) { return thread->stopped_listening.load(); };
  return std::ranges::all_of(parts_.threads.data(), stopped) && parts_.threads.OpenConnections() == 0;
}

Task<void> ServerShutdown::EndExchanges() {
  const auto all_done = [this] { return AllClosed() && parts_.services.idle(); };
  const int64_t grace = parts_.threads.control().settings.Get()->shutdown_grace_ms * kNanosPerMs;
  co_await WaitUntil(all_done, grace, true);
  if (all_done()) co_return;
  for (const std::unique_ptr<IoThread>& thread : parts_.threads.data()) {
    cut_ += static_cast<uint64_t>(std::max<int64_t>(0, thread->telemetry.in_flight.load()));
  }
  if (cut_ > 0) {
    Log(LogLevel::kWarning, "shutting down: " + std::to_string(cut_) +
                                (cut_ == 1 ? " exchange is aborted" : " exchanges are aborted"));
  }
  parts_.threads.OnDataThreads([](IoThread& thread) {
    for (Connection* connection : thread.connections) connection->Drain(true);
    thread.http.Stop();
  });
  co_await WaitUntil([this] { return AllClosed(); }, kCutNanos, false);
}

Task<void> ServerShutdown::EndBackgroundCalls() {
  parts_.threads.OnDataThreads([](IoThread& thread) {
    thread.http.Stop();
    if (thread.redis != nullptr) thread.redis->Stop();
  });
  const auto none_left = [this] {
    return std::ranges::all_of(parts_.threads.all(), [this](const auto& thread) {
      const bool links_ended = thread->redis == nullptr || thread.get() == &parts_.threads.control() ||
                               thread->redis->running() == 0;
      return links_ended && thread->tokenizer.background_calls() == 0;
    });
  };
  co_await WaitUntil(none_left, kCutNanos, false);
}

// The control thread's own services, ports and connections.
Task<void> ServerShutdown::EndControl() {
  IoThread& control = parts_.threads.control();
  parts_.reloads.Stop();
  parts_.services.Stop();
  parts_.ports.StopAside();
  control.draining = true;
  for (Connection* connection : control.connections) connection->Drain(true);
  control.http.Stop();
  if (control.redis != nullptr) control.redis->Stop();
  const auto ended = [this, &control] {
    return control.connections.empty() && parts_.admin.ended() &&
           (control.redis == nullptr || control.redis->running() == 0) && parts_.services.ended() &&
           (parts_.validator == nullptr || parts_.validator->ended());
  };
  co_await WaitUntil(ended, kCutNanos, false);
}

}  // namespace vllm_router
