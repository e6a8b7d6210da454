// Lane: one thread of the server and everything that belongs to it alone: its loop, its buffers, its client
// connections, its connections to workers. Lanes share the Router (fleet snapshots and load counters), the Gates, and nothing else.
#pragma once

#include <atomic>
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
#include "proxy/cors.h"
#include "proxy/fan_out_paths.h"
#include "proxy/gatekeeper.h"
#include "proxy/gates.h"
#include "proxy/idle_list.h"
#include "proxy/recorder.h"
#include "proxy/server_options.h"
#include "proxy/tokenizer.h"
#include "proxy/upstream_pool.h"
#include "routing/retry_budget.h"
#include "routing/router.h"

namespace vllm_router {

class Connection;
class Admin;
class HealthChecker;
class TlsFiles;
struct FetchDeadline;

// Objects that are dear to make and used once per request, kept for the next one.
template <typename T>
class Spares {
 public:
  std::unique_ptr<T> Take() {
    if (spares_.empty()) return std::make_unique<T>();
    std::unique_ptr<T> spare = std::move(spares_.back());
    spares_.pop_back();
    return spare;
  }
  void Give(std::unique_ptr<T> spare) {
    if (spare != nullptr && spares_.size() < kMost) spares_.push_back(std::move(spare));
  }

 private:
  static constexpr size_t kMost = 64;
  std::vector<std::unique_ptr<T>> spares_;
};

struct Lane {
  Lane(
      const ServerOptions& options, const std::string& hop_name, Gates& gates, std::shared_ptr<Router> router,
      Admin& admin, const DoorKeys& keys, TlsFiles& tls, const Logs& logs);
  ~Lane();

  const ServerOptions& options;
  const std::string& hop_name;  // the server's, in Via
  Gates& gates;                 // the server's too
  const std::string bearer;     // "Bearer …" for workers, or empty
  const std::shared_ptr<Router> router;
  Admin& admin;
  HealthChecker* health = nullptr;  // hears of workers out of reach; set before the lanes run
  SteadyClock clock;

  EventLoop loop;
  BufferPool buffers;
  Resolver resolver;
  Recorder recorder;
  UpstreamPool upstreams;
  Tokenizer tokenizer;
  Snapshot<FleetView>::Cached fleet;
  Gatekeeper gatekeeper;
  TlsFiles& tls;
  const Cors cors;
  const FanOutPaths fan_out_paths;
  Dice ids;                          // request ids, and the jitter of pauses
  RetryBudget::Thread retry_budget;  // this thread's part of the one in the gates
  Spares<RequestHeadParser> request_parsers;
  Spares<ResponseHeadParser> response_parsers;

  IdleList idle;  // those of `connections` that may be closed for new ones
  std::unordered_set<Connection*> connections;
  bool draining = false;  // answers announce Connection: close; idle connections are closed
  std::atomic<bool> stopped_listening{false};

  // Requests of our own under way, so that a stop need not wait for their deadlines.
  std::unordered_set<FetchDeadline*> fetches;
  void CancelFetches();
  std::atomic<uint32_t> background_fetches{0};  // those that no connection waits for, so a stop has to

  // Hands the lines of the logs over: at once where there are kLogPieceBytes of them, else within 0.1 s. In small pieces
  // neither copying nor writing them holds up the requests of the next milliseconds.
  void FlushLogSoon();

 private:
  static void OnFlushLog(void* lane);
  void HandOverLines();

  Timer log_timer_;
  size_t flush_at_bytes_ = kLogPieceBytes;
};

}  // namespace vllm_router
