#include "proxy/dashboard/fleet_history.h"

#include <algorithm>

#include "proxy/telemetry/telemetry_shard.h"

namespace vllm_router {
namespace {

static_assert(FleetCounts::kTimeBuckets == WorkerWaitHistogram::kBuckets);
static_assert(FleetCounts::kOverheadBuckets == OverheadHistogram::kBuckets);

constexpr double kNanosPerMilli = 1e6;
constexpr double kNanosPerMicro = 1e3;
constexpr size_t kMarkSeconds = 10;

// Counts of workers that were removed are gone.
uint64_t Since(uint64_t later, uint64_t earlier) { return later > earlier ? later - earlier : 0; }

std::optional<double> ShareOf(uint64_t part, uint64_t whole) {
  if (whole == 0) return std::nullopt;
  return static_cast<double>(part) / static_cast<double>(whole);
}

std::optional<double> Scaled(const std::optional<double>& nanos, double one) {
  return nanos ? std::optional(*nanos / one) : std::nullopt;
}

std::optional<double> TimeOf(
    const FleetCounts::Times& later, const FleetCounts::Times& earlier, double share) {
  return Scaled(
      QuantileOf(buckets::kWorkerWait.data(), later.data(), earlier.data(), later.size(), share),
      kNanosPerMilli);
}

}  // namespace

std::optional<double> QuantileOf(
    const int64_t* bounds, const uint64_t* later, const uint64_t* earlier, size_t buckets, double share) {
  uint64_t total = 0;
  for (size_t i = 0; i < buckets; ++i) total += Since(later[i], earlier[i]);
  if (total == 0) return std::nullopt;
  const double rank = share * static_cast<double>(total);
  double below = 0;
  for (size_t i = 0; i + 1 < buckets; ++i) {
    const auto here = static_cast<double>(Since(later[i], earlier[i]));
    if (here > 0 && below + here >= rank) {
      const double low = i == 0 ? 0 : static_cast<double>(bounds[i - 1]);
      return low + (static_cast<double>(bounds[i]) - low) * (rank - below) / here;
    }
    below += here;
  }
  return static_cast<double>(bounds[buckets - 2]);  // longer than all bounds
}

// The newest counts that are at least so old, or the oldest there are.
const FleetCounts& FleetHistory::Before(size_t seconds) const {
  return counts_[counts_.size() > seconds ? counts_.size() - 1 - seconds : 0];
}

void FleetHistory::Add(const FleetCounts& now, double t, double waiting) {
  counts_.push_back(now);
  if (counts_.size() > kShareSeconds + 1) counts_.pop_front();
  if (added_++ % kMarkSeconds == 0) marks_.push_back(now);
  if (marks_.size() > kPoints / kMarkSeconds) marks_.pop_front();

  const FleetCounts& lately = Before(kRateSeconds);
  const FleetCounts& before = Before(kShareSeconds);
  const double seconds = static_cast<double>(now.at_ns - lately.at_ns) / 1e9;
  Point point{.t = t, .waiting = waiting};
  if (seconds > 0) point.requests = static_cast<double>(Since(now.requests, lately.requests)) / seconds;
  point.p50_ms = TimeOf(now.first_tokens, before.first_tokens, 0.5);
  point.p95_ms = TimeOf(now.first_tokens, before.first_tokens, 0.95);
  point.cached = ShareOf(now.reported - before.reported, now.reported_of - before.reported_of);
  point.expected = ShareOf(now.expected - before.expected, now.expected_of - before.expected_of);
  points_.push_back(point);
  if (points_.size() > kPoints) points_.pop_front();

  const FleetCounts& first = marks_.front();
  facts_ = {
      .requests = Since(now.requests, first.requests),
      .failed = Since(now.failed, first.failed),
      .retried = Since(now.retried, first.retried),
      .p99_ms = TimeOf(now.first_tokens, before.first_tokens, 0.99),
      .overhead_us = Scaled(
          QuantileOf(
              buckets::kOverhead.data(), now.overheads.data(), before.overheads.data(), now.overheads.size(),
              0.5),
          kNanosPerMicro),
      .reporting = ShareOf(now.reporting - first.reporting, now.receipts - first.receipts),
      .longest_wait_ms = {}};
  for (size_t i = FleetCounts::kTimeBuckets; i-- > 0 && !facts_.longest_wait_ms;) {
    if (Since(now.waits[i], first.waits[i]) == 0) continue;
    const size_t bound = std::min(i, buckets::kWorkerWait.size() - 1);
    facts_.longest_wait_ms = static_cast<double>(buckets::kWorkerWait[bound]) / kNanosPerMilli;
  }
}

}  // namespace vllm_router
