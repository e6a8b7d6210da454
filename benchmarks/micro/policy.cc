// What does one decision cost, the hash of its key included? Loads are set as a busy fleet has them; a decision that
// allocates memory is an error.
#include "policy/policy.h"

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "base/text.h"
#include "policy/policy_registry.h"
#include "worker/worker_registry.h"

namespace {

std::atomic<uint64_t> allocations{0};

}  // namespace

void* operator new(size_t size) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t /*size*/) noexcept { std::free(memory); }

namespace vllm_router {

struct LoadForTest {
  static void Set(WorkerLoad& load, int64_t requests, int64_t tokens) {
    load.open_requests_ = static_cast<int32_t>(requests);
    load.queued_prefill_ = tokens;
  }
};

namespace {

constexpr size_t kKeys = 1 << 13;

struct Case {
  std::string name;  // as in the benchmark's name
  PolicyOptions options;
  bool weighted = false;
  bool one_in_four_down = false;
};

class Fleet {
 public:
  Fleet(const Case& what, int64_t workers) : pool_(MakePolicy(what.options).value()) {
    WorkerRegistry& registry = pool_.registry();
    std::vector<std::string> urls;
    std::vector<WorkerDeclaration> joining;
    for (int64_t i = 0; i < workers; ++i)
      urls.push_back(Concat("http://10.1.", i / 256, ".", i % 256, ":8000"));
    for (int64_t i = 0; i < workers; ++i) {
      joining.push_back(DeclareWorker(urls[i]).value());
      if (what.weighted) joining.back().weight = 1.0 + static_cast<double>(i % 3);
    }
    if (!registry.AddAll(joining).ok()) std::abort();
    for (int64_t i = 0; what.one_in_four_down && i < workers; i += 4) {
      if (!registry.SetHealthy(urls[i], false).ok()) std::abort();
    }
    view_ = registry.snapshot().Load();
    Random random(3);
    for (const FleetView::Member& member : view_->members()) {
      const uint64_t requests = 20 + random.Below(10);
      LoadForTest::Set(
          member.worker->load, static_cast<int64_t>(requests),
          static_cast<int64_t>(requests * 1000 + random.Below(1000)));
    }
  }

  uint32_t Choose(const RoutingKey& key) const {
    const Decision decision = *pool_.policy().Choose(key, *view_);
    pool_.policy().Observe(decision, {});
    return decision.position;
  }

 private:
  Pool pool_;
  std::shared_ptr<const FleetView> view_;
};

std::vector<RoutingKey> Keys() {
  Random random(1);
  std::vector<RoutingKey> keys(kKeys);
  for (RoutingKey& key : keys) {
    key.hash_key =
        Concat("header:x-session-id:", Hex16(random.Next()), "-", Hex16(random.Next()));  // 53 bytes
    key.hash_key_source = RoutingKey::HashKeySource::kSession;
    key.prefix_digest = Sha256({key.hash_key});
    key.prompt.kind = Prompt::Kind::kText;
    while (key.prompt.own_text.size() < 2048) key.prompt.own_text += key.hash_key;
    key.prompt_tokens = 512;
    key.has_blocks = true;
    key.usable_blocks = 7;
    // All begin alike, as under one system prompt, so that most workers hold something of each.
    for (BlockHash block = 1; block <= 4; ++block) key.blocks.push_back(block);
    for (int i = 0; i < 4; ++i) key.blocks.push_back(random.Next() | 1);
  }
  return keys;
}

void BM_PolicyChoose(benchmark::State& state, const Case& what, int64_t workers) {
  const Fleet fleet(what, workers);
  const std::vector<RoutingKey> keys = Keys();
  uint64_t checksum = 0;
  for (size_t i = 0; i < kKeys; ++i) checksum += (i + 1) * (fleet.Choose(keys[i]) + 1);
  const uint64_t before = allocations.load();
  size_t next = 0;
  uint64_t decisions = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(fleet.Choose(keys[next]));
    next = (next + 1) % kKeys;
    ++decisions;
  }
  // The library itself allocates a few times per run, never per iteration.
  if (decisions > 100 && allocations.load() - before > decisions / 2)
    state.SkipWithError("a decision allocates");
  state.SetItemsProcessed(state.iterations());
  state.SetLabel("checksum " + Hex16(checksum));
}

PolicyOptions Options(
    std::string_view policy, HashFunction function = HashFunction::kFurc, uint32_t load_factor = 0) {
  PolicyOptions options;
  options.policy = policy;
  options.seed = 1;
  options.hash_function = function;
  options.hash_load_factor = load_factor;
  return options;
}

int RegisterAll() {
  const std::vector<Case> cases = {
      {.name = "random", .options = Options("random")},
      {.name = "random/weights:unequal", .options = Options("random"), .weighted = true},
      {.name = "round_robin", .options = Options("round_robin")},
      {.name = "round_robin/weights:unequal", .options = Options("round_robin"), .weighted = true},
      {.name = "least_load", .options = Options("least_load")},
      {.name = "least_load/weights:unequal", .options = Options("least_load"), .weighted = true},
      {.name = "power_of_two", .options = Options("power_of_two")},
      {.name = "consistent_hash", .options = Options("consistent_hash")},
      {.name = "consistent_hash/hash:xxh3", .options = Options("consistent_hash", HashFunction::kXxh3)},
      {.name = "consistent_hash/load_factor:1.25",
       .options = Options("consistent_hash", HashFunction::kFurc, 1250)},
      {.name = "consistent_hash/down:25%", .options = Options("consistent_hash"), .one_in_four_down = true},
      {.name = "rendezvous_hash", .options = Options("rendezvous_hash")},
      {.name = "rendezvous_hash/hash:xxh3", .options = Options("rendezvous_hash", HashFunction::kXxh3)},
      {.name = "rendezvous_hash/hash:xxh3/weights:unequal",
       .options = Options("rendezvous_hash", HashFunction::kXxh3),
       .weighted = true},
      {.name = "prefix_aware", .options = Options("prefix_aware")},
      {.name = "prefix_hash", .options = Options("prefix_hash")},
      {.name = "cache_aware", .options = Options("cache_aware")},
      {.name = "vllm_cache_aware", .options = Options("vllm_cache_aware")},
      {.name = "auto", .options = Options("auto")},
      {.name = "kv_logit", .options = Options("kv_logit")},
      {.name = "kv_overlap", .options = Options("kv_overlap")},
      {.name = "sticky_least_loaded", .options = Options("sticky_least_loaded")},
  };
  for (const Case& what : cases) {
    for (const int64_t workers : {3, 64, 4096}) {
      const std::string name = Concat("BM_PolicyChoose/policy:", what.name, "/workers:", workers);
      benchmark::RegisterBenchmark(
          name.c_str(), [what, workers](benchmark::State& state) { BM_PolicyChoose(state, what, workers); });
    }
  }
  return 0;
}

[[maybe_unused]] const int registered = RegisterAll();

}  // namespace
}  // namespace vllm_router
