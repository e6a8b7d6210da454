#include "proxy/admin/configuration.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/time_units.h"
#include "proxy/api/error_response.h"
#include "proxy/client/http_client.h"
#include "proxy/telemetry/metrics_page.h"
#include "proxy/thread/io_thread.h"

namespace vllm_router {
namespace {

constexpr int kConflict = 409;
constexpr int64_t kWaitNs = 60 * kNanosPerSecond;
constexpr std::string_view kInProgress = "reload_in_progress";
constexpr std::string_view kNotAttended = "reload_not_available";

AdminReply Conflict(std::string_view code, std::string_view message) {
  const std::string_view type = ErrorOf(HttpError::kInvalidArgument).type;
  return {.status = kConflict, .body = ErrorBody(message, type, code), .error_code = code};
}

AdminReply ShuttingDown() {
  return Conflict(
      ErrorOf(HttpError::kShuttingDown).code, "The router is shutting down; nothing was changed.");
}

}  // namespace

struct Configuration::Waiter {
  Waiter(IoThread& thread, CancelScope& scope) : thread(thread), scope(&scope) {}

  IoThread& thread;
  CancelScope* scope;  // null: it waits no more. Of its thread, as the reply
  std::optional<AdminReply> reply;
};

Configuration::~Configuration() = default;

std::optional<Configuration::Call> Configuration::Next(int64_t timeout_ms) {
  MutexLock lock(mutex_);
  attended_ = true;
  const auto has_news = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return closed_ || !calls_.empty(); };
  if (timeout_ms < 0) {
    changed_.wait(lock.native(), has_news);
  } else {
    changed_.wait_for(lock.native(), std::chrono::milliseconds(timeout_ms), has_news);
  }
  if (closed_ || calls_.empty()) return std::nullopt;
  const Call call = calls_.front();
  calls_.pop_front();
  return call;
}

void Configuration::Tell(const std::shared_ptr<Waiter>& waiter, AdminReply reply) {
  waiter->thread.loop.Post([waiter, reply = std::move(reply)] {
    if (waiter->scope == nullptr) return;
    waiter->reply = reply;
    waiter->scope->EndPause();
  });
}

void Configuration::Finish(uint64_t number, int status, std::string body) {
  const std::string_view code = status == kConflict ? "reload_refused" : "";
  MutexLock lock(mutex_);
  const auto found = waiters_.find(number);
  if (found == waiters_.end()) return;
  Tell(found->second, {.status = status, .body = std::move(body), .error_code = code});
  waiters_.erase(found);
}

bool Configuration::Request(bool only_logs) {
  MutexLock lock(mutex_);
  if (closed_) return false;
  const bool waits = std::ranges::any_of(
      calls_, [only_logs](const Call& call) { return call.number == 0 && call.only_logs == only_logs; });
  if (!waits) calls_.push_back({.only_logs = only_logs});
  changed_.notify_one();
  return true;
}

void Configuration::Close() {
  MutexLock lock(mutex_);
  closed_ = true;
  // The one that is under way ends by Finish().
  for (const Call& call : calls_) {
    const auto found = waiters_.find(call.number);
    if (found == waiters_.end()) continue;
    Tell(found->second, ShuttingDown());
    waiters_.erase(found);
  }
  calls_.clear();
  changed_.notify_all();
}

void Configuration::Detach() {
  MutexLock lock(mutex_);
  closed_ = true;
  waiters_.clear();
  calls_.clear();
  changed_.notify_all();
}

bool Configuration::closed() const {
  MutexLock lock(mutex_);
  return closed_;
}

void Configuration::Describe(std::string body) {
  MutexLock lock(mutex_);
  attended_ = true;  // calls may come before the program waits for them
  description_ = std::move(body);
}

void Configuration::Count(std::string_view result, uint64_t generation, int64_t now_s) {
  const auto found = std::ranges::find(kResults, result);
  if (found == kResults.end()) return;
  const auto number = static_cast<size_t>(found - kResults.begin());
  results_[number].Add();
  if (number > 1) return;
  generation_.store(generation, std::memory_order_relaxed);
  last_success_s_.store(now_s, std::memory_order_relaxed);
}

Task<AdminReply> Configuration::Reload(IoThread& thread, CancelScope& scope, bool dry_run) {
  const auto waiter = std::make_shared<Waiter>(thread, scope);
  uint64_t number = 0;
  {
    MutexLock lock(mutex_);
    if (closed_) co_return ShuttingDown();
    if (!attended_) {
      co_return Conflict(
          kNotAttended, "The program that serves here has no settings to read again; restart it.");
    }
    if (waiters_.size() >= kMostCalls) {
      co_return Conflict(
          kInProgress, "Too many reloads are under way; repeat the call when they have ended.");
    }
    number = next_number_++;
    calls_.push_back({.number = number, .dry_run = dry_run});
    waiters_.emplace(number, waiter);
    changed_.notify_one();
  }
  co_await scope.Pause(thread.loop, kWaitNs);
  waiter->scope = nullptr;
  if (waiter->reply) co_return *std::move(waiter->reply);
  {
    MutexLock lock(mutex_);
    waiters_.erase(number);
    std::erase_if(calls_, [number](const Call& call) { return call.number == number; });
  }
  co_return Conflict(
      kInProgress, "The reload has not ended in time; GET /admin/config shows what is in force.");
}

AdminReply Configuration::Config() const {
  MutexLock lock(mutex_);
  return {.body = description_};
}

void Configuration::WriteMetrics(MetricsPage* page) const {
  page->Counter(
      "config_reloads_total",
      "Reloads of the file of settings: applied, unchanged (nothing new in it), refused (a change needs a "
      "restart) or invalid (a mistake). Dry runs do not count.");
  for (size_t result = 0; result < kResults.size(); ++result) {
    page->Add(results_[result].count(), {{"result", kResults[result]}});
  }
  page->Gauge(
      "config_last_success_timestamp_seconds",
      "Unix time at which the settings in force were last found to be those of the file; at first the "
      "start.");
  page->Add(last_success_s_.load(std::memory_order_relaxed));
  page->Gauge(
      "config_generation", "Number of the settings in force: 1 at the start, 1 more with each change.");
  page->Add(generation_.load(std::memory_order_relaxed));
}

}  // namespace vllm_router
