// IoThread: one thread of the server and everything that belongs to it alone: its loop, its buffers, its
// client connections, its connections to workers. Threads share the Router (fleet snapshots and load
// counters), the ServerLimits, and nothing else.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include "base/clock.h"
#include "base/limits.h"
#include "http/head_parser.h"
#include "net/buffer.h"
#include "net/event_loop.h"
#include "net/resolver.h"
#include "proxy/api/fan_out_paths.h"
#include "proxy/api/server_options.h"
#include "proxy/client/http_client.h"
#include "proxy/client/redis_prefix_index.h"
#include "proxy/client/redis_response_store.h"
#include "proxy/client/remote_tokenizer.h"
#include "proxy/client/upstream_pool.h"
#include "proxy/security/authorizer.h"
#include "proxy/telemetry/telemetry.h"
#include "proxy/thread/claim_keeper.h"
#include "proxy/thread/idle_list.h"
#include "proxy/thread/push_identities.h"
#include "proxy/thread/server_limits.h"
#include "redis/redis_link.h"
#include "routing/retry_budget.h"
#include "routing/router.h"

namespace vllm_router {

class Connection;
class TlsFiles;

// Objects that are expensive to make and used once per request, kept for later requests.
template <typename T>
class ObjectPool {
 public:
  std::unique_ptr<T> Acquire() {
    if (spares_.empty()) return std::make_unique<T>();
    std::unique_ptr<T> spare = std::move(spares_.back());
    spares_.pop_back();
    return spare;
  }
  void Release(std::unique_ptr<T> spare) {
    if (spare != nullptr && spares_.size() < kMost) spares_.push_back(std::move(spare));
  }

 private:
  static constexpr size_t kMost = 64;
  std::vector<std::unique_ptr<T>> spares_;
};

// What a thread reports about workers to the services of the control thread. All may be called on any thread.
struct HealthSignals {
  using Signal = std::function<void(const std::shared_ptr<Worker>&)>;
  Signal suspect = [](const std::shared_ptr<Worker>&) {};  // unreachable: check its health at once
  Signal recovered = [](const std::shared_ptr<Worker>&) {
  };  // its circuit breaker has closed: slow start begins
  Signal lacks_model = [](const std::shared_ptr<Worker>&) {};  // a 404 for a model that it lists
  std::function<void()> models_changed = [] {};                // workers were told to load or unload one
  // KV blocks of this prefill worker did not arrive: perhaps its engine has started anew. At most one for each query.
  Signal transfer_failed = [](const std::shared_ptr<Worker>&) {};
  Signal cache_emptied = [](const std::shared_ptr<Worker>&) {};  // it did as it was told
};

struct IoThread {
  IoThread(
      const FixedOptions& options, const Snapshot<Settings>& settings, const std::string& hop_name,
      ServerLimits& limits, std::shared_ptr<Router> router, const KeySets& keys, TlsFiles& tls,
      const Logs& logs);
  ~IoThread();

  const FixedOptions& options;
  const std::string& hop_name;  // the server's, in Via
  ServerLimits& limits;         // the server's too
  const std::string bearer;     // "Bearer …" for workers, or empty
  const std::shared_ptr<Router> router;
  TlsFiles& tls;
  HealthSignals health;  // set before the threads run
  SteadyClock clock;

  EventLoop loop;
  BufferPool buffers;
  Resolver resolver;
  Random ids;  // request ids, and the jitter of pauses
  Telemetry telemetry;
  HttpClient http;
  UpstreamPool upstreams;
  RemoteTokenizer tokenizer;
  std::unique_ptr<RedisLink> redis;                     // set before the threads run; null: none
  std::unique_ptr<RedisPrefixIndex> shared_prefixes;    // likewise; null: each router has its own
  std::unique_ptr<RedisResponseStore> redis_responses;  // likewise; null: responses are not in Redis
  Snapshot<FleetView>::Cached fleet;
  const Snapshot<Settings>& server_settings;  // for other threads
  Snapshot<Settings>::Cached settings;        // what a request goes by is in its connection
  Authorizer authorizer;
  const FanOutPaths fan_out_paths;
  std::unique_ptr<ClaimKeeper> claims;  // what becomes of KV blocks at prefill workers
  PushIdentities push_identities;       // of those that push them
  RetryBudget::Thread retry_budget;     // this thread's part of the budget in the limits
  ObjectPool<RequestHeadParser> request_parsers;
  ObjectPool<ResponseHeadParser> response_parsers;

  IdleList idle;  // those of `connections` that may be closed for new ones
  std::unordered_set<Connection*> connections;
  bool draining = false;  // responses announce Connection: close; idle connections are closed
  std::atomic<bool> stopped_listening{false};

  // Hands the log lines over: at once if there are kLogPieceBytes of them, else within 0.1 s. In small
  // pieces neither copying nor writing them delays the requests of the next milliseconds.
  void FlushLogSoon();

 private:
  static void OnFlushLog(void* thread);
  void HandOverLines();

  Timer log_timer_;
  size_t flush_at_bytes_ = kLogPieceBytes;
};

}  // namespace vllm_router
