// Threads begin turns of programs, wait, leave, are forced, end, and pump at once. Whatever the order: each turn that waits
// is told exactly once, or leaves, nobody waits for ever, and at the end nothing is counted.
#include "admission/program_queue.h"

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <thread>

#include "base/random.h"
#include "stress.h"

namespace vllm_router {
namespace {

constexpr int kThreads = 6;
constexpr int kRounds = 3'000;
constexpr uint64_t kPrograms = 12;
constexpr std::array<ProgramQueue::Worker, 2> kWorkers = {
    ProgramQueue::Worker{.id = WorkerId{0}, .capacity = 1'000},
    ProgramQueue::Worker{.id = WorkerId{1}, .capacity = 1'000}};

struct One : ProgramQueue::Turn {
  std::atomic<int> told{0};
};

class Story {
 public:
  explicit Story(const char* line) : queue_(8), settings_(*ProgramSettings::Parse(line)) {
    queue_.Follow(settings_, 0);
  }

  void Run(const char* name) {
    RunTogether(kThreads, [this](int thread) { ComeAndGo(thread); });
    STRESS_CHECK(!queue_.any_waiting());
    const ProgramTable::Report before = queue_.Read();
    STRESS_CHECK(before.reasoning == 0 && before.waiting == 0);
    queue_.FollowFleet({}, Now() + settings_.forget_ms * 2'000'000);
    queue_.FollowFleet({}, Now() + settings_.forget_ms * 4'000'000);
    STRESS_CHECK(queue_.size() == 0);
    STRESS_CHECK(queue_.Read().workers.empty());
    std::printf(
        "%s: %zu waited, %zu left, %zu forced, %zu too late\n", name, waited_.load(), left_.load(),
        forced_.load(), late_.load());
  }

 private:
  int64_t Now() { return now_ns_.fetch_add(100'000, std::memory_order_relaxed); }

  void Wait(One& one, Random& random) {
    ++waited_;
    const uint64_t patience = random.Below(3) == 0 ? random.Below(50) : 2'000;
    const bool leaves = random.Below(2) == 0;
    for (uint64_t spins = 0; one.told.load(std::memory_order_acquire) == 0; ++spins) {
      if (spins == patience) {
        if (leaves && queue_.Leave(&one, Now())) {
          ++left_;
          return;
        }
        const bool forced = !leaves && queue_.Force(&one, kWorkers, Now());
        ++(forced ? forced_ : late_);  // it was told first, or is being told
      }
      queue_.Pump(0, kWorkers, Now());
      std::this_thread::yield();
    }
    STRESS_CHECK(one.told.load() == 1);
  }

  void ComeAndGo(int thread) {
    Random random(static_cast<uint64_t>(thread));
    for (int round = 0; round < kRounds; ++round) {
      One one;
      one.who.name = {.high = 0, .low = random.Below(kPrograms)};
      one.who.tenant = one.who.name.low % 3;
      one.who.of_class = static_cast<PriorityClass>(random.Below(3));
      one.prompt = 1 + random.Below(500);
      one.tell = [](ProgramQueue::Turn* turn) {
        static_cast<One*>(turn)->told.fetch_add(1, std::memory_order_release);
      };
      if (queue_.Begin(&one, kWorkers, Now()) == ProgramQueue::Began::kWaits) Wait(one, random);
      if (random.Below(2) == 0) queue_.Bind(&one, WorkerId{static_cast<uint32_t>(random.Below(2))});
      std::optional<ProgramTable::Use> use;
      if (random.Below(4) != 0)
        use = ProgramTable::Use{.prompt = random.Below(600), .cached = 0, .output = 10};
      queue_.End(&one, use, random.Below(5) == 0, kWorkers, Now());
      if (random.Below(64) == 0) queue_.FollowFleet(kWorkers, Now());
    }
  }

  ProgramQueue queue_;
  const ProgramSettings settings_;
  std::atomic<int64_t> now_ns_{0};
  std::atomic<size_t> waited_{0}, left_{0}, forced_{0}, late_{0};
};

}  // namespace
}  // namespace vllm_router

int main() {
  vllm_router::Story("on ttl_ms=5").Run("on");
  vllm_router::Story("observe").Run("observe");
}
