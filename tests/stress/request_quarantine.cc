// Threads report losses, deaths, recoveries and successes, and ask about requests and clients, all at once. Whatever the order: a
// request that nobody lost is never a suspect, one with two deaths and nothing since is one, and of a restricted client
// there is never more than one request inside.
#include "routing/request_quarantine.h"

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>

#include "base/random.h"
#include "stress.h"

namespace vllm_router {
namespace {

constexpr int kThreads = 6;
constexpr int kRounds = 20'000;
constexpr int64_t kSecond = 1'000'000'000;
constexpr uint64_t kClients = 3;
constexpr RequestDigest kInnocent{1, 1};
constexpr RequestDigest kGuilty{2, 2};

std::array<std::atomic<int>, kClients + 1> inside{};

void Work(RequestQuarantine& quarantine, int thread) {
  Random random(static_cast<uint64_t>(thread));
  for (int round = 0; round < kRounds; ++round) {
    const int64_t now = kSecond + round;  // nothing expires
    const uint64_t number = 10 + random.Below(40);
    const uint64_t client = 1 + random.Below(kClients);
    const uint64_t host = random.Below(4);
    switch (random.Below(6)) {
      case 0:
        quarantine.ReportLoss(
            {.digest = {number, number}, .bytes = number, .host = host, .client = client, .request_id = "id"},
            now);
        break;
      case 1:
        quarantine.ReportDown(host, now);
        break;
      case 2:
        quarantine.ReportUp(host, now, now);
        break;
      case 3:
        quarantine.ReportSuccess({number, number}, host, now);
        break;
      case 4:
        STRESS_CHECK(!quarantine.IsSuspected(kInnocent, now));
        STRESS_CHECK(quarantine.IsSuspected(kGuilty, now));
        STRESS_CHECK(quarantine.active() && quarantine.MayKnow(2) && quarantine.MayForget(2));
        break;
      default:
        if (quarantine.Enter(client, now) != RequestQuarantine::Entry::kEntered) break;
        STRESS_CHECK(inside[client].fetch_add(1) == 0);
        inside[client].fetch_sub(1);
        quarantine.Leave(client);
    }
  }
}

void Run() {
  RequestQuarantine quarantine;
  for (const uint64_t host : {100, 101}) {
    quarantine.ReportLoss(
        {.digest = kGuilty, .bytes = 2, .host = host, .client = 1, .request_id = "guilty"}, 1);
    quarantine.ReportDown(host, 1);
  }
  RunTogether(kThreads, [&](int thread) { Work(quarantine, thread); });
  const RequestQuarantine::Counts counts = quarantine.CountAll(kSecond);
  STRESS_CHECK(counts.quarantined >= 1 && counts.losses > 0);
  std::printf(
      "%llu losses, %llu quarantines, %llu clients restricted\n",
      static_cast<unsigned long long>(counts.losses), static_cast<unsigned long long>(counts.quarantines),
      static_cast<unsigned long long>(counts.restricted));
}

}  // namespace
}  // namespace vllm_router

int main() { vllm_router::Run(); }
