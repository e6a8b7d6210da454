// The health of a host by its checks, and the time of the next one. Pure: the time is passed in. One
// thread.
//
// HealthTracker turns single observations into a verdict that does not flap:
//
//   healthy --failure_threshold failures in a row--> unhealthy --success_threshold successes in a row--> healthy
//
// HealthWatch is one host's schedule around it:
//
//   healthy, and the last check agrees                                     the interval (10 s)
//   unhealthy                                                              2 s
//   a request could not reach it, or the last check contradicts the verdict  1 s
//
// and never more than the interval. So a host that dies without traffic is out within some twelve
// seconds; one that a request could not reach, within two. A host that serves again is back within
// three. A new host is checked at once; it starts healthy, as in the reference router, but known() is
// false until a check has ended.
#pragma once

#include <algorithm>
#include <cstdint>

namespace vllm_router {

class HealthTracker {
 public:
  HealthTracker(uint32_t failure_threshold, uint32_t success_threshold)
      : failure_threshold_(failure_threshold), success_threshold_(success_threshold) {}

  // True when this observation changed the verdict.
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
  // Of observations from now on.
  void SetThresholds(uint32_t failure_threshold, uint32_t success_threshold) {
    failure_threshold_ = failure_threshold;
    success_threshold_ = success_threshold;
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
  int64_t interval_ns = 10'000'000'000;
  int64_t unhealthy_ns = 2'000'000'000;  // used while it is unhealthy; never more than the interval
  int64_t unclear_ns = 1'000'000'000;    // used while the verdict is unclear; likewise
  uint32_t failure_threshold = 3;
  uint32_t success_threshold = 2;
};

class HealthWatch {
 public:
  HealthWatch(const HealthOptions& options, int64_t now_ns)
      : options_(options), tracker_(options.failure_threshold, options.success_threshold), due_ns_(now_ns) {}

  bool healthy() const { return tracker_.healthy(); }
  bool known() const { return known_; }  // a check has ended, with success or failure
  bool suspected() const { return suspicion_ > 0; }
  bool polling() const { return asking_; }
  int64_t due_ns() const { return due_ns_; }  // while no check is under way
  bool Due(int64_t now_ns) const { return !asking_ && now_ns >= due_ns_; }

  // For checks and pauses from now on; the next check is not later than under the new interval.
  void SetOptions(const HealthOptions& options, int64_t now_ns) {
    options_ = options;
    tracker_.SetThresholds(options.failure_threshold, options.success_threshold);
    due_ns_ = std::min(due_ns_, now_ns + options.interval_ns);
  }

  void Begin() { asking_ = true; }

  // The result of the check that began. True when the verdict changed. `spread`: -1..1, so that hosts
  // are not checked in step.
  bool End(bool success, int64_t now_ns, double spread) {
    asking_ = false;
    known_ = true;
    const bool changed = tracker_.Observe(success);
    if (changed) suspicion_ = 0;
    if (success && suspicion_ > 0) --suspicion_;
    const bool clear = tracker_.settled() && suspicion_ == 0;
    const int64_t pause = std::min(
        options_.interval_ns, !clear               ? options_.unclear_ns
                              : tracker_.healthy() ? options_.interval_ns
                                                   : options_.unhealthy_ns);
    due_ns_ = now_ns + pause + static_cast<int64_t>(static_cast<double>(pause) * 0.1 * spread);
    return changed;
  }

  // A request could not reach it: it is checked at once, and every second until a few checks have
  // succeeded.
  void ReportPassiveFailure(int64_t now_ns) {
    if (!tracker_.healthy()) return;
    if (suspicion_ == 0) due_ns_ = std::min(due_ns_, now_ns);
    suspicion_ = options_.success_threshold;
  }

 private:
  HealthOptions options_;
  HealthTracker tracker_;
  uint32_t suspicion_ = 0;  // successful checks that would end the suspicion
  bool known_ = false;
  bool asking_ = false;
  int64_t due_ns_;
};

}  // namespace vllm_router
