#include "response_cache/generations.h"

#include <algorithm>

#include <absl/hash/hash.h>

namespace vllm_router {
namespace {

// Of a field, beyond what is known here: 2^32 steps. Beyond it someone else wrote the number, and one that is near
// kMaxCount would leave no room for steps, so that no invalidation would ever be heard again.
constexpr uint64_t kMaxAhead = uint64_t{1} << 56;

bool MayBe(uint64_t told, uint64_t known) {
  return told <= Generations::kMaxCount && told <= known + kMaxAhead;
}

}  // namespace

Generations::Generations(uint64_t seed, uint64_t largest_step)
    : slots_(kSlots), random_(seed), largest_step_(largest_step) {}

Generations::Counter* Generations::Find(std::string_view model) const {
  for (size_t at = absl::Hash<std::string_view>()(model);; ++at) {
    Counter* const counter = slots_[at % kSlots].load(std::memory_order_acquire);
    if (counter == nullptr || counter->name == model) return counter;
  }
}

uint64_t Generations::Of(std::string_view model) const {
  const uint64_t all = all_.count.load(std::memory_order_acquire);
  if (tracked_.load(std::memory_order_acquire) == 0) return all;
  const Counter* const counter = Find(model);
  return counter == nullptr ? all : all + counter->count.load(std::memory_order_acquire);
}

Generations::Counter* Generations::FindOrAdd(std::string_view model, size_t most) {
  Counter* const found = Find(model);
  if (found != nullptr) return found;
  if (model.empty() || model == kAll || model.size() > kMaxNameBytes || models_.size() >= most)
    return nullptr;
  Counter* const added = &models_.emplace_back(model);
  size_t at = absl::Hash<std::string_view>()(model);
  while (slots_[at % kSlots].load(std::memory_order_relaxed) != nullptr) ++at;
  slots_[at % kSlots].store(added, std::memory_order_release);
  tracked_.store(models_.size(), std::memory_order_release);
  return added;
}

Generations::Counter* Generations::OfField(std::string_view field) {
  return field == kAll ? &all_ : FindOrAdd(field, kMaxTracked);
}

uint64_t Generations::Advance(Counter* counter) {
  const uint64_t step = Step();
  counter->pending += step;
  return counter->count.fetch_add(step, std::memory_order_acq_rel) + step;
}

uint64_t Generations::Bump(std::string_view model) {
  {
    const MutexLock lock(mutex_);
    Counter* const counter = FindOrAdd(model, kMaxModels);
    if (counter != nullptr) return all_.count.load(std::memory_order_relaxed) + Advance(counter);
  }
  return BumpAll();
}

uint64_t Generations::BumpAll() {
  const MutexLock lock(mutex_);
  return Advance(&all_);
}

std::vector<Generations::Increment> Generations::Pending() const {
  std::vector<Increment> increments;
  const MutexLock lock(mutex_);
  if (all_.pending > 0) increments.push_back({std::string(kAll), all_.pending});
  for (const Counter& counter : models_) {
    if (counter.pending > 0) increments.push_back({counter.name, counter.pending});
  }
  return increments;
}

void Generations::Raise(Counter* counter, uint64_t least) {
  if (counter->count.load(std::memory_order_relaxed) < least)
    counter->count.store(least, std::memory_order_release);
}

void Generations::Written(std::string_view field, uint64_t by, uint64_t count) {
  const MutexLock lock(mutex_);
  Counter* const counter = OfField(field);
  if (counter == nullptr || !MayBe(count, counter->shared())) return;
  counter->pending -= std::min(by, counter->pending);
  Raise(counter, count + counter->pending);
}

std::vector<Generations::Repair> Generations::Merge(std::span<const Field> fields) {
  std::vector<Repair> repairs;
  const MutexLock lock(mutex_);
  const uint64_t merge = ++merges_;
  for (const Field& field : fields) {
    Counter* const counter = OfField(field.name);
    if (counter == nullptr) continue;
    counter->merged_at = merge;
    if (!field.count || !MayBe(*field.count, counter->shared())) {
      repairs.push_back({counter->name, Repair::How::kSet, counter->shared() + Step()});
      continue;
    }
    const uint64_t shared = counter->shared();
    if (shared > *field.count)
      repairs.push_back({counter->name, Repair::How::kAdd, shared - *field.count + Step()});
    Raise(counter, *field.count + counter->pending);
  }
  const auto look_for_loss = [&](const Counter& counter) {
    if (counter.merged_at != merge && counter.shared() > 0)
      repairs.push_back({counter.name, Repair::How::kSetIfMissing, counter.shared()});
  };
  look_for_loss(all_);
  for (const Counter& counter : models_) look_for_loss(counter);
  return repairs;
}

std::vector<Generations::Count> Generations::Counts() const {
  std::vector<Count> counts;
  const MutexLock lock(mutex_);
  const auto add = [&](const Counter& counter) {
    const uint64_t count = counter.count.load(std::memory_order_relaxed);
    if (count > 0) counts.push_back({counter.name, count});
  };
  add(all_);
  for (const Counter& counter : models_) add(counter);
  return counts;
}

}  // namespace vllm_router
