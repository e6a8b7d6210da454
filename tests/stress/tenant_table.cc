// Threads find more tenants than the table has meters for, take tokens, and go. Each tenant is used by one thread, so a
// meter that is another tenant's at the same time, or was forgotten with a debt, shows.
#include "admission/tenant_table.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>

#include "base/random.h"
#include "stress.h"

namespace vllm_router {
namespace {

constexpr int kThreads = 6;
constexpr int kRounds = 20'000;
constexpr int kTenantsOfEach = 10;
// One request at a time, and 1,000 tokens per microsecond of the story's clock.
constexpr TenantLimits kLimits = {.concurrency = 1, .tokens_per_minute = 60'000'000'000, .burst_ms = 1'000};

class Story {
 public:
  explicit Story(size_t max_tenants) : table_(max_tenants) {}

  void Run() {
    RunTogether(kThreads, [this](int thread) { ComeAndGo(thread); });
    STRESS_CHECK(own_.load() + table_.shared_finds() == uint64_t{kThreads} * kRounds);
    for (const TenantTable::Row& row : table_.Read(now_.load(), 1'000)) STRESS_CHECK(row.open == 0);
    std::printf("%zu own, %zu shared\n", own_.load(), static_cast<size_t>(table_.shared_finds()));
  }

 private:
  void ComeAndGo(int thread) {
    Random random(static_cast<uint64_t>(thread));
    TenantTable::Cache cache;
    std::array<int64_t, kTenantsOfEach> due{};
    for (int round = 0; round < kRounds; ++round) {
      const uint64_t number = random.Below(kTenantsOfEach);
      const std::string tenant = std::to_string(thread) + "-" + std::to_string(number);
      const int64_t now = now_.fetch_add(1'000) + 1'000;
      const TenantTable::Hold hold = table_.Find(tenant, now, &cache);
      if (hold.is_shared()) continue;
      ++own_;
      const int64_t expected = std::max<int64_t>(0, due[number] - now);
      // Another thread, whose clock is ahead, may have given away a meter whose debt is over there.
      if (hold->tokens().Used(now).nanos != expected) STRESS_CHECK(due[number] <= now_.load());
      STRESS_CHECK(!hold->Begin(kLimits, now).has_value());
      if (random.Below(3) == 0) {
        hold->TakeTokens(kLimits, 1 + random.Below(50'000), now);
        due[number] = now + hold->tokens().Used(now).nanos;
      }
      STRESS_CHECK(hold->open() == 1);
      hold->End();
    }
  }

  TenantTable table_;
  std::atomic<int64_t> now_{0};
  std::atomic<size_t> own_{0};
};

void Stress(size_t max_tenants) { std::make_unique<Story>(max_tenants)->Run(); }

}  // namespace
}  // namespace vllm_router

int main() {
  vllm_router::Stress(4);
  vllm_router::Stress(30);
  vllm_router::Stress(1'000);
}
