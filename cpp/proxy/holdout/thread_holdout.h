// ThreadHoldout: what an I/O thread needs to hold conversations out, and the turns that it has seen. Absent: none are.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "holdout/arm_chooser.h"
#include "holdout/turn.h"
#include "policy/policy.h"

namespace vllm_router {

// Shared by all threads. The baseline's Choose() is thread-safe.
struct SharedHoldout {
  std::shared_ptr<Policy> baseline;
  std::atomic<bool> stopped{false};  // no more are held out
};

struct ThreadHoldout {
  ThreadHoldout(SharedHoldout* shared, const KeyedHash::Key& key, uint32_t parts)
      : shared(*shared), arms(key, parts) {}

  SharedHoldout& shared;
  ArmChooser arms;
  TurnBuffer turns;

  bool stopped() const { return shared.stopped.load(std::memory_order_relaxed); }
};

}  // namespace vllm_router
