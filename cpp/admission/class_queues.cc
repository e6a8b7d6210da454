#include "admission/class_queues.h"

#include <algorithm>
#include <array>

#include "base/check.h"

namespace vllm_router {
namespace {

constexpr size_t kClasses = kPriorityClasses;
// Sizes are the settings'; this bounds how many tenants a FairQueue remembers.
constexpr FairQueue::Options kOptions{.max_waiters = 4 * size_t{kMaxClassQueue}};

}  // namespace

std::string_view DispatchKindName(DispatchKind kind) {
  constexpr std::array<std::string_view, kDispatchKinds> kNames = {"direct", "queued", "aged"};
  return kNames[static_cast<size_t>(kind)];
}

ClassQueues::ClassQueues(std::shared_ptr<const AdmissionSettings> settings)
    : settings_(std::move(settings)), lines_{{Line(kOptions), Line(kOptions), Line(kOptions)}} {}

bool ClassQueues::empty() const { return mask() == 0; }

uint32_t ClassQueues::mask() const {
  uint32_t mask = 0;
  for (size_t i = 0; i < kClasses; ++i) mask |= lines_[i].oldest != nullptr ? 1u << i : 0;
  return mask;
}

uint64_t ClassQueues::QueuedCost(PriorityClass of_class) const {
  uint64_t cost = 0;
  for (size_t i = 0; i < kClasses; ++i) {
    if (i <= Index(of_class) || settings_->weighted()) cost += lines_[i].cost;
  }
  return cost;
}

// ---- the waiters of a class

void ClassQueues::FollowBacklog(Line* line, uint64_t tenant, size_t before) {
  const size_t now = line->queue.WaitersOf(tenant);
  if (before != 0) line->backlogs.erase({before, tenant});
  if (now != 0) line->backlogs.insert({now, tenant});
}

void ClassQueues::Link(Line* line, Waiter* waiter) {
  Waiter* before = line->newest;
  if (before != nullptr && before->arrival > waiter->arrival) {
    Waiter* behind = line->oldest;  // one that was dispatched before is among the oldest
    while (behind->arrival < waiter->arrival) behind = behind->behind;
    before = behind->before;
  }
  waiter->before = before;
  waiter->behind = before != nullptr ? before->behind : line->oldest;
  (waiter->behind != nullptr ? waiter->behind->before : line->newest) = waiter;
  (before != nullptr ? before->behind : line->oldest) = waiter;
}

void ClassQueues::Unlink(Line* line, Waiter* waiter) {
  (waiter->before != nullptr ? waiter->before->behind : line->oldest) = waiter->behind;
  (waiter->behind != nullptr ? waiter->behind->before : line->newest) = waiter->before;
  waiter->before = waiter->behind = nullptr;
}

void ClassQueues::Joined(Line* line, Waiter* waiter, size_t before) {
  Link(line, waiter);
  line->cost += waiter->cost;
  FollowBacklog(line, waiter->tenant, before);
}

void ClassQueues::Left(Line* line, Waiter* waiter, size_t before) {
  Unlink(line, waiter);
  line->cost -= waiter->cost;
  FollowBacklog(line, waiter->tenant, before);
}

// ---- into the queues

ClassQueues::Waiter* ClassQueues::FindDisplaced(const Waiter& newcomer) const {
  const size_t own = Index(newcomer.of_class);
  for (size_t lower = kClasses - 1; lower > own; --lower) {
    if (lines_[lower].newest != nullptr) return lines_[lower].newest;
  }
  const Line& line = lines_[own];
  if (line.backlogs.empty()) return nullptr;
  const auto& [most, tenant] = *line.backlogs.rbegin();
  // With the newcomer its own tenant has one more, and this one then has one less.
  if (tenant == newcomer.tenant || most < line.queue.WaitersOf(newcomer.tenant) + 2) return nullptr;
  return static_cast<Waiter*>(line.queue.NewestOf(tenant));
}

ClassQueues::Entered ClassQueues::Enqueue(Waiter* waiter, int64_t now_ns) {
  Line& line = LineOf(*waiter);
  const uint32_t size = settings_->of(waiter->of_class).queue_size;
  if (size == 0) return {};
  Entered entered;
  if (line.queue.waiters() >= size) {
    entered.displaced = FindDisplaced(*waiter);
    if (entered.displaced == nullptr) return {};
    Remove(entered.displaced);
  }
  const bool was_empty = line.oldest == nullptr;
  const size_t before = line.queue.WaitersOf(waiter->tenant);
  ROUTER_CHECK(line.queue.Enqueue(waiter), "the sizes of all queues are within that of each");
  waiter->arrival = ++last_arrival_;
  waiter->queued_ns = now_ns;
  if (was_empty) line.time = std::max(line.time, virtual_time_);
  Joined(&line, waiter, before);
  entered.queued = true;
  return entered;
}

void ClassQueues::Requeue(Waiter* waiter) {
  Line& line = LineOf(*waiter);
  const size_t before = line.queue.WaitersOf(waiter->tenant);
  line.queue.Requeue(waiter);
  ChargeClass(*waiter, -static_cast<double>(waiter->cost));
  Joined(&line, waiter, before);
}

bool ClassQueues::Remove(Waiter* waiter) {
  Line& line = LineOf(*waiter);
  const size_t before = line.queue.WaitersOf(waiter->tenant);
  if (!line.queue.Remove(waiter)) return false;
  Left(&line, waiter, before);
  return true;
}

void ClassQueues::Settle(const Waiter& waiter, uint64_t actual) {
  LineOf(waiter).queue.Settle(waiter, actual);
  ChargeClass(waiter, static_cast<double>(actual) - static_cast<double>(waiter.cost));
}

// ---- out of the queues

void ClassQueues::ChargeClass(const Waiter& waiter, double cost) {
  const double weight = settings_->of(waiter.of_class).weight;
  if (weight > 0) LineOf(waiter).time += cost / weight;
}

ClassQueues::Waiter* ClassQueues::NextOf(size_t of_class, std::span<const uint32_t> workers) {
  Line& line = lines_[of_class];
  if (line.oldest == nullptr || workers.empty()) return nullptr;
  auto* const waiter = static_cast<Waiter*>(line.queue.Next(workers));
  if (waiter == nullptr) return nullptr;
  Left(&line, waiter, line.queue.WaitersOf(waiter->tenant) + 1);
  return waiter;
}

ClassQueues::Waiter* ClassQueues::AgedIn(size_t upper, int64_t now_ns) const {
  if (upper + 1 >= kClasses) return nullptr;
  Waiter* const waiter = lines_[upper + 1].oldest;
  const int64_t age_ms = settings_->classes[upper + 1].age_after_ms;
  if (waiter == nullptr || age_ms == 0 || now_ns - waiter->queued_ns < age_ms * 1'000'000) return nullptr;
  const Waiter* const other = lines_[upper].oldest;
  return other == nullptr || waiter->queued_ns < other->queued_ns ? waiter : nullptr;
}

ClassQueues::Dispatched ClassQueues::NextStrict(const Workers& workers, int64_t now_ns) {
  for (size_t i = 0; i < kClasses; ++i) {
    Waiter* const aged = AgedIn(i, now_ns);
    const bool fits = aged != nullptr && !workers[i].empty() &&
                      (!aged->worker || std::ranges::binary_search(workers[i], *aged->worker));
    if (fits) {
      Line& line = LineOf(*aged);
      const size_t before = line.queue.WaitersOf(aged->tenant);
      line.queue.Take(aged);
      Left(&line, aged, before);
      return {.waiter = aged, .kind = DispatchKind::kAged};
    }
    if (Waiter* const waiter = NextOf(i, workers[i])) return {.waiter = waiter};
  }
  return {};
}

ClassQueues::Dispatched ClassQueues::NextWeighted(const Workers& workers) {
  std::array<size_t, kClasses> order;
  for (size_t i = 0; i < kClasses; ++i) order[i] = i;
  std::ranges::stable_sort(order, {}, [this](size_t i) { return lines_[i].time; });
  for (const size_t i : order) {
    const double time = lines_[i].time;
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
