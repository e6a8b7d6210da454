// Worker: one target that can serve a request, an engine or one data-parallel rank of it. Constant
// properties are plain members; what changes while requests run is its load and what its responses tell
// of it. Health and draining belong to the fleet's snapshots (fleet_view.h), so that one snapshot is
// consistent. Shared by snapshots and tickets; thread-safe.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/limits.h"
#include "base/snapshot.h"
#include "worker/bytes_per_token.h"
#include "worker/circuit_breaker.h"
#include "worker/outlier_detector.h"
#include "worker/pair_state.h"
#include "worker/response_progress.h"
#include "worker/retry_after_backoff.h"
#include "worker/stage.h"
#include "worker/worker_load.h"
#include "worker/worker_url.h"

namespace vllm_router {

// Dense and small; a worker that is added again gets a new one.
enum class WorkerId : uint32_t {};

// Blocks that the GPU cache of a data-parallel rank can hold at once, as the engine counts them.
struct GpuBlocks {
  std::optional<uint32_t> rank;  // null: of every rank that has no value of its own
  uint64_t blocks = 0;

  friend bool operator==(const GpuBlocks&, const GpuBlocks&) = default;
};

// The capacity of a worker's KV cache.
struct CacheSize {
  uint64_t bytes = 0;                      // of prompts, four per token id; 0: unknown
  uint32_t block_tokens = 0;               // tokens of a block; 0: unknown
  std::vector<GpuBlocks> gpu_blocks = {};  // empty: unknown
};

// Which request may be the one that finds out whether a worker in doubt serves again: one that can move to another worker,
// or any.
enum class ProbeDue : uint8_t { kNone, kOfMovable, kOfAny };

struct Worker {
  Worker(
      WorkerId id, WorkerUrl url, uint32_t weight, std::shared_ptr<WorkerLoad> load,
      const WorkerRole& role = {})
      : id(id),
        url(std::move(url)),
        stage(role.stage),
        bootstrap_port(role.bootstrap_port),
        peer(role.peer),
        kv_group(role.kv_group),
        weight(weight),
        shared_load(std::move(load)),
        load(*shared_load) {}

  const WorkerId id;
  const WorkerUrl url;
  const Stage stage;  // kAll in a fleet without stages
  const std::optional<uint16_t> bootstrap_port;
  const std::optional<KvPeer> peer;               // null: it has not registered
  const std::string kv_group;                     // MayPair(); empty: it fits all
  std::atomic<uint32_t> weight;                   // relative capacity in thousandths, kMinWeight..kMaxWeight
  const std::shared_ptr<WorkerLoad> shared_load;  // beside those of other workers (LoadPages)
  WorkerLoad& load;
  CircuitBreaker breaker;
  ResponseCounts responses;
  ResponseProgress progress;
  RetryAfterBackoff backoff;
  BytesPerToken bytes_per_token;  // of the prompts that it served; token ids count as four bytes
  std::atomic<uint32_t> slow_start_factor{kWeightOne};  // thousandths; less during slow start
  std::atomic<bool> suspected{false};                   // a health check has been requested
  std::atomic<bool> health_known{false};  // one has ended, so that the fleet's `healthy` is known
  // The engine's life as its source names it, in a number that is equal in all routers; 0: not named.
  std::atomic<uint64_t> incarnation{0};
  std::atomic<uint64_t> selections{0};  // decisions that chose this worker
  std::atomic<float> prefill_pace{0};   // tokens of prompts per second (routing/prefill_pace.h); 0: not known
  std::atomic<float> kv_use{-1};        // 0..1, as it told when its load was polled; below 0: not known
  std::atomic<uint64_t> cache_tokens{0};      // that its KV cache holds, as it told; 0: not known
  std::atomic<uint32_t> others_queued{0};     // in its queue beyond this router's, polled; 0: not known
  std::atomic<uint32_t> failed_transfers{0};  // of KV blocks to it, one after the other
  // Of a prefill worker whose bootstrap server names it, by its rank; null: not known. Written by the control thread.
  Snapshot<std::string> engine_id{nullptr};
  std::atomic<bool> engine_id_doubted{false};  // a query for it has been requested
  std::atomic<EngineKind> engine{EngineKind::kUnknown};
  // It accepts requests and does not serve them (hang_detector.h), so it gets no new ones until it sends a byte. One
  // request may go there all the same, to find that out, each time that `probe_due` is set, and sets it back.
  std::atomic<bool> in_doubt{false};
  std::atomic<ProbeDue> probe_due{ProbeDue::kNone};
  std::atomic<uint64_t> doubts{0};      // how often it was
  std::atomic<bool> overloaded{false};  // by its last load poll (overload.h): others are preferred
  // Requests that wait for its response after another worker was lost with them: one of them may be
  // crashing workers.
  std::atomic<uint32_t> lost_elsewhere{0};
  // Requests that wait for its response while another worker goes on with theirs.
  std::atomic<uint32_t> second_runs{0};

  // What another router calls the life of this worker's engine: one that started anew, as one of the two knows, is
  // another worker.
  bool MayBe(uint64_t life) const {
    const uint64_t own = incarnation.load(std::memory_order_relaxed);
    return own == 0 || life == 0 || own == life;
  }

  // What loads and shares are compared by: the weight, reduced during slow start. Code that must stay
  // stable, such as a ring's points, uses the weight itself.
  uint32_t load_weight() const {
    const uint32_t share = slow_start_factor.load(std::memory_order_relaxed);
    return std::max<uint32_t>(1, weight * share / kWeightOne);
  }
};

}  // namespace vllm_router
