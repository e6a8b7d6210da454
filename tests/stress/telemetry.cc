// Lanes count while somebody scrapes and workers come and go. A scrape never sees a total fall, the last one sees
// every exchange, and the tallies of workers that are gone do not pile up. TSan sees that no count is torn.
#include "proxy/telemetry/telemetry.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "proxy/admin/metrics.h"
#include "proxy/telemetry/telemetry_shard.h"
#include "proxy/thread/server_limits.h"
#include "routing/router.h"
#include "stress.h"

namespace vllm_router {
namespace {

constexpr int kLanes = 2;
constexpr int kExchanges = 20'000;
constexpr int kPerFleet = 50;  // exchanges of a lane between two changes of the fleet

RequestInfo Exchange(std::shared_ptr<Worker> worker, int number) {
  RequestInfo record;
  record.head_ns = record.body_ns = 1;
  record.sent_ns = 2;
  record.responded_ns = record.first_body_ns = record.end_ns = 3 + number;
  record.route = number % 3 == 0 ? Route::kEmbeddings : Route::kChatCompletions;
  record.status = number % 7 == 0 ? 503 : 200;
  record.stream = true;
  record.worker = std::move(worker);
  record.attempts = 1;
  return record;
}

// All series of `family` added up; -1 without any.
int64_t TotalOf(const std::string& page, const std::string& family) {
  int64_t total = -1;
  for (size_t at = page.find("\n" + family); at != std::string::npos; at = page.find("\n" + family, at + 1)) {
    const size_t name_end = page.find_first_of("{ ", at + 1);
    if (page.compare(at + 1, name_end - at - 1, family) != 0) continue;
    const size_t line_end = page.find('\n', at + 1);
    total = std::max<int64_t>(total, 0) + std::stoll(page.substr(page.rfind(' ', line_end) + 1));
  }
  return total;
}

void ScrapesSeeEveryExchange() {
  const std::shared_ptr<Router> router = *Router::Create({.policy = {.policy = "round_robin"}});
  STRESS_CHECK(router->AddWorker("http://stays:1").ok());
  std::vector<std::unique_ptr<Telemetry>> recorders;
  std::vector<const Telemetry*> views;
  for (int lane = 0; lane < kLanes; ++lane) {
    recorders.push_back(std::make_unique<Telemetry>(router->policy().name(), Logs{}));
    views.push_back(recorders.back().get());
  }
  ManualClock clock;
  const ServerLimits gates{ServerOptions()};
  const Metrics metrics(router, views, gates, clock);
  std::atomic<int> writing{kLanes};

  RunTogether(kLanes + 1, [&](int thread) {
    if (thread == kLanes) {  // scrapes
      int64_t last = 0;
      do {
        const std::string page = metrics.Text();
        const int64_t ended = TotalOf(page, "vllm_router_exchange_end_total");
        STRESS_CHECK(ended == -1 || ended >= last);
        last = std::max(last, ended);
        clock.Advance(ShownWorkers::kRemovedNanos / 3);
      } while (writing.load() > 0);
      return;
    }
    Telemetry& recorder = *recorders[static_cast<size_t>(thread)];
    const std::string mine = "http://comes-and-goes-" + std::to_string(thread) + ":1";
    for (int i = 0; i < kExchanges; ++i) {
      if (i % kPerFleet == 0) {
        if (i != 0) STRESS_CHECK(router->RemoveWorker(mine).ok());
        STRESS_CHECK(router->AddWorker(mine).ok());
      }
      const std::shared_ptr<const FleetView> fleet = router->fleet();
      const std::shared_ptr<Worker>& worker =
          fleet->members()[static_cast<size_t>(i) % fleet->members().size()].worker;
      recorder.Decided(worker, {.worker = worker->id, .reason = Reason::kRoundRobin});
      recorder.Record(Exchange(worker, i));
    }
    writing.fetch_sub(1);
  });

  const std::string page = metrics.Text();
  STRESS_CHECK(TotalOf(page, "vllm_router_exchange_end_total") == kLanes * kExchanges);
  STRESS_CHECK(TotalOf(page, "vllm_router_http_responses_total") == kLanes * kExchanges);
  STRESS_CHECK(TotalOf(page, "vllm_router_decision_reasons_total") == kLanes * kExchanges);
  STRESS_CHECK(TotalOf(page, "vllm_router_overhead_seconds_count") == kLanes * kExchanges);

  // 400 workers came and went on each lane. What is left serves, or was shown by the scrapes of the last minute.
  clock.Advance(2 * ShownWorkers::kRemovedNanos);
  metrics.Text();
  STRESS_CHECK(router->AddWorker("http://last:1").ok());
  const std::shared_ptr<const FleetView> fleet = router->fleet();
  for (const std::unique_ptr<Telemetry>& recorder : recorders) {
    recorder->Record(Exchange(fleet->members().back().worker, 1));
    STRESS_CHECK(recorder->shard().workers.size() <= fleet->members().size());
  }
}

}  // namespace
}  // namespace vllm_router

int main() { vllm_router::ScrapesSeeEveryExchange(); }
