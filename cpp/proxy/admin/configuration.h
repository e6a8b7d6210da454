// Configuration: between clients of /admin/config and /admin/reload and the program that owns the settings,
// which reads them again. The program is Python's Server; no request waits for Python but these.
//
//   client     POST /admin/reload ──▶ Reload() ── queue ──▶ Next()         program
//                      reply      ◀── waits    ◀────────── Finish(…)       reads its file, applies it
//   client     GET /admin/config  ──▶ Config() ◀────────── Describe(…)
//   metrics                       WriteMetrics()  ◀─────── Count(…)
//
// The program takes one call at a time. Thread-safe; Reload() runs on the thread of its request.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/mutex.h"
#include "net/task.h"
#include "proxy/api/admin_reply.h"
#include "proxy/telemetry/counters.h"

namespace vllm_router {

class CancelScope;
class MetricsPage;
struct IoThread;

class Configuration {
 public:
  static constexpr size_t kMostCalls = 16;  // that wait; further ones are rejected
  static constexpr std::array<std::string_view, 4> kResults = {"applied", "unchanged", "refused", "invalid"};

  explicit Configuration(int64_t now_s) : last_success_s_(now_s) {}
  ~Configuration();

  // For the program. A call of number 0 came from a signal: nothing waits for its end. `only_logs`: the files of
  // logs are to be opened again, and nothing else.
  struct Call {
    uint64_t number = 0;
    bool dry_run = false;
    bool only_logs = false;
  };
  std::optional<Call> Next(int64_t timeout_ms);  // null: none within that time, or closed
  void Finish(uint64_t number, int status, std::string body);
  bool Request(bool only_logs);  // a call of number 0, unless such a one waits already; false: closed
  void Close();                  // what waits is rejected, as all that comes later
  bool closed() const;
  void Detach();  // the threads of requests have ended

  void Describe(std::string body);  // of /admin/config; from now on calls wait for the program
  // One of kResults; the former generation and success stay where nothing was in order. `now_s`: Unix time.
  void Count(std::string_view result, uint64_t generation, int64_t now_s);

  // For the endpoints.
  Task<AdminReply> Reload(IoThread& thread, CancelScope& scope, bool dry_run);
  AdminReply Config() const;

  void WriteMetrics(MetricsPage* page) const;  // any thread

 private:
  struct Waiter;
  static void Tell(const std::shared_ptr<Waiter>& waiter, AdminReply reply);

  mutable Mutex mutex_;
  std::condition_variable changed_;
  std::deque<Call> calls_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, std::shared_ptr<Waiter>> waiters_ ABSL_GUARDED_BY(mutex_);
  uint64_t next_number_ ABSL_GUARDED_BY(mutex_) = 1;
  bool attended_ ABSL_GUARDED_BY(mutex_) = false;  // a program takes calls
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  std::string description_ ABSL_GUARDED_BY(mutex_) = "{}";

  std::array<Counter, kResults.size()> results_;
  std::atomic<uint64_t> generation_{1};
  std::atomic<int64_t> last_success_s_;
};

}  // namespace vllm_router
