// Threads select, finish, drop and move tickets while others change the fleet and read it. Whatever the order, every
// load comes back, nobody is chosen who is not in the view that was asked, and the policy's plan fits its view.
#include "routing/router.h"

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "base/random.h"
#include "stress.h"

namespace vllm_router {
namespace {

constexpr int kSelectors = 4;
constexpr int kOperators = 2;
constexpr int kRounds = 10'000;
constexpr uint64_t kUrls = 9;
constexpr size_t kKept = 16;

std::string UrlOf(uint64_t number) { return "http://w" + std::to_string(number) + ":8000"; }

// The workers that were ever chosen, so that their counters can be read after they left the fleet.
using Seen = std::vector<std::shared_ptr<Worker>>;

// Returns how often nobody was eligible.
size_t SelectAndFinish(Router& router, int thread, Seen* seen) {
  size_t refused = 0;
  Random random(static_cast<uint64_t>(thread));
  Snapshot<FleetView>::Cached fleet(&router.fleet_snapshot());
  std::deque<Ticket> kept;
  RoutingKey key;
  for (int round = 0; round < kRounds; ++round) {
    const std::string session = "s" + std::to_string(random.Below(50));
    const HeaderField header{"X-Session-ID", session};
    RequestView request{.prompt = std::string_view("xxxxxxxxxxxxxxxx").substr(random.Below(16))};
    if (random.Below(4) != 0) request.headers = std::span(&header, 1);
    router.MakeKey(request, &key);

    const FleetView& view = *fleet.Get();
    std::optional<FleetView> smaller;
    if (!view.members().empty() && random.Below(8) == 0) {
      const uint32_t tried = static_cast<uint32_t>(random.Below(view.members().size()));
      smaller.emplace(view.Without(std::span(&tried, 1)));
    }
    const FleetView& asked = smaller ? *smaller : view;
    StatusOr<Ticket> ticket = router.Select(key, asked);
    STRESS_CHECK(ticket.ok() == !asked.eligible().empty());
    if (!ticket.ok()) {
      ++refused;
      continue;
    }
    STRESS_CHECK(asked.IsEligible(ticket->decision().position));
    STRESS_CHECK(asked.worker(ticket->decision().position).id == ticket->decision().worker);
    STRESS_CHECK(ticket->worker().load.open_requests() > 0);
    seen->push_back(ticket->shared_worker());

    if (random.Below(3) == 0) ticket->FirstToken();
    switch (random.Below(4)) {
      case 0:
        STRESS_CHECK(ticket->Finish({.end = Outcome::End::kFinished, .status = 200}));
        break;
      case 1:
        break;  // dropped
      default:
        kept.push_back(std::move(*ticket));
    }
    if (kept.size() > kKept) {
      const size_t other = random.Below(kept.size());
      kept[other] = std::move(kept.front());  // ends the one that was there, or nothing when it is the same
      kept.pop_front();
    }
  }
  return refused;
}

// Until nobody selects any more.
void ChangeFleet(Router& router, int thread, const std::atomic<int>& selecting) {
  Random random(static_cast<uint64_t>(1000 + thread));
  while (selecting.load(std::memory_order_relaxed) > 0) {
    const std::string url = UrlOf(random.Below(kUrls));
    switch (random.Below(7)) {
      case 0:
      case 1: {
        WorkerDeclaration worker = *DeclareWorker(url);
        if (random.Below(3) == 0) worker.weight = 2.5;
        router.AddWorker(worker).IgnoreError();
        break;
      }
      case 2:
        router.RemoveWorker(url).IgnoreError();
        break;
      case 3:
        router.DrainWorker(url).IgnoreError();
        break;
      case 4:
      case 5:
        router.SetHealthy(url, false).IgnoreError();
        break;
      default:
        router.SetHealthy(url, true).IgnoreError();
    }
    const std::shared_ptr<const FleetView> fleet = router.fleet();
    for (const FleetView::Member& member : fleet->members())
      STRESS_CHECK(member.worker->load.open_requests() >= 0);
  }
}

// Two threads finish, and two announce the first token of, the same ticket.
void RaceForTickets(Router& router) {
  constexpr int kTickets = 2'000;
  const std::shared_ptr<const FleetView> fleet = router.fleet();
  if (fleet->eligible().empty()) return;
  std::vector<Ticket> tickets;
  for (int i = 0; i < kTickets; ++i) {
    StatusOr<Ticket> ticket = router.Select(RoutingKey{.prompt_tokens = 7}, *fleet);
    STRESS_CHECK(ticket.ok());
    tickets.push_back(std::move(*ticket));
  }
  std::array<int, 4> wins{};
  RunTogether(4, [&](int thread) {
    for (Ticket& ticket : tickets) {
      if (thread % 2 == 0) {
        wins[static_cast<size_t>(thread)] += ticket.Finish({}) ? 1 : 0;
      } else {
        ticket.FirstToken();
      }
    }
  });
  STRESS_CHECK(wins[0] + wins[2] == kTickets);
}

void Stress(const std::string& policy, uint32_t load_factor) {
  RouterOptions options{
      .policy = {.policy = policy, .seed = 7, .virtual_nodes = 40, .hash_load_factor = load_factor}};
  for (uint64_t i = 0; i < kUrls / 2; ++i) options.worker_urls.push_back(UrlOf(i));
  StatusOr<std::shared_ptr<Router>> made = Router::Create(options);
  STRESS_CHECK(made.ok());
  Router& router = **made;

  std::array<Seen, kSelectors> seen;
  std::atomic<int> selecting{kSelectors};
  std::atomic<size_t> refused{0};
  RunTogether(kSelectors + kOperators, [&](int thread) {
    if (thread < kSelectors) {
      refused += SelectAndFinish(router, thread, &seen[static_cast<size_t>(thread)]);
      --selecting;
    } else {
      ChangeFleet(router, thread, selecting);
    }
  });
  RaceForTickets(router);

  size_t selections = 0;
  for (const Seen& workers : seen) {
    selections += workers.size();
    for (const std::shared_ptr<Worker>& worker : workers) {
      STRESS_CHECK(worker->load.open_requests() == 0);
      STRESS_CHECK(worker->load.outstanding_tokens() == 0);
      STRESS_CHECK(worker->load.context() == 0);
    }
  }
  STRESS_CHECK(selections + refused == size_t{kSelectors} * kRounds);
  std::printf(
      "%s: %zu selections, %zu times nobody was eligible, all loads 0\n", policy.c_str(), selections,
      refused.load());
}

}  // namespace
}  // namespace vllm_router

int main() {
  for (const char* policy :
       {"random", "round_robin", "least_load", "power_of_two", "consistent_hash", "rendezvous_hash"}) {
    vllm_router::Stress(policy, 0);
  }
  vllm_router::Stress("consistent_hash", 1250);
}
