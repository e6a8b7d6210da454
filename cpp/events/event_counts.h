// EventCounts: what became of the KV events of one source, and whether enough of them can be used.
//
// Of a source more than half of whose last events cannot be used, or that has sent nothing else, nothing is
// believed. What is left out on purpose, such as groups without full attention, does not count.
//
// One thread.
#pragma once

#include <array>
#include <cstdint>

#include "events/event_applier.h"
#include "events/kv_event.h"
#include "events/kv_source.h"

namespace vllm_router {

class EventCounts {
 public:
  // Events after which it is checked whether events can be used.
  static constexpr uint64_t kCheckedEvents = 100;

  // `events`: with those that the decoder dropped.
  void AddDecoded(const KvBatch& batch, uint64_t events);
  // Of those decoded, that reach no applier.
  void AddUnusable(uint64_t events) { unusable_ += events; }
  // After a batch. `applier`: the source's.
  void Check(const EventApplier& applier);
  // The engine is another one.
  void Restart();

  bool usable() const { return !is_mismatch_ && !is_useless_; }
  // What the decoder and the applier count.
  void AddTo(const EventApplier& applier, KvSourceStatus* status) const;

 private:
  std::array<uint64_t, kKvDropCount> decoder_dropped_{};
  uint64_t unusable_ = 0;          // neither by the decoder nor by the applier
  uint64_t events_ = 0;            // since the last check
  uint64_t all_unusable_ = 0;      // by whatever, ever
  uint64_t checked_unusable_ = 0;  // of these, at the last check
  bool is_mismatch_ = false;
  bool is_useless_ = false;  // nothing was of use yet, and something was of none
};

}  // namespace vllm_router
