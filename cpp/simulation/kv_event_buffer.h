// KvEventBuffer: keeps what happens in the cache of a simulated engine until a client takes it, in the shape of
// TensorRT-LLM 1.3, whose engines publish nothing.
//
//   LiveEngine   stored a b, removed c    ->   events 7 and 8    ->   POST /kv_cache_events: [{"event_id": 7, …}, …]
//
// Each event is given once. The last max_events are kept; earlier ones are missing from the numbers. All methods
// may be called from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <set>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "simulation/live_engine.h"

namespace vllm_router {

class KvEventBuffer {
 public:
  // REQUIRES: the engine outlives it, and no part was submitted; max_events above 0. `window`: the tokens that
  // its attention reaches.
  KvEventBuffer(LiveEngine& engine, size_t max_events, size_t window);

  // Takes over what the engine has changed by now, so that it need not keep that.
  void Collect();
  std::string Take();  // the events since the last call, as JSON
  // Forgets the engine's cache and the events kept, and numbers from 0.
  void Restart();

 private:
  void Begin() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CollectLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Append(const LiveEngine::CacheEvent& event) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AppendData(const std::string& data) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  LiveEngine& engine_;
  const size_t max_events_;
  const size_t window_;
  Mutex mutex_;                                                       // calls the engine while it is held
  std::vector<LiveEngine::CacheStep> steps_ ABSL_GUARDED_BY(mutex_);  // reused
  std::deque<std::string> events_ ABSL_GUARDED_BY(mutex_);
  uint64_t next_ ABSL_GUARDED_BY(mutex_) = 0;
  std::set<uint64_t> blocks_ ABSL_GUARDED_BY(mutex_);  // in the cache
};

}  // namespace vllm_router
