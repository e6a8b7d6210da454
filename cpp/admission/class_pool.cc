#include "admission/class_pool.h"

#include <algorithm>
#include <utility>

#include <absl/container/inlined_vector.h>

#include "worker/fleet_view.h"

namespace vllm_router {
namespace {

// Stands for workers where none may be chosen, so that waiters learn of it as requests that come do.
constexpr std::array<uint32_t, 1> kAnyWorker = {0};

uint64_t HalfOf(const PoolRoom& pool) { return std::max<uint64_t>(1, pool.workers / 2); }

}  // namespace

ClassPool::ClassPool(
    std::string model, std::shared_ptr<const AdmissionSettings> settings, std::vector<WorkerId> workers)
    : model_(std::move(model)), workers_(std::move(workers)), queues_(std::move(settings)) {}

std::shared_ptr<const FleetView> ClassPool::ViewIn(const std::shared_ptr<const FleetView>& whole) {
  if (workers_.empty()) return whole;
  const MutexLock lock(view_mutex_);
  if (whole_ == whole) return view_;
  std::vector<uint32_t> positions;
  for (uint32_t position = 0; position < whole->members().size(); ++position) {
    if (std::ranges::binary_search(workers_, whole->worker(position).id)) positions.push_back(position);
  }
  view_ = std::make_shared<const FleetView>(whole->PoolOf(positions, 0));
  whole_ = whole;
  return view_;
}

void ClassPool::Follow(std::shared_ptr<const AdmissionSettings> settings) {
  const MutexLock lock(mutex_);
  queues_.Follow(std::move(settings));
}

// Threads seldom compete for it.
void ClassPool::HigherCame(int64_t now_ns) {
  if (now_ns - higher_came_ns_.load(std::memory_order_relaxed) >= kCameStepNs)
    higher_came_ns_.store(now_ns, std::memory_order_relaxed);
}

PoolRoom ClassPool::RoomNow(const FleetView& fleet, const RoomLimits& limits, int64_t now_ns) const {
  return {
      .workers = fleet.eligible().size(),
      .idle_only_prefills =
          static_cast<uint64_t>(std::max<int64_t>(0, prefills_.load(std::memory_order_relaxed))),
      .higher_class_active = now_ns - higher_came_ns_.load(std::memory_order_relaxed) < kActiveNs,
      .max_requests = limits.max_worker_requests};
}

bool ClassPool::TryPass(
    PriorityClass of_class, const FleetView& fleet, const RoomLimits& limits, int64_t now_ns) {
  if (MustWait(of_class)) return false;
  const ClassGate gate = limits.settings.of(of_class).room.gate;
  const int64_t choosing = choosing_.load(std::memory_order_acquire);
  if (limits.free_permits <= static_cast<uint64_t>(std::max<int64_t>(0, choosing))) return false;
  const bool is_bounded = gate != ClassGate::kOpen || limits.max_worker_requests != 0;
  // Where no worker may be chosen, the attempt says why.
  if (is_bounded && !fleet.eligible().empty()) {
    const PoolRoom pool = RoomNow(fleet, limits, now_ns);
    if (!HaveRoom(fleet, of_class, limits, pool, std::max<int64_t>(0, choosing), now_ns)) return false;
  }
  // Threads seldom compete for it.
  const uint32_t bit = 1u << static_cast<unsigned>(of_class);
  if ((passed_.load(std::memory_order_relaxed) & bit) == 0) passed_.fetch_or(bit, std::memory_order_relaxed);
  Begin(gate);
  return true;
}

void ClassPool::TellPassed() {
  const uint32_t passed = passed_.exchange(0, std::memory_order_relaxed);
  for (unsigned i = 0; i < kPriorityClasses; ++i) {
    if ((passed >> i & 1) != 0) queues_.Passed(static_cast<PriorityClass>(i));
  }
}

void ClassPool::Begin(ClassGate gate) {
  choosing_.fetch_add(1, std::memory_order_acq_rel);
  if (gate == ClassGate::kIdleOnly) prefills_.fetch_add(1, std::memory_order_relaxed);
}

ClassPool::Entered ClassPool::Enqueue(Waiter* waiter, double random, int64_t now_ns) {
  Entered entered;
  Waiter* displaced = nullptr;
  {
    const MutexLock lock(mutex_);
    if (retired_.load(std::memory_order_relaxed)) return {.retired = true};
    const auto retry_after = [&](PriorityClass of_class) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      const double rate = rates_[static_cast<size_t>(of_class)].At(now_ns);
      return RetryAfterNs(queues_.QueuedCost(of_class), rate, random);
    };
    entered.retry_after_ns = retry_after(waiter->of_class);
    // One that was moved from another pool came before.
    const int64_t came_ns = waiter->queued_ns != 0 ? waiter->queued_ns : now_ns;
    const ClassQueues::Entered result = queues_.Enqueue(waiter, came_ns);
    entered.queued = result.queued;
    displaced = static_cast<Waiter*>(result.displaced);
    if (displaced != nullptr) displaced->retry_after_ns = retry_after(displaced->of_class);
    waiting_.store(queues_.mask(), std::memory_order_release);
  }
  if (displaced != nullptr) displaced->tell(displaced, WaitEnd::kDisplaced);
  return entered;
}

