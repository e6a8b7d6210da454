// CacheCapacityPoller polls each worker for its KV cache's size in tokens and its block size. A policy
// that remembers prompts then forgets what the worker has evicted, and counts whole blocks only
// (docs/how-to/set_block_size_and_capacity.md).
//
//   GET /metrics: num_gpu_blocks="27134", block_size="16"   ->   434,144 tokens
//   prompts of that worker have 4.5 bytes per token         ->   1,953,648 bytes, 30,525 blocks of 64 bytes
//
// The bytes per token are learned (worker/bytes_per_token.h); the policy is informed again after a
// change of a sixteenth. A healthy host is polled when it joins or comes back, and every kAgainNanos,
// since an engine may restart unnoticed. A host that does not respond, for instance while it starts, is
// polled after kSoonNanos. A worker that reports nothing keeps --max-blocks-per-worker, or has no limit
// of its own, and the log says once what is guessed of it. The tokens are also the worker's own (Worker::cache_tokens), for
// programs. Nothing is polled under policies that remember nothing, unless programs are told apart. On the control thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "net/task.h"
#include "policy/policy.h"
#include "proxy/client/http_client.h"
#include "proxy/client/load_report.h"
#include "proxy/control/host_poller.h"
#include "worker/worker.h"

namespace vllm_router {

class CacheCapacityPoller final : public HostPoller {
 public:
  static constexpr int64_t kAgainNanos = 300'000'000'000;
  static constexpr int64_t kSoonNanos = 10'000'000'000;
  static constexpr int64_t kLookNanos = 1'000'000'000;  // between looks at the fleet

  explicit CacheCapacityPoller(IoThread& thread) : HostPoller(thread) {}

  void Start() override { FollowSettings(); }
  void FollowSettings() override;

 private:
  // What a worker has reported, and what of it was passed to the policy.
  struct Size {
    WorkerId worker;
    ReportedCache told;
    CacheSize size;
  };
  struct Host {
    std::vector<WorkerId> workers;  // polled last; others are due at once
    int64_t due_ns = 0;
    bool polling = false;
    bool warned = false;
    std::vector<Size> sizes;
  };

  int64_t Pass(const FleetView& fleet) override;
  Task<void> Poll(std::shared_ptr<Host> host, Workers workers);
  void WarnOfGuesses(Host& host, const std::string& base, const HttpResponse& response) const;
  // Informs the policy if the size has changed.
  void Apply(const Worker& worker, Size* size);

  std::map<std::string, std::shared_ptr<Host>> hosts_;  // by base URL
  bool begun_ = false;
};

}  // namespace vllm_router
