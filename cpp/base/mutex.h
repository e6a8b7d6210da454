// Mutex and MutexLock: std::mutex and its lock, with the annotations that clang -Wthread-safety checks. A member names
// the mutex that guards it, a function the one that its caller holds; to use either without it does not compile.
//
//   Mutex mutex_;  // leaf
//   uint64_t total_ ABSL_GUARDED_BY(mutex_) = 0;
//   void AddLocked(uint64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
//
//   MutexLock lock(mutex_);
//   changed_.wait(lock.native(), [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return total_ > 0; });
//
// The analysis does not look into a lambda: one that uses guarded members says what it requires, as above.
// Cost: that of std::mutex; to g++ the annotations are nothing. A Mutex is thread-safe, a MutexLock belongs to one thread.
#pragma once

#include <mutex>

#include <absl/base/thread_annotations.h>

namespace vllm_router {

class ABSL_LOCKABLE Mutex {
 private:
  friend class MutexLock;
  std::mutex mutex_;
};

class ABSL_SCOPED_LOCKABLE MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex) : lock_(mutex.mutex_) {}
  ~MutexLock() ABSL_UNLOCK_FUNCTION() {}
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

  void Unlock() ABSL_UNLOCK_FUNCTION() { lock_.unlock(); }
  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() { lock_.lock(); }

  // For the waits of std::condition_variable, which hold the mutex again when they return.
  std::unique_lock<std::mutex>& native() { return lock_; }

 private:
  std::unique_lock<std::mutex> lock_;
};

}  // namespace vllm_router
