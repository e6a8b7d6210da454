#include "admission/fair_queue.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace vllm_router {
namespace {

constexpr size_t kChildren = 4;

// A waiter that can be taken, and the largest share of its prompt at a worker with room.
struct Candidate {
  FairQueue::Waiter* waiter;
  float share;
};

}  // namespace

// ---- heaps of tenants

bool FairQueue::IsBefore(uint32_t a, uint32_t b) const {
  const Tenant& one = tenants_[a];
  const Tenant& other = tenants_[b];
  return one.time != other.time ? one.time < other.time : one.joined < other.joined;
}

void FairQueue::Put(Heap& heap, size_t place, uint32_t number) {
  heap[place] = number;
  tenants_[number].place = static_cast<uint32_t>(place);
}

void FairQueue::Rise(Heap& heap, size_t place) {
  const uint32_t number = heap[place];
  while (place > 0) {
    const size_t parent = (place - 1) / kChildren;
    if (!IsBefore(number, heap[parent])) break;
    Put(heap, place, heap[parent]);
    place = parent;
  }
  Put(heap, place, number);
}

void FairQueue::Sink(Heap& heap, size_t place) {
  const uint32_t number = heap[place];
  for (size_t first = kChildren * place + 1; first < heap.size(); first = kChildren * place + 1) {
    const size_t end = std::min(first + kChildren, heap.size());
    size_t lowest = first;
    for (size_t child = first + 1; child < end; ++child) {
      if (IsBefore(heap[child], heap[lowest])) lowest = child;
    }
    if (!IsBefore(heap[lowest], number)) break;
    Put(heap, place, heap[lowest]);
    place = lowest;
  }
  Put(heap, place, number);
}

void FairQueue::Push(Heap& heap, uint32_t number) {
  heap.push_back(number);
  Rise(heap, heap.size() - 1);
}

void FairQueue::Pull(Heap& heap, uint32_t number) {
  const size_t place = tenants_[number].place;
  const uint32_t last = heap.back();
  heap.pop_back();
  if (last == number) return;
  Put(heap, place, last);
  Rise(heap, place);
  Sink(heap, tenants_[last].place);
}

void FairQueue::Move(uint32_t number, double time) {
  Tenant& tenant = tenants_[number];
  const bool is_earlier = time < tenant.time;
  tenant.time = time;
  Heap& heap = HeapOf(tenant);
  is_earlier ? Rise(heap, tenant.place) : Sink(heap, tenant.place);
}

// ---- tenants

uint32_t FairQueue::NumberOf(uint64_t name, double time) {
  const auto [found, is_new] = numbers_.try_emplace(name, kNone);
  if (!is_new) return found->second;
  uint32_t number = static_cast<uint32_t>(tenants_.size());
  if (free_.empty()) {
    tenants_.emplace_back();
  } else {
    number = free_.back();
    free_.pop_back();
  }
  found->second = number;
  tenants_[number] = {.name = name, .time = time, .joined = last_order_};
  Push(idle_, number);
  return number;
}

void FairQueue::Forget(uint32_t number) {
  Pull(idle_, number);
  numbers_.erase(tenants_[number].name);
  free_.push_back(number);
}

// Those that would begin at V - quantum anyway, and what is too many.
void FairQueue::ForgetReached() {
  while (!idle_.empty() && (tenants_[idle_.front()].time <= Floor() || tenants() > max_tenants_)) {
    Forget(idle_.front());
  }
}

// Into the list of its tenant, by its order.
void FairQueue::Link(uint32_t number, Waiter* waiter) {
  Tenant& tenant = tenants_[number];
  const bool is_first = tenant.oldest == nullptr;
  if (is_first) Pull(idle_, number);
  Waiter* older = tenant.newest;
  // One that was queued before is among the oldest.
  if (older != nullptr && older->order > waiter->order) {
    Waiter* newer = tenant.oldest;
    while (newer->order <= waiter->order) newer = newer->newer;
    older = newer->older;
  }
  waiter->older = older;
  waiter->newer = older != nullptr ? older->newer : tenant.oldest;
  (waiter->newer != nullptr ? waiter->newer->older : tenant.newest) = waiter;
  (older != nullptr ? older->newer : tenant.oldest) = waiter;
  waiter->is_queued = true;
  ++waiters_;
  ++tenant.waiters;
  if (!is_first) return;
  tenant.joined = waiter->order;
  Push(backlogged_, number);
}

void FairQueue::Unlink(uint32_t number, Waiter* waiter) {
  Tenant& tenant = tenants_[number];
  const bool is_last = tenant.oldest == tenant.newest;
  if (is_last) Pull(backlogged_, number);
  (waiter->older != nullptr ? waiter->older->newer : tenant.oldest) = waiter->newer;
  (waiter->newer != nullptr ? waiter->newer->older : tenant.newest) = waiter->older;
  waiter->older = waiter->newer = nullptr;
  waiter->is_queued = false;
  --waiters_;
  --tenant.waiters;
  if (is_last) Push(idle_, number);
}

std::optional<double> FairQueue::VirtualTimeOf(uint64_t tenant) const {
  const auto found = numbers_.find(tenant);
  return found != numbers_.end() ? std::optional(tenants_[found->second].time) : std::nullopt;
}

bool FairQueue::IsSearched(const Waiter& waiter) {
  size_t before = 0;
  for (const Waiter* older = waiter.older; older != nullptr; older = older->older) {
    if (++before >= kWaitersSearched) return false;
  }
  return waiter.is_queued;
}

FairQueue::Waiter* FairQueue::NewestOf(uint64_t tenant) const {
  const auto found = numbers_.find(tenant);
  return found != numbers_.end() ? tenants_[found->second].newest : nullptr;
}

