// Telemetry: reports exchanges to machines (metrics), to people (the access log) and for replays (the
// traffic log). One per thread, written by that thread only; Metrics reads all of them at a scrape.
//
//   Decided, Record --> counts in the Shard (telemetry_shard.h) --> Metrics, at a scrape
//                 `---> a line of each log in use --Flush, at 64 KiB or after 100 ms--> LineWriter
//
// Cost: about 0.05 us per exchange, 0.4 us with its line in the access log; no lock and no allocation in
// steady state. Of each log at most kMaxAccessLogBytes wait for its LineWriter; further lines are
// dropped and counted.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/line_writer.h"
#include "proxy/telemetry/access_log_line.h"
#include "proxy/telemetry/request_info.h"
#include "proxy/telemetry/traffic_log.h"
#include "proxy/telemetry/traffic_log_line.h"

namespace vllm_router {

// How our call for token IDs ended (remote_tokenizer.h); a label of tokenize_calls_total.
enum class TokenizeEnd : uint8_t { kOk, kTimeout, kFailed, kRefused, kUnknown, kGone, kNobody };
inline constexpr int kTokenizeEndCount = static_cast<int>(TokenizeEnd::kNobody) + 1;
std::string_view TokenizeEndName(TokenizeEnd end);

// Why a query of a shared pool failed, and what one told of a key (shared_pool/mooncake_pool.h); labels of
// shared_cache_errors_total and shared_cache_keys_total.
enum class SharedCacheError : uint8_t { kConnect, kTimeout, kHttp, kJson, kNotLeader, kLayout };
inline constexpr int kSharedCacheErrorCount = static_cast<int>(SharedCacheError::kLayout) + 1;
std::string_view SharedCacheErrorName(SharedCacheError error);
enum class SharedCacheKey : uint8_t { kFound, kMissing, kCached };  // cached: known from another query
inline constexpr int kSharedCacheKeyCount = static_cast<int>(SharedCacheKey::kCached) + 1;
std::string_view SharedCacheKeyName(SharedCacheKey key);

// What came of asking a prefill worker's bootstrap server for its engine id.
enum class BootstrapResult : uint8_t {
  kOk,
  kNoId,         // of this rank
  kUnreachable,  // or not in time
  kInvalid,      // another status than 200, too long, or not what bootstrap servers say
};
inline constexpr size_t kBootstrapResultCount = 4;
std::string_view BootstrapResultName(BootstrapResult result);

// Null: that log is disabled.
struct Logs {
  LineWriter* access = nullptr;
  TrafficLog* records = nullptr;
};

class Telemetry {
 public:
  // `policy`: its name, for the access log. The logs must outlive this.
  Telemetry(std::string_view policy, const Logs& logs);
  ~Telemetry();

