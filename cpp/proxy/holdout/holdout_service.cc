#include "proxy/holdout/holdout_service.h"

#include <limits>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "proxy/telemetry/metrics_page.h"
#include "proxy/thread/io_thread.h"

namespace vllm_router {
namespace {

constexpr double kPercent = 100;

void AddMean(MetricsPage* page, std::string_view outcome, const EffectEstimate& estimate) {
  constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
  const std::optional<Interval> interval = estimate.At(HoldoutResults::kAlpha);
  page->Add(interval ? estimate.effect() : kUnknown, {{"outcome", outcome}, {"value", "estimate"}});
  page->Add(interval ? interval->low : kUnknown, {{"outcome", outcome}, {"value", "low"}});
  page->Add(interval ? interval->high : kUnknown, {{"outcome", outcome}, {"value", "high"}});
}

}  // namespace

std::atomic<int64_t> HoldoutService::speed{1};

HoldoutService::HoldoutService(
    IoThread& control, const Options& options, SharedHoldout* shared, std::vector<ThreadHoldout*> threads)
    : thread_(control),
      options_(options),
      shared_(*shared),
      threads_(std::move(threads)),
      delay_(control.loop),
      table_({.silence_ns = ConversationTable::kSilenceNanos / speed.load(std::memory_order_relaxed)}),
      view_{
          .options = options, .since = UnixSeconds(), .results = HoldoutResults(options.percent / kPercent)} {
}

void HoldoutService::Start() {
  runs_ = true;
  Spawn(Run());
}

void HoldoutService::Stop() {
  stopping_ = true;
  delay_.Cancel();
}

Task<void> HoldoutService::Run() {
  while (!stopping_) {
    co_await delay_.For(kTickNanos / speed.load(std::memory_order_relaxed));
    if (!stopping_) Tick();
  }
  runs_ = false;
}

// Once it has stopped, the results stay as they were.
void HoldoutService::Tick() {
  std::vector<Turn> turns;
  uint64_t dropped = 0;
  for (ThreadHoldout* const thread : threads_) {
    const std::vector<Turn> taken = thread->turns.Take();
    turns.insert(turns.end(), taken.begin(), taken.end());
    dropped += thread->turns.dropped();
  }
  if (shared_.stopped.load(std::memory_order_relaxed)) return;
  closed_.clear();
  for (const Turn& turn : turns) table_.Add(turn, &closed_);
  table_.CloseIdle(thread_.clock.NowNanos(), &closed_);
  std::string_view reason;
  {
    const MutexLock lock(mutex_);
    for (const ClosedConversation& conversation : closed_) view_.results.Add(conversation);
    view_.open = table_.open();
    view_.dropped_turns = dropped;
    view_.seconds = UnixSeconds() - view_.since;
    if (!closed_.empty()) reason = view_.stopped = view_.results.ReasonToStop();
  }
  if (reason.empty()) return;
  shared_.stopped.store(true, std::memory_order_relaxed);
  Log(LogLevel::kWarning,
      Concat(
          "the hold-out has stopped: by ", reason, " held-out conversations are certainly more than ",
          static_cast<int>(HoldoutResults::kStopRatio), " times as badly off with ", options_.baseline,
          "; the policy routes all of them now (GET /admin/holdout)"));
}

HoldoutService::View HoldoutService::Look() const {
  const MutexLock lock(mutex_);
  return view_;
}

void HoldoutService::WriteMetrics(MetricsPage* page) const {
  const View view = Look();
  const HoldoutResults& results = view.results;
  page->Counter(
      "holdout_conversations_total",
      "Conversations that have ended and count in the hold-out: policy or holdout.");
  page->Add(results.policy(), {{"arm", "policy"}});
  page->Add(results.held_out(), {{"arm", "holdout"}});
  page->Gauge("holdout_open_conversations", "Conversations of the hold-out that have not ended.");
  page->Add(view.open);
  page->Counter(
      "holdout_dropped_turns_total", "Requests that the hold-out has not counted for want of memory.");
  page->Add(view.dropped_turns);
  page->Counter(
      "holdout_stopped_total", "Ends of the hold-out since it was harmful: failures or first_token.");
  for (const std::string_view reason : {"failures", "first_token"})
    page->Add(view.stopped == reason ? 1 : 0, {{"reason", reason}});
  page->Gauge(
      "holdout_effect",
      "Policy minus held out: cached_share of prompts, log_first_token (natural logarithm, later turns), "
      "cached_tokens of a conversation; the estimate, and the ends low and high of its interval at 95 % that "
      "holds at every look. NaN before 100 held-out conversations.");
  AddMean(page, "cached_share", results.cached_share());
  AddMean(page, "log_first_token", results.later_turns());
  AddMean(page, "cached_tokens", results.saved_tokens());
  page->Gauge(
      "holdout_failure_ratio",
      "Rate of failed conversations of the held out by the policy's: estimate (NaN while nothing has "
      "failed), low and high, as of holdout_effect.");
  const Interval interval = results.failures().At(HoldoutResults::kAlpha);
  page->Add(
      results.failures().ratio().value_or(std::numeric_limits<double>::quiet_NaN()), {{"value", "estimate"}});
  page->Add(interval.low, {{"value", "low"}});
  page->Add(interval.high, {{"value", "high"}});
}

}  // namespace vllm_router
