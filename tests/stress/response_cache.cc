// Threads ask for few responses at once, as requests to a response cache do: whatever is found under a key was stored under
// it, each follower is told exactly once or has left, and no flight stays.
#include <array>
#include <atomic>
#include <memory>
#include <string>

#include "response_cache/flight_table.h"
#include "response_cache/memory_store.h"
#include "stress.h"

namespace {

using namespace vllm_router;

constexpr int kThreads = 4;
constexpr uint32_t kRounds = 20'000;
constexpr uint32_t kKeys = 8;

CacheKey KeyOf(uint32_t number) { return TenantOfCredential(std::to_string(number)); }

// A request that follows: told once, by another thread.
struct Request final : FlightTable::Follower {
  explicit Request(std::atomic<bool>& is_told) : is_told(is_told) { is_told = false; }
  void Notify(FlightTable::News news, FlightTable::Response told, FlightTable::Lead given) override {
    STRESS_CHECK((news == FlightTable::News::kResponse) == (told != nullptr));
    STRESS_CHECK((news == FlightTable::News::kLead) == bool(given));
    response = std::move(told);
    lead = std::move(given);
    std::atomic<bool>& flag = is_told;  // this may be gone once it is set
    STRESS_CHECK(!flag.exchange(true));
    flag.notify_one();
  }

  FlightTable::Response response;
  FlightTable::Lead lead;
  std::atomic<bool>& is_told;
};

}  // namespace

int main() {
  MemoryStore store({.entries = kKeys / 2, .bytes = 1 << 20});
  FlightTable table({.followers = 2, .promotions = 1});
  std::atomic<int64_t> now{0};
  std::atomic<uint32_t> led{0};
  std::atomic<uint32_t> shared{0};
  std::array<std::atomic<bool>, kThreads> told{};
  RunTogether(kThreads, [&](int thread) {
    for (uint32_t round = 0; round < kRounds; ++round) {
      const uint32_t number = (round * 7 + static_cast<uint32_t>(thread)) % kKeys;
      const CacheKey key = KeyOf(number);
      const int64_t now_ns = now.fetch_add(1);
      if (const MemoryStore::Value found = store.Get(key, now_ns)) {
        STRESS_CHECK(*found == std::to_string(number));
      }
      Request request(told[static_cast<size_t>(thread)]);
      FlightTable::Joined joined = table.Join(key, &request, now_ns);
      if (joined.role == FlightTable::Role::kFollows) {
        if (round % 3 == 0 && table.Leave(&request)) continue;
        request.is_told.wait(false);
        if (request.response != nullptr) {
          STRESS_CHECK(*request.response == std::to_string(number));
          shared.fetch_add(1);
        }
        joined.lead = std::move(request.lead);
      }
      if (!joined.lead) continue;
      led.fetch_add(1);
      if (round % 5 == 0) continue;  // the leader is lost
      auto value = std::make_shared<const std::string>(std::to_string(number));
      store.Set(key, value, now_ns + 50, now_ns);
      if (round % 1'000 == 0) store.Clear();
      if (round % 500 == 0) store.SetLimits({.entries = 1 + round % kKeys, .bytes = 1 << 20});
      table.Finish(
          std::move(joined.lead), round % 7 == 0 ? FlightTable::End::kFailed : FlightTable::End::kShared,
          round % 7 == 0 ? nullptr : value, now_ns);
    }
  });
  const FlightTable::Stats stats = table.stats();
  STRESS_CHECK(stats.flights == 0 && stats.followers == 0);
  STRESS_CHECK(stats.shared == shared.load());
  STRESS_CHECK(led.load() > 0);
}