bool ClassPool::Leave(Waiter* waiter, double random, int64_t now_ns) {
  const MutexLock lock(mutex_);
  if (!queues_.Remove(waiter)) return false;
  const size_t of_class = static_cast<size_t>(waiter->of_class);
  waiter->retry_after_ns =
      RetryAfterNs(queues_.QueuedCost(waiter->of_class), rates_[of_class].At(now_ns), random);
  waiting_.store(queues_.mask(), std::memory_order_release);
  return true;
}

bool ClassPool::IsSearched(const Waiter& waiter) const {
  const MutexLock lock(mutex_);
  return FairQueue::IsSearched(waiter);
}

void ClassPool::SetHolders(Waiter* waiter, const Holders& holders) {
  const MutexLock lock(mutex_);
  if (waiter->is_queued) waiter->holders = holders;
}

bool ClassPool::Requeue(Waiter* waiter, int64_t now_ns) {
  const MutexLock lock(mutex_);
  rates_[static_cast<size_t>(waiter->of_class)].Remove(waiter->cost, now_ns);
  if (retired_.load(std::memory_order_relaxed)) {
    queues_.Settle(*waiter, 0);
    return false;
  }
  queues_.Requeue(waiter);
  waiting_.store(queues_.mask(), std::memory_order_release);
  return true;
}

void ClassPool::Settle(const Waiter& waiter, uint64_t actual) {
  const MutexLock lock(mutex_);
  queues_.Settle(waiter, actual);
}

bool ClassPool::Retire(int64_t now_ns) {
  const MutexLock lock(mutex_);
  const bool is_used = choosing_.load(std::memory_order_acquire) > 0 ||
                       prefills_.load(std::memory_order_relaxed) > 0 ||
                       now_ns - higher_came_ns_.load(std::memory_order_relaxed) < kActiveNs;
  if (is_used || !queues_.empty()) return false;
  retired_.store(true, std::memory_order_release);
  return true;
}

void ClassPool::MoveAll() {
  std::vector<Waiter*> moved;
  {
    const MutexLock lock(mutex_);
    retired_.store(true, std::memory_order_release);
    while (ClassQueues::Waiter* const waiter = queues_.RemoveOldest())
      moved.push_back(static_cast<Waiter*>(waiter));
    waiting_.store(0, std::memory_order_release);
  }
  for (Waiter* const waiter : moved) waiter->tell(waiter, WaitEnd::kMoved);
}

