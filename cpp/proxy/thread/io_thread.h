// IoThread: one thread of the server and everything that belongs to it alone: its loop, its buffers, its
// client connections, its connections to workers. Threads share the Router (fleet snapshots and load
// counters), the ServerLimits, and nothing else.
//
//   thread.loop, .clock, .buffers, .ids          here by value: nearly all code of a thread uses them
//   thread.http, .telemetry, .authorizer, …      references to Parts, which io_thread.cc makes
//
// A source that uses one of the parts includes the part's header; the others cost it no compile time.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include "base/clock.h"
#include "base/limits.h"
#include "base/random.h"
#include "base/snapshot.h"
#include "base/type_map.h"
#include "net/buffer.h"
#include "net/event_loop.h"
#include "proxy/thread/idle_list.h"
#include "routing/retry_budget.h"

namespace vllm_router {

class Authorizer;
class Connection;
class FanOutPaths;
class FleetView;
class HttpClient;
class RedisLink;
class RemoteTokenizer;
class RequestHeadParser;
class Resolver;
class ResponseHeadParser;
class Router;
class Telemetry;
class TlsFiles;
class UpstreamPool;
struct FixedOptions;
struct KeySets;
struct Logs;
struct ServerLimits;
struct Settings;
struct Worker;

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
    if (spare != nullptr && spares_.size() < kMaxSpares) spares_.push_back(std::move(spare));
  }

 private:
  static constexpr size_t kMaxSpares = 64;
  std::vector<std::unique_ptr<T>> spares_;
};

// What a thread reports about workers to the services of the control thread. All may be called on any thread.
struct HealthSignals {
  using Signal = std::function<void(const std::shared_ptr<Worker>&)>;
  Signal suspect = [](const std::shared_ptr<Worker>&) {};  // unreachable: check its health at once
  Signal recovered = [](const std::shared_ptr<Worker>&) {
  };  // its circuit breaker has closed: slow start begins
  Signal lacks_model = [](const std::shared_ptr<Worker>&) {};    // a 404 for a model that it lists
  std::function<void()> models_changed = [] {};                  // workers were told to load or unload one
  Signal cache_emptied = [](const std::shared_ptr<Worker>&) {};  // it did as it was told
};

struct IoThread {
 private:
  struct Parts;

 public:
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
  Random ids;  // request ids, and the jitter of pauses

 private:
  const std::unique_ptr<Parts> parts_;

 public:
  Resolver& resolver;
  Telemetry& telemetry;
  HttpClient& http;
  UpstreamPool& upstreams;
  RemoteTokenizer& tokenizer;
  Authorizer& authorizer;
  const FanOutPaths& fan_out_paths;
  std::unique_ptr<RedisLink> redis;  // set before the threads run; null: none
  TypeMap features;                  // what features keep for this thread; likewise
  Snapshot<FleetView>::Cached fleet;
  const Snapshot<Settings>& server_settings;  // for other threads
  Snapshot<Settings>::Cached settings;        // what a request goes by is in its connection
  RetryBudget::Thread retry_budget;           // this thread's part of the budget in the limits
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
