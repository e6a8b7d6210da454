// QueryBackoff: whether to query a service that requests wait for. Five failures in a row pause the queries for
// 5 s; then one query is a probe, and while it fails the pause doubles, up to a minute. A success ends it.
//
//   Failed x 5         MayQuery(+4.9 s)   MayQuery(+5 s)   MayQuery        Failed            MayQuery(+10 s)
//   pause of 5 s       false              true: a probe    false           pause of 10 s     true: a probe
//
// Each query that MayQuery() admits ends with one of Worked, Failed or Left. The caller passes the time. Pure;
// one thread at a time.
#pragma once

#include <algorithm>
#include <cstdint>

namespace vllm_router {

class QueryBackoff {
 public:
  static constexpr int kFailures = 5;
  static constexpr int64_t kFirstNanos = 5'000'000'000;
  static constexpr int64_t kLongestNanos = 60'000'000'000;

  bool MayQuery(int64_t now_ns) {
    if (failures_ < kFailures) return true;
    if (probing_ || now_ns < until_ns_) return false;
    return probing_ = true;
  }
  void Worked() {
    failures_ = 0;
    pause_ns_ = kFirstNanos;
    probing_ = false;
  }
  void Failed(int64_t now_ns) {
    if (failures_ >= kFailures && !probing_) return;  // began before the pause
    probing_ = false;
    if (++failures_ < kFailures) return;
    failures_ = kFailures;
    until_ns_ = now_ns + pause_ns_;
    pause_ns_ = std::min(2 * pause_ns_, kLongestNanos);
  }
  // It ended without a result: its client left.
  void Left() { probing_ = false; }
  bool paused() const { return failures_ >= kFailures; }

 private:
  int failures_ = 0;  // in a row
  int64_t until_ns_ = 0;
  int64_t pause_ns_ = kFirstNanos;
  bool probing_ = false;
};

}  // namespace vllm_router
