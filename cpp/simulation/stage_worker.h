// StageWorker: what makes a simulated worker one half of a pair, as vLLM 0.32 with NIXL pull: a prefill worker computes
// prompts and holds their KV blocks, a decode worker pulls them and generates.
//
//   prefill   {"kv_transfer_params":{"do_remote_decode":true,...}}   -> FinishPrefill: holds blocks, names them
//   decode    {"kv_transfer_params":{...,"remote_block_ids":[[3,4]]}} -> NamesEnoughBlocks, Pull: the text of what was pulled
//
// The connection (worker_connection.h) drives it and waits at its gates: points that a test closes to hold requests
// there. The blocks are in the KvFabric of the process. It has the engine's bad manners as well: blocks that are fewer
// than the prompt needs end a decode worker, and so does a missing host once the client has left. A request that decode
// rejects frees the blocks at prefill if its members' types are right, and else leaves them to their lease.
//
// Thread-safe: the gates and gauges are atomic, the rest is behind one mutex, a leaf but for the fabric's.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "simulation/kv_fabric.h"
#include "simulation/openai_api.h"
#include "simulation/transfer_params.h"

namespace vllm_router {

struct SimulatedWorkerOptions;

inline constexpr std::string_view kEngineDead =
    "EngineCore encountered an issue. See stack trace (above) for the root cause.";
inline constexpr std::string_view kTransferFailed = "Internal server error";

enum class StageGate : uint8_t {
  kPrefillHead,  // prefill: finished, the blocks are held, nothing is sent
  kPrefillBody,  // prefill: the response's head is sent
  kAdmission,    // decode: between the API server and the engine; a stream's head is sent
  kPullBegin,    // decode: the engine has the request and has not scheduled it
  kPullEnd,      // decode: the pull has begun, and is not cancelled any more
  kFirstByte,    // decode: the first token is there, and no byte of the body is sent
};
inline constexpr std::array<std::string_view, 6> kStageGateNames = {
    "prefill_head", "prefill_body", "admission", "pull_begin", "pull_end", "first_byte"};

// A request to an API as it arrived.
struct CapturedRequest {
  std::string path;
  std::vector<std::pair<std::string, std::string>> headers;
  std::string body;
};

// The contents of a prompt's blocks: its chain of full blocks, and the whole prompt for a rest.
std::vector<uint64_t> KvContents(const SimulatedPrompt& prompt, size_t block_tokens);

class StageWorker {
 public:
  struct Counters {
    KvFabric::Counters blocks;       // of this worker as the prefill side
    uint64_t aborted = 0;            // requests whose client left before the engine had finished them
    uint64_t local_prefills = 0;     // decode: prompts that it computed itself
    uint64_t failed_pulls = 0;       // decode
    uint64_t leaked_at_decode = 0;   // decode: blocks now held for a pull whose client has left
    uint64_t killed = 0;             // 1: the engine is dead
    uint64_t duplicate_members = 0;  // bodies that were rejected for one
  };

  // REQUIRES: options.stage is "prefill" or "decode". The fabric outlives it.
  StageWorker(const SimulatedWorkerOptions& options, KvFabric& fabric);
  ~StageWorker();
  StageWorker(const StageWorker&) = delete;
  StageWorker& operator=(const StageWorker&) = delete;

  bool prefills() const { return prefills_; }
  bool recomputes() const { return recomputes_; }
  const std::string& engine_id() const { return engine_id_; }
  std::string RandomHex(size_t digits);

  // The process has ended: its blocks are gone.
  void Stop() { fabric_.Detach(engine_id_); }
  // Its engine has ended; its API server goes on to say so.
  void Die();
  bool dead() const { return dead_.load(); }

  // Prefill. The member that the response carries, or "null". Nullopt: too few blocks are free now.
  std::optional<std::string> FinishPrefill(
      const TransferParams& params, const SimRequest& request, std::string_view id, size_t hit_tokens);

  // Decode. Whether the engine survives these parameters with this request.
  bool NamesEnoughBlocks(const TransferParams& params, const SimRequest& request) const;
  bool IsPeerAlive(const TransferParams& params) { return fabric_.attached(params.engine_id); }
  // False: the transfer failed. Sets what the request pulled: the cached tokens, and which prompts are garbage.
  bool Pull(const TransferParams& params, SimRequest* request);
  // Tells the prefill worker that no pull will come.
  void Release(const TransferParams& params);

  // Decode. So many of the next handshakes with engines that it does not know fail.
  void FailHandshakes(int64_t count) { failing_handshakes_.store(count); }

  // Gates. All open at first.
  void SetGate(StageGate gate, bool closed) { closed_[Index(gate)].store(closed); }
  bool closed(StageGate gate) const { return closed_[Index(gate)].load(std::memory_order_relaxed); }
  uint64_t waiting_at(StageGate gate) const { return waiting_[Index(gate)].load(); }
  void Enter(StageGate gate) { ++waiting_[Index(gate)]; }
  void Exit(StageGate gate) { --waiting_[Index(gate)]; }

  void Capture(CapturedRequest request);
  std::vector<CapturedRequest> captured();

  void CountAborted() { ++aborted_; }
  void CountLocalPrefills(size_t prompts) { local_prefills_ += prompts; }
  void CountDuplicate() { ++duplicate_members_; }
  // Decode: blocks allocated for a transfer, from admission to the end of the request; and requests that wait for one.
  void AddDecodeBlocks(int64_t blocks) { decode_blocks_ += blocks; }
  void AddDeferred(int64_t requests) { deferred_ += requests; }
  void AddFetching(int64_t requests) { fetching_ += requests; }
  void AddLeaked(int64_t blocks) { leaked_ += blocks; }
  int64_t deferred() const { return deferred_.load(); }
  int64_t fetching() const { return fetching_.load(); }
  // Blocks that the engine's own accounts do not have.
  uint64_t HeldBlocks();
  size_t BlocksOf(const SimRequest& request) const;

  void AdvanceLeases(int64_t nanos) { fabric_.Advance(engine_id_, nanos); }
  Counters ReadCounters();
  std::string CountersJson();

 private:
  static size_t Index(StageGate gate) { return static_cast<size_t>(gate); }
  std::string RemoteRequestId(const SimRequest& request, std::string_view id, size_t prompt, size_t choice);
  bool Connects(const TransferParams& params);

  const bool prefills_;
  const bool recomputes_;
  const size_t block_tokens_;
  const std::string host_;
  KvFabric& fabric_;
  const uint64_t seed_;  // of ids: other ones in each worker
  std::atomic<uint64_t> drawn_{0};
  std::string engine_id_;
  uint16_t port_ = 0;

  std::array<std::atomic<bool>, kStageGateNames.size()> closed_{};
  std::array<std::atomic<uint64_t>, kStageGateNames.size()> waiting_{};
  std::atomic<bool> dead_{false};
  std::atomic<uint64_t> aborted_{0};
  std::atomic<uint64_t> local_prefills_{0};
  std::atomic<uint64_t> failed_pulls_{0};
  std::atomic<uint64_t> duplicate_members_{0};
  std::atomic<int64_t> failing_handshakes_{0};
  std::atomic<int64_t> decode_blocks_{0};
  std::atomic<int64_t> deferred_{0};
  std::atomic<int64_t> fetching_{0};
  std::atomic<int64_t> leaked_{0};

  Mutex mutex_;
  std::set<std::string> known_engines_ ABSL_GUARDED_BY(mutex_);  // a handshake with them was made
  std::deque<CapturedRequest> captured_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace vllm_router
