#include "proxy/peer_sync/joined_peers.h"

#include <signal.h>
#include <unistd.h>

#include <optional>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/time_units.h"
#include "net/buffer.h"
#include "net/event_loop.h"
#include "net/resolver.h"
#include "proxy/api/server_options.h"
#include "proxy/peer_sync/peer_rounds.h"
#include "proxy/peer_sync/peer_sync_feature.h"
#include "routing/router.h"

namespace vllm_router {
namespace {

constexpr int64_t kFleetNanos = 50 * kNanosPerMs;  // between looks for the first workers
constexpr int64_t kPollNanos = kNanosPerMs;        // as it stops,
constexpr int64_t kCutNanos = kNanosPerSecond;     // and for what does not end by itself

}  // namespace

struct JoinedPeers::Parts {
  Parts(std::shared_ptr<Router> shared, PeerConnection connection)
      : router(std::move(shared)),
        resolver(loop),
        rounds(
            {.loop = loop, .buffers = buffers, .resolver = resolver, .clock = clock, .router = *router},
            std::move(connection),
            {.turn = nullptr,
             .suspected = nullptr,
             .fact = nullptr,
             .complete = nullptr,
             .when_alone = "this router decides by its own requests until then"}),
        fleet_delay(loop),
        end_delay(loop) {
    rounds.PublishReport();
  }

  // Signals are for the threads that the process knows of.
  void Start() {
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    thread = std::thread([this] {
      Spawn(Begin());
      loop.Run();
    });
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }

  // Once there are workers: what others tell of those that are not here is lost, and hosts may list theirs late.
  Task<void> Begin() {
    while (!ending && router->fleet()->members().empty()) co_await fleet_delay.For(kFleetNanos);
    begun = true;
    if (!ending) rounds.Start();
  }

  Task<void> End() {
    ending = true;
    fleet_delay.Cancel();
    rounds.Stop();
    const int64_t cut_ns = clock.NowNanos() + kCutNanos;
    while (!begun || (!rounds.ended() && clock.NowNanos() < cut_ns)) co_await end_delay.For(kPollNanos);
    loop.Stop();
  }

  const std::shared_ptr<Router> router;
  SteadyClock clock;
  EventLoop loop;
  BufferPool buffers;
  Resolver resolver;
  PeerRounds rounds;
  Delay fleet_delay;
  Delay end_delay;
  bool begun = false;  // on the thread, as is the next
  bool ending = false;
  std::thread thread;

  Mutex mutex;  // before that of rounds
  bool stopped ABSL_GUARDED_BY(mutex) = false;
};

StatusOr<std::unique_ptr<JoinedPeers>> JoinedPeers::Join(
    std::shared_ptr<Router> router, const ServerOptions& options) {
  const Status may = CheckPeerSync(*router);
  if (!may.ok()) return may;
  StatusOr<PeerConnection> connection = OpenPeers(options, *router);
  if (!connection.ok()) return connection.status();
  auto parts = std::make_unique<Parts>(std::move(router), *std::move(connection));
  parts->Start();
  return std::unique_ptr<JoinedPeers>(new JoinedPeers(std::move(parts)));
}

JoinedPeers::JoinedPeers(std::unique_ptr<Parts> parts) : process_(::getpid()), parts_(std::move(parts)) {}

// A child by fork() leaves its copy as it is: it has none of the threads that would end it.
JoinedPeers::~JoinedPeers() {
  Stop();
  if (IsForked()) static_cast<void>(parts_.release());
}

bool JoinedPeers::IsForked() const { return ::getpid() != process_; }

void JoinedPeers::Stop() {
  if (IsForked()) return;
  const MutexLock lock(parts_->mutex);
  if (std::exchange(parts_->stopped, true)) return;
  parts_->loop.Post([parts = parts_.get()] { Spawn(parts->End()); });
  parts_->thread.join();
}

bool JoinedPeers::running() const {
  if (IsForked()) return false;
  const MutexLock lock(parts_->mutex);
  return !parts_->stopped;
}

PeerSyncReport JoinedPeers::Report() const { return IsForked() ? PeerSyncReport() : parts_->rounds.Report(); }

void JoinedPeers::TellForgotten(WorkerId worker) {
  if (running()) parts_->rounds.TellForgotten(worker);
}

}  // namespace vllm_router
