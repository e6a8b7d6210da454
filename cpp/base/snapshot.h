// Snapshot<T>: an immutable value that is replaced whole. One writer builds the next value aside and publishes it;
// readers keep what they hold for as long as they hold it and never see half a change.
//
//     writer   Publish(v2) ----+
//                              v
//     cell     [version 2 | shared_ptr v2]
//                              ^
//     reader   Cached::Get(): compares one number; takes the lock only when the number moved
//
//   Snapshot<FleetView>::Cached fleet(&snapshot);   // one per thread
//   const FleetView& view = *fleet.Get();
//
// Cost: Load() one short mutex and a reference count; Cached::Get() one relaxed load while nothing changes.
// Snapshot is thread-safe; a Cached belongs to one thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "base/mutex.h"

namespace vllm_router {

template <typename T>
class Snapshot {
 public:
  using Pointer = std::shared_ptr<const T>;

  explicit Snapshot(Pointer value) : value_(std::move(value)) {}

  Pointer Load() const {
    MutexLock lock(mutex_);
    return value_;
  }

  void Publish(Pointer next) {
    MutexLock lock(mutex_);
    value_.swap(next);
    version_.fetch_add(1, std::memory_order_release);
  }

  uint64_t version() const { return version_.load(std::memory_order_acquire); }

  class Cached {
   public:
    explicit Cached(const Snapshot* snapshot) : snapshot_(snapshot) {}

    // Valid until the next Get(); copy the pointer to hold the value across a wait.
    const Pointer& Get() {
      const uint64_t version = snapshot_->version();
      if (version != version_ || value_ == nullptr) {
        value_ = snapshot_->Load();
        version_ = version;
      }
      return value_;
    }

   private:
    const Snapshot* snapshot_;
    uint64_t version_ = 0;
    Pointer value_;
  };

 private:
  mutable Mutex mutex_;  // leaf
  Pointer value_ ABSL_GUARDED_BY(mutex_);
  std::atomic<uint64_t> version_{0};
};

}  // namespace vllm_router