  // At SELECT, once per decision.
  void Decided(const std::shared_ptr<Worker>& worker, const Decision& decision);
  // A request for a model was let in, and its workers do not depend on the model.
  void DemandedAny();
  // When an attempt has failed and another follows after `pause_ns`. `failures`: attempts of the
  // exchange so far.
  void Retried(const std::shared_ptr<Worker>& worker, uint32_t failures, int64_t pause_ns);
  // The result that a worker's circuit breaker recorded; a change of its state.
  void RecordResult(const std::shared_ptr<Worker>& worker, BreakerResult verdict);
  // What a 5xx of the worker was attributed to.
  void ServerError(const std::shared_ptr<Worker>& worker, ErrorBlame blame);
  void OnBreakerStateChange(const std::shared_ptr<Worker>& worker, BreakerChange change);
  // Of a query of a shared pool: its duration, a failure, keys, and how many of a prompt's blocks it found.
  void SharedCacheQueried(int64_t nanos);
  void SharedCacheFailed(SharedCacheError error);
  void SharedCacheKeys(SharedCacheKey result, uint64_t count);
  void SharedCacheHits(uint64_t found, uint64_t blocks);
  // Of those, the blocks beyond what the chosen worker has on its GPU.
  void SharedCacheBeyond(uint64_t blocks);
  // How KV blocks at a prefill worker ended; the name lives forever.
  void ClaimEnded(std::string_view end);
  void BootstrapQueried(const std::shared_ptr<Worker>& worker, BootstrapResult result);
  // Of requests that a prefill and a decode worker serve; names live forever. One of both requests is sent; fails
  // before a byte for the client; breaks off behind it. There is another attempt, since `failed` did. The client has
  // left, or the request was ended otherwise, in this state.
  void PairSent(const std::shared_ptr<Worker>& worker);
  void PairFailed(const std::shared_ptr<Worker>& worker);
  void PairBrokeOff(const std::shared_ptr<Worker>& worker);
  void PairRetried(std::string_view failed);
  void PairCancelled(std::string_view state);
  // Members of a client's request that were removed.
  void MembersRemoved(std::string_view name, uint64_t count);
  // What became of a marker for the prompt cache of Anthropic's API; `result` lives forever.
  void CacheControl(std::string_view result);
  // At FINISH, once per exchange.
  void Record(const RequestInfo& record);
  // Whether records need their prompts.
  bool wants_prompts() const { return record_line_.has_value(); }
  // Hands over the lines collected so far, unless their log has no room. Called at every kLogPieceBytes,
  // every 100 ms while there are any, and at shutdown.
  void Flush();
  bool has_lines() const { return collected_bytes() != 0; }
  size_t collected_bytes() const { return access_lines_.size() + record_lines_.size(); }

  // Gauges, and counts of events that are no exchange; relaxed, since a scrape may read them at any
  // time.
  std::atomic<int64_t> client_connections{0};
  std::atomic<int64_t> in_flight{0};            // between HEAD and FINISH, on proxied routes
  std::atomic<uint64_t> steps_back{0};          // into the queue, when no worker had room
  std::atomic<uint64_t> panic_requests{0};      // attempts at a worker whose breaker did not admit them
  std::atomic<uint64_t> ejections_overflow{0};  // 5xx that opened no breaker, since half of them were open
  std::atomic<uint64_t> requests_moved{0};      // away from workers in doubt
  std::atomic<uint64_t> connections_rejected{0};
  std::atomic<uint64_t> connections_evicted{0};   // idle ones, closed for new ones
  std::atomic<uint64_t> requests_never_begun{0};  // closed by the head timeout without a byte of a request
  std::atomic<uint64_t> tls_failures{0};          // of clients' handshakes
  std::atomic<uint64_t> connects_ok{0};
  std::atomic<uint64_t> connects_failed{0};
  std::atomic<int64_t> upstream_open{0};  // connections to workers, idle ones included
  std::atomic<int64_t> upstream_idle{0};
  std::atomic<int64_t> key_validations_waiting{0};  // requests, of KeyValidator
  std::atomic<uint64_t> key_validations_full{0};    // rejected requests: no free place
  std::atomic<uint64_t> key_validations_share{0};   // or none for their client's address
  std::atomic<uint64_t> load_polls_ok{0};           // of hosts, by LoadPoller
  std::atomic<uint64_t> load_polls_failed{0};
  std::array<std::atomic<uint64_t>, kTokenizeEndCount> tokenize_calls{};  // by TokenizeEnd
  std::array<std::atomic<uint64_t>, kTokenizeEndCount> background_tokenize_calls{};
  std::atomic<uint64_t> tokenize_nanos{0};  // that requests waited for token IDs

  struct Shard;  // telemetry_shard.h
  const Shard& shard() const { return *shard_; }

 private:
  void Count(const RequestInfo& record);
  void CountStages(const RequestInfo& record, bool good);
  void WriteAccessLine(const RequestInfo& record);
  void WriteRecordLine(const RequestInfo& record);

  const std::unique_ptr<Shard> shard_;
  const Logs logs_;
  AccessLogLine access_line_;
  std::optional<TrafficLogLine> record_line_;
  std::string access_lines_;
  std::string record_lines_;
};

}  // namespace vllm_router
