// SlowUploads: uploads that are slower than --client-min-body-rate and hold something that others may
// wait for (a permit, memory for bodies). They are cut first: as soon as a request waits for what they
// hold, one of them is cut, and what it held goes to the request that has waited longest.
//
//   slow    front -> a b c            in the order they were found slow; one that moves again is removed
//   waiting for a permit: 2           so two are cut, one if one cut is in progress already
//
//   Add(…)        an upload is slow, and waits for its client; it may be cut at once
//   MakeRoom(n)   n requests more than are waiting are about to wait
//   Remove(u)     it has moved, or ended. A cut that is on its way to it then has no effect
//   CutEnded()    what the cut upload held has been released
//
// A cut is posted to the upload's own loop. Thread-safe: one mutex, under which the number of waiters is
// read. Cost: nothing for an upload that moves; a lock and an allocation for each wait for a slow one.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>

#include "base/mutex.h"

namespace vllm_router {

class EventLoop;

class SlowUploads {
 public:
  using Cut = void (*)(void* context);
  class Upload;

  explicit SlowUploads(std::function<uint32_t()> waiting) : waiting_(std::move(waiting)) {}
  SlowUploads(const SlowUploads&) = delete;
  SlowUploads& operator=(const SlowUploads&) = delete;

  // `cut` is called at most once, in a later turn of `loop`, on whose thread this and Remove() are called.
  std::shared_ptr<Upload> Add(EventLoop& loop, Cut cut, void* context);
  void Remove(const std::shared_ptr<Upload>& upload);
  void MakeRoom(uint32_t newcomers);
  void CutEnded();

 private:
  void CutOne() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::function<uint32_t()> waiting_;
  Mutex mutex_;
  std::list<std::shared_ptr<Upload>> slow_ ABSL_GUARDED_BY(mutex_);
  uint32_t cuts_ ABSL_GUARDED_BY(mutex_) = 0;  // in progress
};

}  // namespace vllm_router