size_t FairQueue::WaitersOf(uint64_t tenant) const {
  const auto found = numbers_.find(tenant);
  return found != numbers_.end() ? tenants_[found->second].waiters : 0;
}

// ---- waiters

bool FairQueue::Enqueue(Waiter* waiter) {
  ROUTER_CHECK(!waiter->is_queued && waiter->weight > 0, "a waiter is queued once, with a weight");
  if (waiters_ >= options_.max_waiters) return false;
  waiter->order = ++last_order_;
  // One that is behind was forgotten, so it begins anew.
  Link(NumberOf(waiter->tenant, Floor()), waiter);
  ForgetReached();
  return true;
}

void FairQueue::EnqueueInFront(Waiter* waiter) {
  ROUTER_CHECK(!waiter->is_queued && waiter->weight > 0, "a waiter is queued once, with a weight");
  waiter->order = kInFront;
  Link(NumberOf(waiter->tenant, Floor()), waiter);
  ForgetReached();
}

FairQueue::Waiter* FairQueue::Next(std::span<const uint32_t> workers) {
  if (backlogged_.empty() || workers.empty()) return nullptr;
  virtual_time_ = std::max(virtual_time_, tenants_[backlogged_.front()].time);
  Waiter* const waiter = Choose(workers);
  if (waiter != nullptr) Charge(waiter);
  ForgetReached();
  return waiter;
}

void FairQueue::Charge(Waiter* waiter) {
  const uint32_t number = numbers_.find(waiter->tenant)->second;
  Unlink(number, waiter);
  Move(number, tenants_[number].time + static_cast<double>(waiter->cost) / waiter->weight);
  reserved_ += waiter->cost;
}

void FairQueue::Requeue(Waiter* waiter) {
  ROUTER_CHECK(!waiter->is_queued && waiter->order != 0, "a waiter that is queued again was taken");
  Settle(*waiter, 0);
  Link(NumberOf(waiter->tenant, Floor()), waiter);
  ForgetReached();
}

bool FairQueue::Remove(Waiter* waiter) {
  if (!waiter->is_queued) return false;
  Unlink(numbers_.find(waiter->tenant)->second, waiter);
  ForgetReached();
  return true;
}

void FairQueue::Settle(const Waiter& waiter, uint64_t actual) {
  ROUTER_CHECK(reserved_ >= waiter.cost, "a charge is settled once");
  reserved_ -= waiter.cost;
  const double more = (static_cast<double>(actual) - static_cast<double>(waiter.cost)) / waiter.weight;
  // A tenant that was forgotten has no debt but this one.
  if (more <= 0 && !numbers_.contains(waiter.tenant)) return;
  const uint32_t number = NumberOf(waiter.tenant, Floor());
  Move(number, tenants_[number].time + more);
  ForgetReached();
}

// ---- the choice

size_t FairQueue::InFront(std::array<uint32_t, kTenantsSearched>* numbers) const {
  // Children of those that were taken; each has four, and leaves.
  std::array<size_t, kTenantsSearched*(kChildren - 1) + 1> places;
  const auto is_behind = [this](size_t a, size_t b) { return IsBefore(backlogged_[b], backlogged_[a]); };
  size_t open = 0;
  if (!backlogged_.empty()) places[open++] = 0;
  size_t count = 0;
  while (open > 0 && count < numbers->size()) {
    std::pop_heap(places.begin(), places.begin() + static_cast<std::ptrdiff_t>(open), is_behind);
    const size_t place = places[--open];
    (*numbers)[count++] = backlogged_[place];
    const size_t first = kChildren * place + 1;
    const size_t end = std::min(first + kChildren, backlogged_.size());
    for (size_t child = first; child < end && count < numbers->size(); ++child) {
      places[open++] = child;
      std::push_heap(places.begin(), places.begin() + static_cast<std::ptrdiff_t>(open), is_behind);
    }
  }
  return count;
}

// nullopt: none of the workers can take it.
std::optional<float> FairQueue::ShareAt(const Waiter& waiter, std::span<const uint32_t> workers) {
  if (waiter.worker && !std::ranges::binary_search(workers, *waiter.worker)) return std::nullopt;
  float share = 0;
  for (const Holder& holder : waiter.holders) {
    if (holder.share <= share || (waiter.worker && holder.worker != *waiter.worker)) continue;
    if (std::ranges::binary_search(workers, holder.worker)) share = holder.share;
  }
  return share;
}

FairQueue::Waiter* FairQueue::Choose(std::span<const uint32_t> workers) const {
  std::array<uint32_t, kTenantsSearched> numbers;
  const size_t tenants = InFront(&numbers);
  std::array<Candidate, kTenantsSearched * kWaitersSearched> candidates;
  size_t count = 0;
  float largest = 0;
  for (size_t i = 0; i < tenants; ++i) {
    const Tenant& tenant = tenants_[numbers[i]];
    if (count > 0 && tenant.time > tenants_[numbers[0]].time + options_.quantum) break;
    Waiter* waiter = tenant.oldest;
    for (size_t looked = 0; waiter != nullptr && looked < kWaitersSearched;
         waiter = waiter->newer, ++looked) {
      const std::optional<float> share = ShareAt(*waiter, workers);
      if (!share) continue;
      candidates[count++] = {waiter, *share};
      largest = std::max(largest, *share);
    }
  }
  const auto best = std::find_if(
      candidates.begin(), candidates.begin() + static_cast<std::ptrdiff_t>(count),
      [largest](const Candidate& candidate) { return candidate.share > largest - kSameShare; });
  return count > 0 ? best->waiter : nullptr;
}

}  // namespace vllm_router
