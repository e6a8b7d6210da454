// CacheSizes: asks each worker how many tokens its KV cache holds, so that the index of a policy that matches blocks forgets
// what the worker has forgotten (docs/how-to/set_block_size_and_capacity.md).
//
//   GET /metrics: num_gpu_blocks="27134", block_size="16"   ->   434,144 tokens   ->   13,567 blocks of 32 tokens
//
// A host is asked when it is healthy: when it joins or comes back, and every kAgainNanos, since an engine may start again
// unseen; one that does not answer, as while it starts, after kSoonNanos. One that does not say keeps --max-blocks-per-worker. Nothing happens under other policies. On the control lane.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "net/event_loop.h"
#include "net/task.h"
#include "worker/worker.h"

namespace vllm_router {

struct Lane;

class CacheSizes {
 public:
  static constexpr int64_t kAgainNanos = 300'000'000'000;
  static constexpr int64_t kSoonNanos = 10'000'000'000;
  static constexpr int64_t kLookNanos = 1'000'000'000;  // at the fleet, for who is due

  explicit CacheSizes(Lane& lane);

  void Start();
  // Ends in one of the loop's next turns, questions under way when they do.
  void Stop();
  bool ended() const { return open_ == 0; }

 private:
  using Workers = std::vector<std::shared_ptr<Worker>>;
  struct Host {
    std::vector<WorkerId> workers;  // that were asked about last; others are due at once
    int64_t due_ns = 0;
    bool asked = false;  // and not answered yet
  };

  Task<void> Run();
  void Look();
  Task<void> Ask(std::shared_ptr<Host> host, Workers workers);
  void Apply(const Worker& worker, uint64_t tokens);

  Lane& lane_;
  Delay delay_;
  bool stopped_ = false;
  int open_ = 0;                                        // coroutines of ours
  std::map<std::string, std::shared_ptr<Host>> hosts_;  // by base URL
};

}  // namespace vllm_router
