// Threads call each policy while others change the fleet under it: a decision is always of the view that was passed, a
// plan always fits its view, and a decision allocates nothing.
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "base/random.h"
#include "base/text.h"
#include "policy/policy_registry.h"
#include "stress.h"
#include "worker/worker_registry.h"

namespace {

thread_local uint64_t allocations = 0;

}  // namespace

void* operator new(size_t size) {
  ++allocations;
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
void* operator new(size_t size, const std::nothrow_t& /*tag*/) noexcept {  // e.g. std::stable_sort's buffer
  ++allocations;
  return std::malloc(size);
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t /*size*/) noexcept { std::free(memory); }

namespace vllm_router {
namespace {

constexpr int kAsking = 2;
constexpr int kChanging = 2;
constexpr int kChanges = 600;

std::vector<RoutingKey> Keys() {
  std::vector<RoutingKey> keys(64);
  for (size_t i = 0; i + 1 < keys.size(); ++i) {  // the last has no key
    keys[i].hash_key = Concat("header:x-session-id:sess-", i);
    keys[i].hash_key_source = RoutingKey::HashKeySource::kSession;
    keys[i].prompt.kind = Prompt::Kind::kText;
    for (size_t word = 0; word < i; ++word) keys[i].prompt.own_text += Concat("word ", word * (i % 7), " ");
  }
  return keys;
}

void AnswersAreOfTheViewThatWasAsked(const PolicyOptions& options) {
  Pool pool(MakePolicy(options).value());
  Policy* const policy = &pool.policy();
  WorkerRegistry& registry = pool.registry();
  for (int i = 0; i < 8; ++i)
    STRESS_CHECK(registry.Add(Concat("http://stays", i, ":8000"), 1.0 + i % 2).ok());

  const std::vector<RoutingKey> keys = Keys();
  std::atomic<int> changing{kChanging};
  RunTogether(kAsking + kChanging, [&](int thread) {
    Random random(static_cast<uint64_t>(thread));
    if (thread < kChanging) {
      const std::string mine = Concat("http://comes-and-goes-", thread, ":8000");
      for (int change = 0; change < kChanges; ++change) {
        const std::string other = Concat("http://stays", random.Below(8), ":8000");
        switch (random.Below(4)) {
          case 0:
            registry.Add(mine, 1.0 + static_cast<double>(random.Below(3))).IgnoreError();
            break;
          case 1:
            registry.Remove(mine).IgnoreError();
            break;
          case 2:
            STRESS_CHECK(registry.SetHealthy(other, random.Below(2) == 0).ok());
            break;
          default:
            STRESS_CHECK(registry.SetDraining(other, random.Below(2) == 0).ok());
            break;
        }
      }
      --changing;
      return;
    }
    Snapshot<FleetView>::Cached fleet(&registry.snapshot());
    while (changing > 0) {
      const FleetView& view = *fleet.Get();
      for (const RoutingKey& key : keys) {
        const std::optional<Decision> decision = policy->Choose(key, view);
        STRESS_CHECK(decision.has_value() == !view.eligible().empty());
        if (!decision) continue;
        STRESS_CHECK(view.IsEligible(decision->position));
        STRESS_CHECK(view.worker(decision->position).id == decision->worker);
        policy->Observe(*decision, Outcome{});
      }
      // A retry sees the same plan with fewer workers.
      if (view.eligible().size() < 2) continue;
      const uint32_t tried = view.eligible()[random.Below(view.eligible().size())];
      const FleetView smaller = view.Without(std::span(&tried, 1));
      for (const RoutingKey& key : keys) {
        const std::optional<Decision> decision = policy->Choose(key, smaller);
        STRESS_CHECK(decision->position != tried);
        policy->Observe(*decision, {.end = Outcome::End::kNotSent});
      }
    }
  });

  // Whatever a thread keeps for its decisions it has by now.
  const std::shared_ptr<const FleetView> view = registry.snapshot().Load();
  for (const bool counted : {false, true}) {
    const uint64_t before = allocations;
    for (int round = 0; round < 10; ++round) {
      for (const RoutingKey& key : keys) policy->Observe(*policy->Choose(key, *view), Outcome{});
    }
    if (counted) STRESS_CHECK(allocations == before);
  }
}

}  // namespace
}  // namespace vllm_router

int main() {
  using namespace vllm_router;
  for (const std::string_view name : PolicyNames()) {
    for (const HashFunction function : {HashFunction::kFurc, HashFunction::kXxh3}) {
      for (const uint32_t load_factor : {0u, 1250u}) {
        PolicyOptions options{.policy = std::string(name), .fallback_policy = "round_robin", .seed = 1};
        options.virtual_nodes = 20;  // so that many fleets can be planned for
        options.hash_function = function;
        options.hash_load_factor = load_factor;
        AnswersAreOfTheViewThatWasAsked(options);
      }
    }
  }
}
