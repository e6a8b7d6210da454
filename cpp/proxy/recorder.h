// Recorder: what is said about exchanges, for machines (metrics) and for people (the access log). One per lane,
// written by that lane only; Metrics reads all of them at a scrape.
//
//   Decided, Record --> counts in the Shard (recorder_shard.h) --> Metrics, at a scrape
//                 `---> a line in lines_ --Flush, every 100 ms--> AccessLog
//
// Cost: about 0.05 us per exchange, 0.4 us with its line in the access log; no lock and no allocation in steady state.
// At most kMaxAccessLogBytes wait to be taken by the AccessLog; further lines are dropped and counted.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "proxy/access_line.h"
#include "proxy/access_log.h"
#include "proxy/exchange_record.h"

namespace vllm_router {

// How a question of ours for token ids ended (tokenizer.h); a label of tokenize_calls_total.
enum class TokenizeEnd : uint8_t { kOk, kTimeout, kFailed, kRefused, kUnknown, kGone, kNobody };
inline constexpr int kTokenizeEndCount = static_cast<int>(TokenizeEnd::kNobody) + 1;
std::string_view TokenizeEndName(TokenizeEnd end);

class Recorder {
 public:
  // `policy`: its name, for the access lines. `log` must outlive this; null: no lines.
  Recorder(std::string_view policy, AccessLog* log);
  ~Recorder();

  // At SELECT, once per decision.
  void Decided(const std::shared_ptr<Worker>& worker, const Decision& decision);
  // When a try has failed and there will be another after `pause_ns`. `failures`: tries of the exchange so far.
  void Retried(const std::shared_ptr<Worker>& worker, uint32_t failures, int64_t pause_ns);
  // What a worker's circuit breaker heard of it, and that it moved.
  void Judged(const std::shared_ptr<Worker>& worker, BreakerVerdict verdict);
  void BreakerMoved(const std::shared_ptr<Worker>& worker, BreakerChange change);
  // At FINISH, once per exchange.
  void Record(const ExchangeRecord& record);
  // Hands over the access lines collected so far, unless the log has no room; called every 100 ms while there are any,
  // and at shutdown.
  void Flush();
  bool has_lines() const { return !lines_.empty(); }

  // Gauges and counts of events that are no exchange; relaxed, since a scrape may read them at any time.
  std::atomic<int64_t> client_connections{0};
  std::atomic<int64_t> in_flight{
      0};  // exchanges between HEAD and FINISH on inference and other proxied routes
  std::atomic<uint64_t> connections_rejected{0};
  std::atomic<uint64_t> tls_failures{0};  // of clients' handshakes
  std::atomic<uint64_t> connects_ok{0};
  std::atomic<uint64_t> connects_failed{0};
  std::atomic<int64_t> upstream_open{0};  // connections to workers, those that rest included
  std::atomic<int64_t> upstream_idle{0};
  std::atomic<uint64_t> load_polls_ok{0};  // of hosts, by LoadPoller
  std::atomic<uint64_t> load_polls_failed{0};
  std::array<std::atomic<uint64_t>, kTokenizeEndCount> tokenize_calls{};  // by TokenizeEnd
  std::atomic<uint64_t> tokenize_nanos{0};                                // that requests waited for them

  struct Shard;  // recorder_shard.h
  const Shard& shard() const { return *shard_; }

 private:
  void Count(const ExchangeRecord& record);
  void WriteLine(const ExchangeRecord& record);

  const std::unique_ptr<Shard> shard_;
  AccessLog* const log_;
  AccessLine line_;
  std::string lines_;
};

}  // namespace vllm_router
