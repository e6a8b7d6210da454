// Buckets of the histograms on the page of metrics: upper bounds, in ascending order, and the histograms that threads count in.
#pragma once

#include <array>
#include <cstdint>

#include "proxy/telemetry/counters.h"

namespace vllm_router {

namespace buckets {

inline constexpr int64_t kMs = 1'000'000;
inline constexpr int64_t kUs = 1'000;

// The reference router's buckets, for every name that ends in duration_seconds.
inline constexpr std::array<int64_t, 20> kDuration = {
    1 * kMs,      5 * kMs,      10 * kMs,     25 * kMs,      50 * kMs,      100 * kMs,    250 * kMs,
    500 * kMs,    1'000 * kMs,  2'500 * kMs,  5'000 * kMs,   10'000 * kMs,  15'000 * kMs, 30'000 * kMs,
    45'000 * kMs, 60'000 * kMs, 90'000 * kMs, 120'000 * kMs, 180'000 * kMs, 240'000 * kMs};

// The same, finer at the bottom and longer at the top: waits for a worker.
inline constexpr std::array<int64_t, 23> kWorkerWait = {
    1 * kMs,       2'500 * kUs,   5 * kMs,       10 * kMs,      25 * kMs,       50 * kMs,
    100 * kMs,     250 * kMs,     500 * kMs,     1'000 * kMs,   2'500 * kMs,    5'000 * kMs,
    10'000 * kMs,  15'000 * kMs,  30'000 * kMs,  45'000 * kMs,  60'000 * kMs,   90'000 * kMs,
    120'000 * kMs, 180'000 * kMs, 240'000 * kMs, 480'000 * kMs, 1'800'000 * kMs};

// 1, 2.5 and 5 of every decade from 10 us to 100 ms: our own work.
inline constexpr std::array<int64_t, 13> kOverhead = {10 * kUs,  25 * kUs, 50 * kUs,    100 * kUs, 250 * kUs,
                                                      500 * kUs, 1 * kMs,  2'500 * kUs, 5 * kMs,   10 * kMs,
                                                      25 * kMs,  50 * kMs, 100 * kMs};

// Shares in millionths, and numbers of blocks.
inline constexpr std::array<int64_t, 11> kShare = {0,       100'000, 200'000, 300'000, 400'000,  500'000,
                                                   600'000, 700'000, 800'000, 900'000, 1'000'000};
inline constexpr int64_t kShareOne = 1'000'000;
inline constexpr std::array<int64_t, 15> kBlocks = {0,   1,   2,   4,     8,     16,    32,   64,
                                                    128, 256, 512, 1'024, 2'048, 4'096, 8'192};

}  // namespace buckets

using DurationHistogram = Histogram<buckets::kDuration>;
using WorkerWaitHistogram = Histogram<buckets::kWorkerWait>;
using OverheadHistogram = Histogram<buckets::kOverhead>;

}  // namespace vllm_router
