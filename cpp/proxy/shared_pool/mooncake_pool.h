// MooncakePool queries the master of a Mooncake store for the pages of prompts that the engines of the fleet
// keep there. For --shared-cache-type hicache.
//
//   RoutingKey::pages --> PageQuery --GET /batch_query_keys--> master :9003, or the next one after a 503
//                            `--> PageResults, for all threads --> SharedHits, in blocks
//
// A request waits for at most --shared-cache-timeout-ms; what is known by then counts. A failure (no connection,
// no response at all in time, a status or body that is not understood) costs the request nothing but that wait,
// is logged at most once a minute, and five in a row pause all queries (query_backoff.h); without a response the
// next query goes to the next address. Each request to the master has a connection; there are kMaxPoolRequests
// at once at most, and what cannot be sent then stays unknown.
//
// While several layouts are possible (page_layout.h), the first page is queried under each of them, until
// one is found; and again after kQueriesWithoutHit, since the workers may have been updated.
//
// Thread-safe; a query belongs to one thread, and the mutex is held for look-ups.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/limits.h"
#include "base/mutex.h"
#include "hashing/page_keys.h"
#include "index/shared_hits.h"
#include "net/task.h"
#include "proxy/client/http_client.h"
#include "proxy/shared_pool/shared_pool_counts.h"
#include "shared_pool/page_layout.h"
#include "shared_pool/page_query.h"
#include "shared_pool/page_results.h"
#include "shared_pool/query_backoff.h"
#include "worker/worker_url.h"

namespace vllm_router {

// A prompt as a pool sees it.
struct PagedPrompt {
  PageForm form;
  std::vector<Digest256> pages;
  uint32_t block_tokens = 0;  // in which the result is
  size_t blocks = 0;
};

class MooncakePool {
 public:
  // In a row. If there was never one, the log has the layouts: another one may be meant.
  static constexpr uint64_t kQueriesWithoutHit = 1000;

  MooncakePool(PageQuery::Verify verify, int64_t timeout_ms) : verify_(verify), timeout_ms_(timeout_ms) {}

  // What is known of the pool from now on; without a layout or a master nothing is queried.
  void Configure(std::vector<PageLayout> layouts, std::vector<WorkerUrl> masters);

  // Nullopt if nothing is known. Ends soon after scope.Cancel(). The arguments outlive the task.
  Task<std::optional<SharedHits>> Query(
      HttpClient& http, SharedPoolCounts& counts, CancelScope& scope, PagedPrompt prompt);
  // The same for the metrics alone; returns at once. Dropped if too many are in flight.
  void QueryLater(HttpClient& http, SharedPoolCounts& counts, PagedPrompt prompt);

  // Queries in flight without a waiting connection, so a stopping server must wait for them. Any thread.
  uint32_t background_queries() const { return background_queries_.load(); }

  // For people.
  struct State {
    std::vector<std::string> masters;
    std::vector<std::string> layouts;  // those that are possible
    uint32_t page_size = 0;            // tokens; 0: nothing is known
    bool paused = false;
    uint64_t hits = 0;  // queries that found at least a block
  };
  State state() const;

 private:
  struct Run;

  std::shared_ptr<Run> Begin(PagedPrompt prompt, HttpClient& http, SharedPoolCounts& counts);
  bool HasRoom() const;
  bool MayQuery(Run& run);
  void SendAll(const std::shared_ptr<Run>& run);
  static void EndWait(Run& run);
  Task<void> Send(std::shared_ptr<Run> run, uint32_t number, std::vector<std::string> keys);
  Task<StatusOr<HttpResponse>> Get(Run& run, std::string target);
  void Learn(Run& run, const std::vector<bool>& there);
  void Fail(Run& run, SharedCacheError error, std::string_view reason);
  std::optional<SharedHits> End(Run& run, bool cancelled);
  Task<void> RunLater(HttpClient& http, SharedPoolCounts& counts, PagedPrompt prompt);

  const PageQuery::Verify verify_;
  const int64_t timeout_ms_;
  SteadyClock clock_;
  std::atomic<uint32_t> background_queries_{0};
  std::atomic<uint32_t> requests_{0};  // to the master, in flight

  mutable Mutex mutex_;  // leaf
  std::vector<std::shared_ptr<const PageLayout>> possible_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<const PageLayout>> layouts_ ABSL_GUARDED_BY(mutex_);  // one, once it is learned
  std::vector<WorkerUrl> masters_ ABSL_GUARDED_BY(mutex_);
  size_t master_ ABSL_GUARDED_BY(mutex_) = 0;  // the one that is queried
  PageResults results_ ABSL_GUARDED_BY(mutex_){kMaxPageResults};
  QueryBackoff backoff_ ABSL_GUARDED_BY(mutex_);
  uint64_t hits_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t misses_ ABSL_GUARDED_BY(mutex_) = 0;  // since the last hit
  int64_t warn_again_ns_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace vllm_router
