// Reloadable: what a server has read from files and reads again while it runs, because the files changed
// or because it is told to (SIGHUP). Each reading is all or nothing: if it fails, the former state stays
// in force.
//
//   every second   Poll(now) --- HasChanged() ---.
//   SIGHUP         Reload(now) ------------------+--> ReadAgain() --> counted, and logged by the subclass
//
//   class Banner final : public Reloadable {
//     Banner() : Reloadable("banner") {}
//     Status ReadAgain() override;  // reads aside, then replaces
//   };
//
// Cost: that of reading the files where it is called, so not on a thread that serves clients. Poll() and
// Reload() are called by one thread at a time; what they count may be read by any.
#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>

#include "base/status.h"
#include "proxy/telemetry/counters.h"

namespace vllm_router {

class Reloadable {
 public:
  // `name`: label `file` of reloads_total; a literal.
  explicit Reloadable(std::string_view name) : name_(name) {}
  virtual ~Reloadable() = default;
  Reloadable(const Reloadable&) = delete;
  Reloadable& operator=(const Reloadable&) = delete;

  std::string_view name() const { return name_; }

  // Reads in any case. `now_s`: Unix time.
  Status Reload(int64_t now_s) {
    const Status read = ReadAgain();
    (read.ok() ? reloads_done_ : reloads_failed_).Add();
    if (read.ok()) last_success_s_.store(now_s, std::memory_order_relaxed);
    return read;
  }
  // Reads if there is something new; returns whether that is in force now.
  bool Poll(int64_t now_s) { return HasChanged() && Reload(now_s).ok(); }

  const Counter& reloads_done() const { return reloads_done_; }
  const Counter& reloads_failed() const { return reloads_failed_; }
  // Unix time of the last success; 0: none yet.
  int64_t last_success_s() const { return last_success_s_.load(std::memory_order_relaxed); }

 private:
  // Whether a file is other than the one last read, and complete.
  virtual bool HasChanged() { return false; }
  // Logs the result. If it fails, it has changed nothing.
  virtual Status ReadAgain() = 0;

  const std::string_view name_;
  Counter reloads_done_;
  Counter reloads_failed_;
  std::atomic<int64_t> last_success_s_{0};
};

}  // namespace vllm_router