OpenWorkers ClassPool::Pump(const FleetView& fleet, const RoomLimits& limits, int64_t now_ns) {
  if (!any_waiting()) return {};
  PoolRoom pool = RoomNow(fleet, limits, now_ns);
  OpenWorkers open = FindOpen(fleet, limits, pool, now_ns);
  const bool is_empty = fleet.in_rotation() == 0;
  const bool is_shut = !is_empty && fleet.eligible().empty();
  absl::InlinedVector<Waiter*, 8> told;
  {
    const MutexLock lock(mutex_);
    TellPassed();
    for (;;) {
      const int64_t choosing = std::max<int64_t>(0, choosing_.load(std::memory_order_acquire));
      ClassQueues::Workers workers;
      for (size_t i = 0; i < workers.size(); ++i) {
        const ClassGate gate = limits.settings.classes[i].room.gate;
        const bool half = gate == ClassGate::kIdleOnly && pool.higher_class_active &&
                          pool.idle_only_prefills >= HalfOf(pool);
        const ClassQueues::Waiter* const oldest = queues_.oldest(static_cast<PriorityClass>(i));
        const bool has_permit = limits.free_permits > static_cast<uint64_t>(choosing) ||
                                (oldest != nullptr && oldest->in_front);  // it kept its own
        const bool has_room = open.places[i] > choosing && !half;
        // Of a pool without workers all waiters get their response; where each is shut by its circuit breaker, one
        // request at a time finds out whether that is over.
        if (is_empty || (is_shut && choosing == 0)) {
          workers[i] = kAnyWorker;
        } else if (has_permit && has_room) {
          workers[i] = open.ids[i];
        }
      }
      const ClassQueues::Dispatched next = queues_.Next(workers, now_ns);
      if (next.waiter == nullptr) break;
      auto* const waiter = static_cast<Waiter*>(next.waiter);
      const ClassGate gate = limits.settings.of(waiter->of_class).room.gate;
      waiter->kind = next.kind;
      waiter->idle_only = gate == ClassGate::kIdleOnly;
      Begin(gate);
      if (waiter->idle_only) ++pool.idle_only_prefills;
      rates_[static_cast<size_t>(waiter->of_class)].Add(waiter->cost, now_ns);
      told.push_back(waiter);
    }
    waiting_.store(queues_.mask(), std::memory_order_release);
  }
  for (Waiter* const waiter : told) waiter->tell(waiter, WaitEnd::kDispatched);
  return open;
}

void ClassPool::DispatchAll(int64_t now_ns) {
  const ClassQueues::Workers workers = {kAnyWorker, kAnyWorker, kAnyWorker};
  absl::InlinedVector<Waiter*, 8> told;
  {
    const MutexLock lock(mutex_);
    for (;;) {
      auto* const waiter = static_cast<Waiter*>(queues_.Next(workers, now_ns).waiter);
      if (waiter == nullptr) break;
      waiter->kind = DispatchKind::kQueued;
      waiter->idle_only = false;
      Begin(ClassGate::kOpen);
      told.push_back(waiter);
    }
    waiting_.store(queues_.mask(), std::memory_order_release);
  }
  for (Waiter* const waiter : told) waiter->tell(waiter, WaitEnd::kDispatched);
}

ClassPool::Report ClassPool::Read(int64_t now_ns) const {
  Report report{.choosing = std::max<int64_t>(0, choosing_.load(std::memory_order_relaxed))};
  const MutexLock lock(mutex_);
  for (size_t i = 0; i < report.waiting.size(); ++i) {
    const auto of_class = static_cast<PriorityClass>(i);
    report.waiting[i] = queues_.waiters(of_class);
    const ClassQueues::Waiter* const oldest = queues_.oldest(of_class);
    if (oldest != nullptr) report.oldest_ns[i] = std::max<int64_t>(0, now_ns - oldest->queued_ns);
    report.rate[i] = rates_[i].At(now_ns);
  }
  return report;
}

}  // namespace vllm_router
