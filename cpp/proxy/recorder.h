// Recorder: what is said about exchanges, for machines (metrics) and for people (the access log). One per lane,
// written by that lane only; Metrics reads all of them at a scrape.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "proxy/exchange_record.h"

namespace vllm_router {

class Recorder {
 public:
  explicit Recorder(bool access_log);
  ~Recorder();

  // At FINISH, once per exchange.
  void Record(const ExchangeRecord& record);
  // Writes the access lines collected so far; called every 100 ms while there are any, and at shutdown.
  void Flush();
  bool has_lines() const { return !lines_.empty(); }

  // Gauges and counts of events that are no exchange; relaxed, since a scrape may read them at any time.
  std::atomic<int64_t> client_connections{0};
  std::atomic<int64_t> in_flight{0};  // exchanges between HEAD and FINISH on inference and other proxied routes
  std::atomic<uint64_t> connections_rejected{0};
  std::atomic<uint64_t> connects_ok{0};
  std::atomic<uint64_t> connects_failed{0};
  std::atomic<int64_t> upstream_idle{0};

  struct Shard;  // metrics.cc: what Record() counts
  const Shard& shard() const { return *shard_; }

 private:
  const bool access_log_;
  std::unique_ptr<Shard> shard_;
  std::string lines_;
};

}  // namespace vllm_router
