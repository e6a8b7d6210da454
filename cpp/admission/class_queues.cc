#include "admission/class_queues.h"

#include <algorithm>
#include <array>

#include "base/check.h"

namespace vllm_router {
namespace {

constexpr size_t kClasses = kPriorityClasses;
// Sizes are the settings'; one class may have the places of all three, and some that are queued again.
constexpr FairQueue::Options kOptions{
    .max_waiters = 4 * size_t{kMaxClassQueue}, .max_tenants = kMaxClassQueue};

}  // namespace

std::string_view DispatchKindName(DispatchKind kind) {
  constexpr std::array<std::string_view, kDispatchKinds> kNames = {"direct", "queued", "aged"};
  return kNames[static_cast<size_t>(kind)];
}

ClassQueues::ClassQueues(std::shared_ptr<const AdmissionSettings> settings)
    : settings_(std::move(settings)), queues_{{Queue(kOptions), Queue(kOptions), Queue(kOptions)}} {}

bool ClassQueues::empty() const { return mask() == 0; }

uint32_t ClassQueues::mask() const {
  uint32_t mask = 0;
  for (size_t i = 0; i < kClasses; ++i) mask |= queues_[i].oldest != nullptr ? 1u << i : 0;
  return mask;
}

uint64_t ClassQueues::QueuedCost(PriorityClass of_class) const {
  uint64_t cost = 0;
  for (size_t i = 0; i < kClasses; ++i) {
    if (i <= Index(of_class) || settings_->weighted()) cost += queues_[i].cost;
  }
  return cost;
}

// ---- the waiters of a class

void ClassQueues::FollowBacklog(Queue* queue, uint64_t tenant, size_t before) {
  const size_t now = queue->fair.WaitersOf(tenant);
  if (before != 0) queue->backlogs.erase({before, tenant});
  if (now != 0) queue->backlogs.insert({now, tenant});
}

void ClassQueues::Link(Queue* queue, Waiter* waiter) {
  Waiter* before = queue->newest;
  if (before != nullptr && before->arrival > waiter->arrival) {
    Waiter* behind = queue->oldest;  // one that was dispatched before is among the oldest
    while (behind->arrival <= waiter->arrival) behind = behind->behind;
    before = behind->before;
  }
  waiter->before = before;
  waiter->behind = before != nullptr ? before->behind : queue->oldest;
  (waiter->behind != nullptr ? waiter->behind->before : queue->newest) = waiter;
  (before != nullptr ? before->behind : queue->oldest) = waiter;
}

void ClassQueues::Unlink(Queue* queue, Waiter* waiter) {
  (waiter->before != nullptr ? waiter->before->behind : queue->oldest) = waiter->behind;
  (waiter->behind != nullptr ? waiter->behind->before : queue->newest) = waiter->before;
  waiter->before = waiter->behind = nullptr;
}

void ClassQueues::Joined(Queue* queue, Waiter* waiter, size_t before) {
  Link(queue, waiter);
  queue->cost += waiter->cost;
  FollowBacklog(queue, waiter->tenant, before);
}

void ClassQueues::Left(Queue* queue, Waiter* waiter, size_t before) {
  Unlink(queue, waiter);
  queue->cost -= waiter->cost;
  FollowBacklog(queue, waiter->tenant, before);
}

// ---- into the queues

ClassQueues::Waiter* ClassQueues::FindDisplaced(const Waiter& newcomer) const {
  const size_t own = Index(newcomer.of_class);
  for (size_t lower = kClasses - 1; lower > own; --lower) {
    Waiter* const newest = queues_[lower].newest;
    if (newest != nullptr && !newest->in_front) return newest;
  }
  const Queue& queue = queues_[own];
  if (queue.backlogs.empty()) return nullptr;
  const auto& [most, tenant] = *queue.backlogs.rbegin();
  // With the newcomer its own tenant has one more, and this one then has one less.
  if (tenant == newcomer.tenant || most < queue.fair.WaitersOf(newcomer.tenant) + 2) return nullptr;
  auto* const newest = static_cast<Waiter*>(queue.fair.NewestOf(tenant));
  return newest->in_front ? nullptr : newest;
}

ClassQueues::Entered ClassQueues::Enqueue(Waiter* waiter, int64_t now_ns) {
  Queue& queue = QueueOf(*waiter);
  const uint32_t size = settings_->of(waiter->of_class).queue_size;
  if (size == 0 && !waiter->in_front) return {};
  Entered entered;
  if (queue.fair.waiters() >= size && !waiter->in_front) {
    entered.displaced = FindDisplaced(*waiter);
    if (entered.displaced == nullptr) return {};
    Remove(entered.displaced);
  }
  const bool was_empty = queue.oldest == nullptr;
  const size_t before = queue.fair.WaitersOf(waiter->tenant);
  if (waiter->in_front) {
    queue.fair.EnqueueInFront(waiter);
    waiter->arrival = kInFront;
  } else {
    ROUTER_CHECK(queue.fair.Enqueue(waiter), "the sizes of all queues are within that of each");
    waiter->arrival = ++last_arrival_;
  }
  waiter->queued_ns = now_ns;
  if (was_empty) queue.time = std::max(queue.time, virtual_time_);
  Joined(&queue, waiter, before);
  entered.queued = true;
  return entered;
}

void ClassQueues::Requeue(Waiter* waiter) {
  Queue& queue = QueueOf(*waiter);
  const size_t before = queue.fair.WaitersOf(waiter->tenant);
  queue.fair.Requeue(waiter);
  ChargeClass(*waiter, -static_cast<double>(waiter->cost));
  Joined(&queue, waiter, before);
}

bool ClassQueues::Remove(Waiter* waiter) {
  Queue& queue = QueueOf(*waiter);
  const size_t before = queue.fair.WaitersOf(waiter->tenant);
  if (!queue.fair.Remove(waiter)) return false;
  Left(&queue, waiter, before);
  return true;
}

ClassQueues::Waiter* ClassQueues::RemoveOldest() {
  for (Queue& queue : queues_) {
    Waiter* const waiter = queue.oldest;
    if (waiter == nullptr) continue;
    Remove(waiter);
    return waiter;
  }
  return nullptr;
}

void ClassQueues::Settle(const Waiter& waiter, uint64_t actual) {
  QueueOf(waiter).fair.Settle(waiter, actual);
  ChargeClass(waiter, static_cast<double>(actual) - static_cast<double>(waiter.cost));
}

// ---- out of the queues

void ClassQueues::ChargeClass(const Waiter& waiter, double cost) {
  const double weight = settings_->of(waiter.of_class).weight;
  if (weight > 0) QueueOf(waiter).time += cost / weight;
}

ClassQueues::Waiter* ClassQueues::NextOf(size_t of_class, std::span<const uint32_t> workers) {
  Queue& queue = queues_[of_class];
  if (queue.oldest == nullptr || workers.empty()) return nullptr;
  auto* const waiter = static_cast<Waiter*>(queue.fair.Next(workers));
  if (waiter == nullptr) return nullptr;
  Left(&queue, waiter, queue.fair.WaitersOf(waiter->tenant) + 1);
  return waiter;
}

bool ClassQueues::AgesInto(size_t upper, int64_t now_ns) const {
  if (upper + 1 >= kClasses) return false;
  const Waiter* const waiter = queues_[upper + 1].oldest;
  const int64_t age_ms = settings_->classes[upper + 1].age_after_ms;
  if (waiter == nullptr || age_ms == 0 || now_ns - waiter->queued_ns < age_ms * 1'000'000) return false;
  const Waiter* const other = queues_[upper].oldest;
  return other == nullptr || waiter->queued_ns < other->queued_ns;
}

ClassQueues::Dispatched ClassQueues::NextStrict(const Workers& workers, int64_t now_ns) {
  for (size_t i = 0; i < kClasses; ++i) {
    Queue& queue = queues_[i];
    const bool ages = !queue.aged_last && AgesInto(i, now_ns);
    if (Waiter* const older = ages ? NextOf(i + 1, workers[i]) : nullptr) {
      queue.aged_last = true;
      return {.waiter = older, .kind = DispatchKind::kAged};
    }
    if (Waiter* const own = NextOf(i, workers[i])) {
      queue.aged_last = false;
      return {.waiter = own};
    }
  }
  return {};
}

ClassQueues::Dispatched ClassQueues::NextWeighted(const Workers& workers) {
  std::array<size_t, kClasses> order;
  for (size_t i = 0; i < kClasses; ++i) order[i] = i;
  std::ranges::stable_sort(order, {}, [this](size_t i) { return queues_[i].time; });
  for (const size_t i : order) {
    const double time = queues_[i].time;
    Waiter* const waiter = NextOf(i, workers[i]);
    if (waiter == nullptr) continue;
    virtual_time_ = std::max(virtual_time_, time);
    ChargeClass(*waiter, static_cast<double>(waiter->cost));
    return {.waiter = waiter};
  }
  return {};
}

ClassQueues::Dispatched ClassQueues::Next(const Workers& workers, int64_t now_ns) {
  return settings_->weighted() ? NextWeighted(workers) : NextStrict(workers, now_ns);
}

}  // namespace vllm_router
