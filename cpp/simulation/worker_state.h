// WorkerState: the state that all connections of one simulated worker share: the engine, the faults, the
// counts, and the texts that are made of them. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/snapshot.h"
#include "simulation/conversation_store.h"
#include "simulation/kv_event_buffer.h"
#include "simulation/kv_event_publisher.h"
#include "simulation/live_engine.h"
#include "simulation/simulated_worker.h"
#include "simulation/stage_worker.h"

namespace vllm_router {

enum class SimRoute : uint8_t {
  kChat,  // up to kRenderResponses in the order of Api
  kCompletions,
  kResponses,
  kMessages,
  kGenerate,
  kEmbeddings,
  kTokenize,
  kDetokenize,
  kCountTokens,
  kInputTokens,
  kRenderMessages,
  kRenderResponses,
  kConversations,  // and what is below it
  kModels,
  kHealth,
  kPing,
  kVersion,
  kLoad,
  kMetrics,
  kReset,
  kKvEventSources,
  kKvCacheEvents,
  kStats,
  kEcho,
  kUnknown,
};
inline constexpr size_t kSimRoutes = static_cast<size_t>(SimRoute::kUnknown) + 1;

SimRoute FindSimRoute(std::string_view path);
// True for POST routes that need the engine: those that faults affect.
inline bool IsApi(SimRoute route) { return route <= SimRoute::kRenderResponses; }
inline Api ApiOf(SimRoute route) { return static_cast<Api>(route); }

// One thread's counts; other threads only read them.
struct alignas(64) WorkerCounts {
  std::atomic<uint64_t> finished{0};
  std::atomic<uint64_t> aborted{0};  // the client left before its response was complete
  std::atomic<uint64_t> failed{0};   // got an error, by a fault or a bad request
  std::atomic<uint64_t> prompt_tokens{0};
  std::atomic<uint64_t> cached_tokens{0};
  std::atomic<uint64_t> generation_tokens{0};
  std::atomic<uint64_t> connections{0};
  std::atomic<uint64_t> closed_connections{0};
  std::atomic<uint64_t> routes[kSimRoutes] = {};
};

inline void Count(std::atomic<uint64_t>& counter, uint64_t by = 1) {
  // Only its thread writes: no locked instruction needed.
  counter.store(counter.load(std::memory_order_relaxed) + by, std::memory_order_relaxed);
}

class WorkerState {
 public:
  explicit WorkerState(const SimulatedWorkerOptions& options);

  const SimulatedWorkerOptions& options() const { return options_; }
  int64_t Now() const { return clock_.NowNanos(); }
  WorkerCounts& counts(size_t thread) { return counts_[thread]; }

  std::shared_ptr<const Faults> faults() const { return faults_.Load(); }
  const Snapshot<Faults>* faults_snapshot() const { return &faults_; }
  void SetFaults(const Faults& faults);
  // The number of this request, from 1, since the faults were set.
  uint64_t NumberForFaults() { return fault_requests_.fetch_add(1, std::memory_order_relaxed) + 1; }
  uint64_t NextRequestNumber() { return requests_.fetch_add(1, std::memory_order_relaxed) + 1; }

  // Submits the request to the engine: a job with a part for each prompt. All choices of a prompt are
  // one sequence.
  LiveEngine::JobId StartWork(const SimRequest& request);
  LiveEngine::Progress ProgressOf(LiveEngine::JobId job) { return engine_.ProgressOf(job); }
  // Done, or cancelled.
  void LeaveWork(LiveEngine::JobId job);
  // Called, without a lock and on the leaving job's thread, when other jobs may be served sooner because
  // of it.
  void OnSooner(std::function<void()> callback) { on_sooner_ = std::move(callback); }

  void ClearCache() { engine_.WipeCache(); }

  // Publishes KV events if the options have a port for them, or keeps them for polls. Before any request.
  Status StartKvEvents();
  KvEventPublisher* kv_events() const { return kv_events_.get(); }     // null: none
  KvEventBuffer* kv_event_buffer() const { return kv_buffer_.get(); }  // likewise

  // `crash` is called once, by the first caller.
  void OnCrash(std::function<void()> crash) { on_crash_ = std::move(crash); }
  void Crash();
  bool crashed() const { return crashed_.load(); }

  StageWorker* stage() const { return stage_.get(); }  // null: none
  ConversationStore& conversations() { return conversations_; }
  // REQUIRES: a stage.
  void EndEngine();

  std::string_view fixed_response() const { return fixed_response_; }
  std::string StatsJson();
  std::string MetricsText();
  std::string ModelsJson() const;
  std::string LoadJson();
  std::string KvEventSourcesJson() const;
  std::string TakeKvEvents();  // those since the last call, as JSON

 private:
  bool has_kv_events() const { return kv_events_ != nullptr || kv_buffer_ != nullptr; }
  void WakeKvEvents();
  std::string StageMetrics(const std::string& labels, uint64_t waiting);
  uint64_t Sum(std::atomic<uint64_t> WorkerCounts::*count) const;

  const SimulatedWorkerOptions options_;
  SteadyClock clock_;
  int64_t created_;  // seconds since 1970
  std::string fixed_response_;
  std::vector<WorkerCounts> counts_;
  Snapshot<Faults> faults_;
  std::atomic<uint64_t> fault_requests_{0};
  std::atomic<uint64_t> requests_{0};
  std::atomic<bool> crashed_{false};
  std::function<void()> on_sooner_;
  std::function<void()> on_crash_;
  LiveEngine engine_;
  std::unique_ptr<KvEventPublisher> kv_events_;
  std::unique_ptr<KvEventBuffer> kv_buffer_;
  std::unique_ptr<StageWorker> stage_;
  ConversationStore conversations_;
};

// A request's job in the engine: released on every path.
class EngineWork {
 public:
  EngineWork(WorkerState& state, const SimRequest& request) : state_(state), job_(state.StartWork(request)) {
    Refresh();
  }
  ~EngineWork() { Leave(); }
  EngineWork(const EngineWork&) = delete;
  EngineWork& operator=(const EngineWork&) = delete;

  // As of the last Refresh().
  const LiveEngine::Progress& progress() const { return progress_; }
  bool begun() const { return progress_.ended || progress_.tokens > 0; }
  void Refresh() {
    if (!left_) progress_ = state_.ProgressOf(job_);
  }
  void Leave() {
    if (!std::exchange(left_, true)) state_.LeaveWork(job_);
  }

 private:
  WorkerState& state_;
  const LiveEngine::JobId job_;
  bool left_ = false;
  LiveEngine::Progress progress_;
};

}  // namespace vllm_router
