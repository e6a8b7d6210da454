// FleetHistory: the last ten minutes of a fleet in six numbers a second, from counters that only rise. They are kept without a
// viewer as well, as a page that is opened in an incident has to show what was before.
//
//   counts of now  --Add()-->  differences to those of 10 s and 30 s before  -->  a Point    600 of them, 50 KB
//
// Pure. One thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>

namespace vllm_router {

// What all threads have counted so far.
struct FleetCounts {
  static constexpr size_t kTimeBuckets = 24;
  using Times = std::array<uint64_t, kTimeBuckets>;  // by the buckets of waits for a worker
  static constexpr size_t kOverheadBuckets = 14;

  int64_t at_ns = 0;
  uint64_t requests = 0;  // that are over
  uint64_t failed = 0;    // 5xx, and responses that broke off
  uint64_t retried = 0;   // attempts after the first
  Times first_tokens{};   // of streams
  Times waits{};          // of requests that waited
  std::array<uint64_t, kOverheadBuckets> overheads{};
  // Of receipts.
  uint64_t receipts = 0;
  uint64_t reporting = 0;    // of them, with reported cached tokens
  uint64_t reported = 0;     // tokens
  uint64_t reported_of = 0;  // prompt tokens of these
  uint64_t expected = 0;     // tokens, where the policy matches
  uint64_t expected_of = 0;  // prompt tokens of these
};

class FleetHistory {
 public:
  static constexpr size_t kPoints = 600;

  // nullopt: there was nothing to measure.
  struct Point {
    double t = 0;         // Unix time, seconds
    double requests = 0;  // a second, of the last 10 s
    // Of the last 30 s.
    std::optional<double> p50_ms, p95_ms;    // to the first token
    std::optional<double> cached, expected;  // shares of prompt tokens
    double waiting = 0;                      // requests, now
  };
  // Besides the points.
  struct Facts {
    uint64_t requests = 0, failed = 0, retried = 0;  // of ten minutes
    std::optional<double> p99_ms, overhead_us;       // of 30 s, the median of the latter
    std::optional<double> reporting;                 // share of receipts of ten minutes
    std::optional<double> longest_wait_ms;           // of ten minutes, at most
  };

  void Add(const FleetCounts& counts, double t, double waiting);
  const std::deque<Point>& points() const { return points_; }
  const Facts& facts() const { return facts_; }

 private:
  static constexpr size_t kRateSeconds = 10;
  static constexpr size_t kShareSeconds = 30;

  const FleetCounts& Before(size_t seconds) const;

  std::deque<FleetCounts> counts_;  // of the last 30 s, the oldest first
  std::deque<FleetCounts> marks_;   // of every tenth second of ten minutes
  std::deque<Point> points_;
  Facts facts_;
  uint64_t added_ = 0;
};

// In the buckets' unit, by linear interpolation as Prometheus does it; nullopt: there are none. `bounds` are upper ones.
std::optional<double> QuantileOf(
    const int64_t* bounds, const uint64_t* later, const uint64_t* earlier, size_t buckets, double share);

}  // namespace vllm_router
