// What health checks say of a host, and when it is asked next. Pure: the time is passed in. One thread.
//
// HealthTracker turns single observations into a verdict that does not flap:
//
//   healthy --failure_threshold failures in a row--> unhealthy --success_threshold successes in a row--> healthy
//
// HealthWatch is one host's schedule around it. Usually it is asked once per interval. While something is unclear
// (a request found it out of reach, or the last check contradicts the verdict) and while it is down, it is asked every
// second, so that a dead one is out within some three seconds, and a live one back within two, whatever the interval.
// A worker starts healthy, as in the reference router.
#pragma once

#include <algorithm>
#include <cstdint>

namespace vllm_router {

class HealthTracker {
 public:
  HealthTracker(uint32_t failure_threshold, uint32_t success_threshold)
      : failure_threshold_(failure_threshold), success_threshold_(success_threshold) {}

  // Returns true when this observation changed the verdict.
  bool Observe(bool success) {
    if (success == healthy_) {
      against_ = 0;
      return false;
    }
    if (++against_ < (healthy_ ? failure_threshold_ : success_threshold_)) return false;
    healthy_ = success;
    against_ = 0;
    return true;
  }
  bool healthy() const { return healthy_; }
  bool settled() const { return against_ == 0; }  // the last observation agrees with the verdict

 private:
  uint32_t failure_threshold_;
  uint32_t success_threshold_;
  uint32_t against_ = 0;  // observations in a row that contradict the verdict
  bool healthy_ = true;
};

struct HealthOptions {
  int64_t interval_ns = 60'000'000'000;
  int64_t quick_ns = 1'000'000'000;  // while something is unclear; never more than the interval
  uint32_t failure_threshold = 3;
  uint32_t success_threshold = 2;
};

class HealthWatch {
 public:
  HealthWatch(const HealthOptions& options, int64_t now_ns)
      : options_(options), tracker_(options.failure_threshold, options.success_threshold), due_ns_(now_ns) {}

  bool healthy() const { return tracker_.healthy(); }
  bool suspected() const { return suspicion_ > 0; }
  bool asking() const { return asking_; }
  int64_t due_ns() const { return due_ns_; }  // while not asking
  bool Due(int64_t now_ns) const { return !asking_ && now_ns >= due_ns_; }

  void Begin() { asking_ = true; }

  // The answer to what began. Returns true when the verdict changed. `spread`: -1..1, so that hosts are not asked in step.
  bool End(bool success, int64_t now_ns, double spread) {
    asking_ = false;
    const bool changed = tracker_.Observe(success);
    if (changed) suspicion_ = 0;
    if (success && suspicion_ > 0) --suspicion_;
    const bool clear = tracker_.healthy() && tracker_.settled() && suspicion_ == 0;
    const int64_t pause = clear ? options_.interval_ns : std::min(options_.quick_ns, options_.interval_ns);
    due_ns_ = now_ns + pause + static_cast<int64_t>(static_cast<double>(pause) * 0.1 * spread);
    return changed;
  }

  // A request could not reach it: it is asked at once, and every second until it has answered well a few times.
  void Suspect(int64_t now_ns) {
    if (!tracker_.healthy()) return;
    if (suspicion_ == 0) due_ns_ = std::min(due_ns_, now_ns);
    suspicion_ = options_.success_threshold;
  }

 private:
  HealthOptions options_;
  HealthTracker tracker_;
  uint32_t suspicion_ = 0;  // good answers that would end it
  bool asking_ = false;
  int64_t due_ns_;
};

}  // namespace vllm_router
