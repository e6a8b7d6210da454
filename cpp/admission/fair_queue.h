// FairQueue: the waiting requests of one class of one pool, in an order that gives each tenant tokens by its weight.
//
//   Enqueue(w)          a place behind its tenant's others; false: the queue is full
//   Next(workers)       the next waiter that one of these workers can take, charged with its cost; null: none
//   Requeue(w)          gives the charge back, and w its old place
//   EnqueueInFront(w)   a place before its tenant's others, however many wait
//   Remove(w)           it waits no more
//   Settle(w, actual)   what it cost in the end, in place of its charge
//
// Start-time fair queueing. A tenant's virtual time is what was charged to it over its weight; the queue's, V, is the highest
// that the tenant in front had so far. The tenant in front is the one with the lowest. To keep prompts at workers that have
// them cached, a request of another tenant may go before, if
//
//   - it is one of the 16 oldest of the 8 tenants in front, and its tenant is at most a quantum behind the first, and
//   - a larger share of its prompt is cached at one of `workers`; less than 0.05 more is no more.
//
// If none of these can be taken, the first that can of the 8 tenants goes. A tenant that returns begins at V - quantum unless
// it is further, so being idle earns nothing. Hence, without corrections by Settle(): of two tenants that have waiters all the
// time, the virtual times differ by at most a quantum and the largest cost over a weight; by two quanta if one came later.
//
// A tenant without waiters is remembered until V - quantum reaches it. At most `max_tenants` are, waiting ones included; beyond
// that the one that is least ahead of those without waiters is forgotten.
//
// The caller guards it. Cost: O(log tenants); Next() looks at no more than 128 waiters. No callback, no clock.
//
// P. Goyal, H. M. Vin and H. Cheng, "Start-time Fair Queueing", SIGCOMM 1996; the lift as in Y. Sheng et al., "Fairness in
// Serving Large Language Models", OSDI 2024 (arXiv 2401.00588); the quantum as in arXiv 2501.14312.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include <absl/container/flat_hash_map.h>

namespace vllm_router {

class FairQueue {
 public:
  static constexpr size_t kTenantsSearched = 8;
  static constexpr size_t kWaitersSearched = 16;  // of each of these
  static constexpr float kSameShare = 0.05F;

  struct Options {
    size_t max_waiters = 0;
    double quantum = 4'000;  // tokens over weight
    size_t max_tenants = 0;  // that are remembered; 0: twice max_waiters
  };

  // A worker that has some of a waiter's prompt in its cache.
  struct Holder {
    uint32_t worker = 0;
    float share = 0;  // of the prompt's tokens, 0 to 1
  };

  // Must not move, nor its members but `holders` change, until it is settled or removed.
  struct Waiter {
    uint64_t tenant = 0;
    double weight = 1;                    // > 0
    uint64_t cost = 0;                    // in tokens
    std::optional<uint32_t> worker = {};  // the one that it must have
    std::array<Holder, 4> holders = {};   // the best ones; a share of 0: none
    // Of the queue.
    uint64_t order = 0;  // 0: it was never queued
    Waiter* older = nullptr;
    Waiter* newer = nullptr;
    bool is_queued = false;
  };

  // REQUIRES: quantum >= 0.
  explicit FairQueue(const Options& options)
      : options_(options),
        max_tenants_(options.max_tenants != 0 ? options.max_tenants : 2 * options.max_waiters) {}
  FairQueue(const FairQueue&) = delete;
  FairQueue& operator=(const FairQueue&) = delete;

  bool Enqueue(Waiter* waiter);
  // The queue may have more than `max_waiters` by it. Several of a tenant are in the order in which they came here.
  void EnqueueInFront(Waiter* waiter);
  // `workers`: with room, in ascending order.
  Waiter* Next(std::span<const uint32_t> workers);
  // REQUIRES: Next() returned it, and it is not settled. The queue may have more than `max_waiters` by it.
  void Requeue(Waiter* waiter);
  // False: it is not in the queue.
  bool Remove(Waiter* waiter);
  // REQUIRES: as Requeue().
  void Settle(const Waiter& waiter, uint64_t actual);

  // True if Next() looks at its holders once its tenant is in front: it is one of the tenant's 16 oldest.
  static bool IsSearched(const Waiter& waiter);
  // Of the tenant's waiters the one that came last; null: it has none.
  Waiter* NewestOf(uint64_t tenant) const;
  size_t WaitersOf(uint64_t tenant) const;
  size_t waiters() const { return waiters_; }
  size_t tenants() const { return numbers_.size(); }  // that are remembered
  double virtual_time() const { return virtual_time_; }
  // nullopt: it is not remembered.
  std::optional<double> VirtualTimeOf(uint64_t tenant) const;
  // Costs of waiters that were taken and are neither settled nor queued again.
  uint64_t reserved() const { return reserved_; }

 private:
  static constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();
  static constexpr uint64_t kInFront = 1;  // an order before all others

  struct Tenant {
    uint64_t name = 0;
    double time = 0;      // virtual
    uint64_t joined = 0;  // the order of the waiter with which it came
    Waiter* oldest = nullptr;
    Waiter* newest = nullptr;
    uint32_t place = 0;  // in its heap
    uint32_t waiters = 0;
  };
  // Numbers of tenants, the lowest virtual time first; 4-ary.
  using Heap = std::vector<uint32_t>;

  bool IsBefore(uint32_t a, uint32_t b) const;
  void Put(Heap& heap, size_t place, uint32_t number);
  void Rise(Heap& heap, size_t place);
  void Sink(Heap& heap, size_t place);
  void Push(Heap& heap, uint32_t number);
  void Pull(Heap& heap, uint32_t number);
  // The tenant's virtual time becomes this.
  void Move(uint32_t number, double time);

  double Floor() const { return virtual_time_ - options_.quantum; }
  Heap& HeapOf(const Tenant& tenant) { return tenant.oldest != nullptr ? backlogged_ : idle_; }
  // That of the tenant, which is made at `time` if there is none.
  uint32_t NumberOf(uint64_t name, double time);
  void Link(uint32_t number, Waiter* waiter);
  void Unlink(uint32_t number, Waiter* waiter);
  void Charge(Waiter* waiter);
  void Forget(uint32_t number);
  void ForgetReached();
  size_t InFront(std::array<uint32_t, kTenantsSearched>* numbers) const;
  static std::optional<float> ShareAt(const Waiter& waiter, std::span<const uint32_t> workers);
  Waiter* Choose(std::span<const uint32_t> workers) const;

  const Options options_;
  const size_t max_tenants_;
  double virtual_time_ = 0;
  uint64_t last_order_ = kInFront;
  size_t waiters_ = 0;
  uint64_t reserved_ = 0;
  std::vector<Tenant> tenants_;
  std::vector<uint32_t> free_;
  absl::flat_hash_map<uint64_t, uint32_t> numbers_;
  Heap backlogged_;
  Heap idle_;
};

}  // namespace vllm_router
