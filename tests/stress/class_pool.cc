// Threads dispatch requests of all classes at once, wait, leave, choose, are queued again and end. Whatever the order: each
// waiter hears exactly once how its wait ended, nobody waits for ever, and at the end nothing is counted.
#include "admission/class_pool.h"

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <thread>
#include <vector>

#include "admission/whole_responses.h"
#include "base/limits.h"
#include "base/random.h"
#include "stress.h"
#include "worker/fleet_view.h"
#include "worker/worker.h"

namespace vllm_router {
namespace {

constexpr int kThreads = 6;
constexpr int kRounds = 3'000;

struct One : ClassPool::Waiter {
  std::atomic<int> told{0};
  std::atomic<WaitEnd> how{WaitEnd::kLeft};
};

struct Fleet {
  explicit Fleet(size_t workers) {
    std::vector<FleetView::Member> members;
    for (uint32_t i = 0; i < workers; ++i) {
      members.push_back(
          {.worker = std::make_shared<Worker>(
               WorkerId{i}, WorkerUrl{}, kWeightOne, std::make_shared<WorkerLoad>())});
    }
    view = std::make_unique<FleetView>(std::move(members), 1);
  }
  std::unique_ptr<FleetView> view;
};

struct Counts {
  std::atomic<size_t> direct{0}, waited{0}, full{0}, displaced{0}, left{0}, collided{0}, back{0};
};

class Story {
 public:
  Story(size_t workers, const char* lines)
      : settings_(std::make_shared<const AdmissionSettings>(*AdmissionSettings::Parse(lines))),
        pool_("", settings_),
        fleet_(workers) {}

  void Run(const char* name) {
    RunTogether(kThreads, [this](int thread) { ComeAndGo(thread); });
    const ClassPool::Report report = pool_.Read(1);
    for (const uint64_t waiting : report.waiting) STRESS_CHECK(waiting == 0);
    STRESS_CHECK(report.choosing == 0);
    STRESS_CHECK(!pool_.any_waiting());
    STRESS_CHECK(pool_.RoomNow(*fleet_.view, Limits(), 1).idle_only_prefills == 0);
    std::printf(
        "%s: %zu direct, %zu waited, %zu full, %zu displaced, %zu left, %zu of them too late, %zu stepped "
        "back\n",
        name, counts_.direct.load(), counts_.waited.load(), counts_.full.load(), counts_.displaced.load(),
        counts_.left.load(), counts_.collided.load(), counts_.back.load());
  }

 private:
  RoomLimits Limits() const {
    return {.settings = *settings_, .whole = whole_, .max_worker_requests = 0, .free_permits = 1'000};
  }
  void Pump() { pool_.Pump(*fleet_.view, Limits(), 1); }

  // True: it is dispatched.
  bool Wait(One& one, Random& random, int told_before) {
    const uint64_t patience = random.Below(4) == 0 ? random.Below(50) : UINT64_MAX;
    for (uint64_t spins = 0;; ++spins) {
      if (one.told.load(std::memory_order_acquire) != told_before) break;
      if (spins >= patience) {
        if (pool_.Leave(&one, 0, 1)) {
          ++counts_.left;
          return false;
        }
        ++counts_.collided;  // it was told first, or is being told
        while (one.told.load(std::memory_order_acquire) == told_before) std::this_thread::yield();
        break;
      }
      if (spins % 64 == 63) Pump();  // as the tick does
      std::this_thread::yield();
    }
    if (one.how.load() == WaitEnd::kDispatched) return true;
    ++counts_.displaced;
    return false;
  }

  void ComeAndGo(int thread) {
    Random random(static_cast<uint64_t>(thread));
    for (int round = 0; round < kRounds; ++round) {
      One one;
      one.of_class = static_cast<PriorityClass>(random.Below(3));
      one.tenant = random.Below(4);
      one.cost = random.Below(100);
      one.tell = [](ClassPool::Waiter* waiter, WaitEnd end) {
        auto* const told = static_cast<One*>(waiter);
        told->how.store(end);
        told->told.fetch_add(1, std::memory_order_release);
      };
      const bool idle_only = settings_->of(one.of_class).room.gate == ClassGate::kIdleOnly;
      if (pool_.TryPass(one.of_class, *fleet_.view, Limits(), 1)) {
        ++counts_.direct;
        Choose(idle_only);
        continue;
      }
      const ClassPool::Entered entered = pool_.Enqueue(&one, 0, 1);
      STRESS_CHECK(!entered.retired);
      if (!entered.queued) {
        ++counts_.full;
        continue;
      }
      Pump();
      ++counts_.waited;
      int told = 0;
      bool dispatched = Wait(one, random, told);
      while (dispatched) {
        ++told;
        Choose(one.idle_only);
        if (random.Below(4) != 0) {
          pool_.Settle(one, random.Below(200));
          break;
        }
        ++counts_.back;
        pool_.Requeue(&one, 1);
        Pump();
        dispatched = Wait(one, random, told);
      }
      STRESS_CHECK(one.told.load() <= told + 1);
    }
  }

  void Choose(bool idle_only) {
    std::this_thread::yield();
    pool_.Chosen();
    Pump();
    if (idle_only) pool_.EndPrefill();
    Pump();
  }

  const std::shared_ptr<const AdmissionSettings> settings_;
  WholeResponses whole_;
  ClassPool pool_;
  const Fleet fleet_;
  Counts counts_;
};

void Stress(size_t workers, const char* lines) { std::make_unique<Story>(workers, lines)->Run(lines); }

}  // namespace
}  // namespace vllm_router

int main() {
  vllm_router::Stress(1, "class default gate=idle_only kv_ceiling=0.5");
  vllm_router::Stress(
      2,
      "class interactive gate=idle_only queue_size=2\nclass default gate=idle_only queue_size=2\n"
      "class batch queue_size=2");
  vllm_router::Stress(
      2,
      "class interactive gate=idle_only weight=4\nclass default gate=idle_only weight=2\n"
      "class batch weight=1");
}
