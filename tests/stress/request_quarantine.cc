// Threads report losses, deaths, recoveries and successes, and ask about requests and clients, all at once. Whatever the order: a
// request that nobody lost is never a suspect, one with two deaths and nothing since is one, and of a client
// that may have one request at a time there is never more than one inside.
#include "routing/request_quarantine.h"

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
constexpr RequestDigest kAlsoGuilty{3, 3};
constexpr uint64_t kSender = 9;  // of both

std::atomic<int> inside{0};

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
        if (quarantine.Enter(client, now) == RequestQuarantine::Entry::kEntered) quarantine.Leave(client);
        if (quarantine.Enter(kSender, now) != RequestQuarantine::Entry::kEntered) break;
        STRESS_CHECK(inside.fetch_add(1) == 0);
        inside.fetch_sub(1);
        quarantine.Leave(kSender);
    }
  }
}

void Run() {
  RequestQuarantine quarantine;
  for (const uint64_t host : {100, 101, 102, 103}) {
    const RequestDigest& digest = host < 102 ? kGuilty : kAlsoGuilty;
    for (uint64_t other = 0; other < 19; ++other) {  // older than the guilty one
      quarantine.ReportLoss({.digest = {host, other}, .host = host, .client = 10 + other}, 1);
    }
    quarantine.ReportLoss(
        {.digest = digest, .bytes = 2, .host = host, .client = kSender, .sent_ns = 1, .request_id = "guilty"},
        1);
    quarantine.ReportDown(host, 1);
  }
  STRESS_CHECK(quarantine.restricts());
  RunTogether(kThreads, [&](int thread) { Work(quarantine, thread); });
  const RequestQuarantine::Counts counts = quarantine.CountAll(kSecond);
  STRESS_CHECK(counts.quarantined >= 1 && counts.restricted >= 1 && counts.losses > 0);
  std::printf(
      "%llu losses, %llu quarantines, %llu clients restricted\n",
      static_cast<unsigned long long>(counts.losses), static_cast<unsigned long long>(counts.quarantines),
      static_cast<unsigned long long>(counts.restricted));
}

}  // namespace
}  // namespace vllm_router

int main() { vllm_router::Run(); }
