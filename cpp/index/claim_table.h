// ClaimTable: prompts that were sent to a worker and whose requests have not ended yet. What the worker
// is believed to hold can be taken back when a request never reached it, or was lost with it.
//
//   slots     [ claim 7, open ]  [ claim 4, confirmed ]  [ free ]        a claim's number gives its slot
//
// A structure that remembers prompts (BlockCacheTracker, PrefixTree) adds a claim with each prompt, and
// keeps with it what it needs to take the prompt back. Most requests end well: Confirm() is one atomic
// operation and takes no lock. The structure learns of it when the slot is used again, or when it
// checks whether a claim is open.
//
// Cost: Add reads at most eight slots; 16 bytes and a Payload per slot, a few more slots than
// concurrent requests, at most kMaxClaims. Confirm: any thread. The rest: one thread at a time, under
// the structure's mutex.
//
//   ClaimTable<Place> claims;
//   const uint64_t claim = claims.Add([&](Place& place) { place = mine; }, [](const Place& confirmed) { ... });
//   claims.Confirm(claim);                       // the request ended: the worker holds the prompt
//   if (Place* place = claims.Find(claim)) ...   // it failed: null when the claim is not open any more
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/limits.h"

namespace vllm_router {

// The part that does not depend on the payload.
class ClaimStates {
 public:
  ClaimStates() = default;
  ClaimStates(const ClaimStates&) = delete;
  ClaimStates& operator=(const ClaimStates&) = delete;
  ~ClaimStates() {
    for (std::atomic<Page*>& page : pages_) delete page.load(std::memory_order_relaxed);
  }

  // Neither confirmed nor dropped. A claim whose slot was used again was confirmed.
  bool IsOpen(uint64_t claim) const {
    return StateOf(SlotOf(claim)).load(std::memory_order_acquire) == claim << 1;
  }
  // The request has ended and the worker holds its prompt. No effect for 0 and for claims that are not
  // open.
  void Confirm(uint64_t claim) {
    if (claim == 0) return;
    uint64_t open = claim << 1;
    StateOf(SlotOf(claim)).compare_exchange_strong(open, open | kConfirmed, std::memory_order_acq_rel);
  }

  size_t slots() const { return slots_; }

 protected:
  static constexpr uint64_t kConfirmed = 1;
  static constexpr size_t kPageSlots = 256;
  static constexpr size_t kProbes = 8;
  static_assert(kMaxClaims % kPageSlots == 0);

  using State = std::atomic<uint64_t>;  // claim << 1, with kConfirmed; 0: free
  using Page = std::array<State, kPageSlots>;

  static size_t SlotOf(uint64_t claim) { return claim % kMaxClaims; }
  State& StateOf(size_t slot) const {
    return (*pages_[slot / kPageSlots].load(std::memory_order_acquire))[slot % kPageSlots];
  }

  // A slot that may be used, free or confirmed; kMaxClaims: all slots are open.
  size_t FindSlot() {
    for (size_t probe = 0; probe < kProbes && probe < slots_; ++probe) {
      const size_t slot = hand_;
      hand_ = hand_ + 1 == slots_ ? 0 : hand_ + 1;
      const uint64_t state = StateOf(slot).load(std::memory_order_acquire);
      if (state == 0 || (state & kConfirmed) != 0) return slot;
    }
    if (slots_ == kMaxClaims) return kMaxClaims;
    if (slots_ % kPageSlots == 0) {
      pages_[slots_ / kPageSlots].store(new Page(), std::memory_order_release);
    }
    return slots_++;
  }

  std::array<std::atomic<Page*>, kMaxClaims / kPageSlots> pages_{};
  size_t slots_ = 0;
  size_t hand_ = 0;
  uint64_t added_ = 0;
};

template <typename Payload>
class ClaimTable : public ClaimStates {
 public:
  // `fill` gets the new claim's payload, as the slot's last user left it. If that one was confirmed,
  // `confirmed` gets it first. 0: kMaxClaims are open, and this prompt cannot be taken back.
  template <typename Fill, typename Confirmed>
  uint64_t Add(Fill fill, Confirmed confirmed) {
    const size_t slot = FindSlot();
    if (slot == kMaxClaims) return 0;
    if (slot % kPageSlots == 0 && payloads_[slot / kPageSlots] == nullptr) {
      payloads_[slot / kPageSlots] = std::make_unique<Payloads>();
    }
    Payload& payload = PayloadOf(slot);
    State& state = StateOf(slot);
    if (state.load(std::memory_order_acquire) != 0) confirmed(payload);
    fill(payload);
    const uint64_t claim = ++added_ * kMaxClaims + slot;
    state.store(claim << 1, std::memory_order_release);
    return claim;
  }

  // Null unless it is open.
  Payload* Find(uint64_t claim) { return claim != 0 && IsOpen(claim) ? &PayloadOf(SlotOf(claim)) : nullptr; }

  // Drops a claim, open or confirmed.
  void Drop(uint64_t claim) { StateOf(SlotOf(claim)).store(0, std::memory_order_release); }
  template <typename Which>
  void DropIf(Which which) {
    for (size_t slot = 0; slot < slots_; ++slot) {
      State& state = StateOf(slot);
      if (state.load(std::memory_order_acquire) != 0 && which(PayloadOf(slot))) {
        state.store(0, std::memory_order_release);
      }
    }
  }

 private:
  using Payloads = std::array<Payload, kPageSlots>;
  Payload& PayloadOf(size_t slot) { return (*payloads_[slot / kPageSlots])[slot % kPageSlots]; }

  std::array<std::unique_ptr<Payloads>, kMaxClaims / kPageSlots> payloads_;
};

}  // namespace vllm_router
