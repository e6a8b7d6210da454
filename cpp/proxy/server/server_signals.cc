#include "proxy/server/server_signals.h"

#include <cstddef>
#include <memory>
#include <utility>

#include "proxy/control/health_checker.h"
#include "proxy/control/model_service.h"
#include "proxy/control/other_routers.h"
#include "proxy/exchange/connection.h"
#include "proxy/exchange/exchange.h"
#include "proxy/server/server_threads.h"
#include "proxy/telemetry/telemetry.h"
#include "proxy/thread/io_thread.h"
#include "worker/worker.h"

namespace vllm_router {
namespace {

constexpr size_t kMaxBodiesRead = 16;  // of each thread, for one look at a silent worker

using Waits = HangWatch::Threads::Waits;

struct Lists {
  size_t missing;
  Waits waits;
};

void ListWaits(
    const ServerThreads& threads, const std::shared_ptr<Worker>& worker,
    const std::function<void(Waits)>& done) {
  const auto lists = std::make_shared<Lists>(Lists{.missing = threads.data().size(), .waits = {}});
  EventLoop& control = threads.control().loop;
  threads.OnDataThreads([worker, done, lists, &control](IoThread& thread) {
    Waits waits;
    size_t reads_bodies = kMaxBodiesRead;
    for (Connection* connection : thread.connections) {
      if (connection->exchange() != nullptr) connection->exchange()->AddWaits(*worker, &reads_bodies, &waits);
    }
    control.Post([done, lists, waits = std::move(waits)] {  // the lists are the control thread's
      lists->waits.insert(lists->waits.end(), waits.begin(), waits.end());
      if (--lists->missing == 0) done(std::move(lists->waits));
    });
  });
}

void MoveRequests(
    const ServerThreads& threads, const std::shared_ptr<Worker>& worker, const HangDetector::Doubt& doubt) {
  const auto rule = std::make_shared<const HangDetector::Doubt>(doubt);
  threads.OnDataThreads([worker, rule](IoThread& thread) {
    size_t reads_bodies = kMaxBodiesRead;
    for (Connection* connection : thread.connections) {
      Exchange* const exchange = connection->exchange();
      if (exchange != nullptr && exchange->MoveFrom(*worker, *rule, &reads_bodies))
        thread.telemetry.requests_moved.fetch_add(1, std::memory_order_relaxed);
    }
  });
}

}  // namespace

void SendHealthSignals(
    const ServerThreads& threads, HealthChecker& health, ModelService& models, OtherRouters* other_routers) {
  for (const std::unique_ptr<IoThread>& thread : threads.all()) {
    thread->health = {
        .suspect =
            [&health, other_routers](const std::shared_ptr<Worker>& worker) {
              if (other_routers != nullptr && !worker->suspected.load(std::memory_order_relaxed))
                other_routers->Suspect(worker);
              health.ReportPassiveFailure(worker);
            },
        .recovered = [&health](const std::shared_ptr<Worker>& worker) { health.Recovered(worker); },
        .lacks_model = [&models](const std::shared_ptr<Worker>& worker) { models.ReportMissing(worker); },
        .models_changed = [&models] { models.PollAll(); },
        .cache_emptied =
            [other_routers](const std::shared_ptr<Worker>& worker) {
              if (other_routers != nullptr) other_routers->CacheEmptied(worker);
            }};
  }
}

HangWatch::Threads HangWatchThreads(const ServerThreads& threads) {
  return {
      .list = [&threads](
                  const std::shared_ptr<Worker>& worker,
                  std::function<void(Waits)> done) { ListWaits(threads, worker, done); },
      .move = [&threads](
                  const std::shared_ptr<Worker>& worker,
                  const HangDetector::Doubt& doubt) { MoveRequests(threads, worker, doubt); }};
}

}  // namespace vllm_router
