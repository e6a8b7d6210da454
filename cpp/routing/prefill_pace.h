// PrefillPace: how fast a worker computes prompts, from the requests that ended there. Sums of several workers say it of
// all of them.
//
//   rate       tokens / time to the first token, of streamed requests of kLeastTokens or more to compute that found no
//              other prompt waiting: a request that waits for others measures the queue, not the worker
//   applies    while at least kLeastStreamed of the tokens' time in the queue, of the last kWindowNanos, was of streams:
//              of a response in one piece the first token is not seen, so its prompt counts as waiting to the end
//
// Unknown until both can be told: a number that is too low would scale a fleet up without load. Pure; one thread.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>

namespace vllm_router {

class PrefillPace {
 public:
  static constexpr uint32_t kLeastTokens = 256;  // fewer are less than what a request costs besides
  static constexpr double kFewest = 20;          // requests that a rate is of
  static constexpr double kMemory = 200;         // requests; then the older half weighs half
  static constexpr double kLeastStreamed = 0.9;
  static constexpr int64_t kWindowNanos = 300'000'000'000;

  // Counts that only rise.
  struct Counts {
    uint64_t alone = 0;          // requests that the rate is learned from
    uint64_t alone_tokens = 0;   // of their prompts, to compute
    uint64_t alone_micros = 0;   // from the request to its first token
    uint64_t streamed_wait = 0;  // tokens times milliseconds in the queue
    uint64_t whole_wait = 0;     // likewise, of responses in one piece
  };

  // What has been counted until now, `passed_ns` after the last call.
  void Follow(const Counts& counts, int64_t passed_ns) {
    const double kept = std::exp(-static_cast<double>(std::max<int64_t>(0, passed_ns)) / kWindowNanos);
    streamed_wait_ = streamed_wait_ * kept + Rise(counts.streamed_wait, last_.streamed_wait);
    whole_wait_ = whole_wait_ * kept + Rise(counts.whole_wait, last_.whole_wait);
    alone_ += Rise(counts.alone, last_.alone);
    alone_tokens_ += Rise(counts.alone_tokens, last_.alone_tokens);
    alone_micros_ += Rise(counts.alone_micros, last_.alone_micros);
    last_ = counts;
    if (alone_ <= kMemory) return;
    const double share = kMemory / 2 / alone_;
    alone_ *= share;
    alone_tokens_ *= share;
    alone_micros_ *= share;
  }

  void Add(const PrefillPace& other) {
    alone_ += other.alone_;
    alone_tokens_ += other.alone_tokens_;
    alone_micros_ += other.alone_micros_;
    streamed_wait_ += other.streamed_wait_;
    whole_wait_ += other.whole_wait_;
  }

  // Of one worker, the mean of all that were added; nullopt: not known.
  std::optional<double> tokens_per_second() const {
    const double wait = streamed_wait_ + whole_wait_;
    if (alone_ < kFewest || alone_micros_ <= 0 || wait <= 0) return std::nullopt;
    if (streamed_wait_ < kLeastStreamed * wait) return std::nullopt;
    return alone_tokens_ / alone_micros_ * 1e6;
  }

 private:
  static double Rise(uint64_t now, uint64_t before) {
    return now > before ? static_cast<double>(now - before) : 0;
  }

  Counts last_;
  double alone_ = 0;
  double alone_tokens_ = 0;
  double alone_micros_ = 0;
  double streamed_wait_ = 0;
  double whole_wait_ = 0;
};

}  // namespace vllm_router
