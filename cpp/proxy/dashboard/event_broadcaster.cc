#include "proxy/dashboard/event_broadcaster.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "proxy/control/services.h"
#include "proxy/dashboard/fleet_counts.h"
#include "proxy/telemetry/metrics_page.h"
#include "proxy/telemetry/telemetry.h"
#include "proxy/thread/io_thread.h"
#include "proxy/thread/server_limits.h"
#include "routing/router.h"

namespace vllm_router {
namespace {

constexpr uint64_t kMarkTicks = 10;
constexpr uint64_t kForgetTicks = 600;  // workers that are gone

EventStream::Piece PieceOf(std::string text) { return std::make_shared<const std::string>(std::move(text)); }

}  // namespace

std::atomic<int64_t> EventBroadcaster::speed{1};

EventBroadcaster::EventBroadcaster(IoThread& control, Sources sources, DashboardFacts facts)
    : thread_(control),
      sources_(std::move(sources)),
      facts_(std::move(facts)),
      delay_(control.loop),
      conditions_(std::make_shared<const std::vector<ActiveCondition>>()) {}

void EventBroadcaster::Start() { Spawn(Run()); }

void EventBroadcaster::Stop() {
  stopped_ = true;
  delay_.Cancel();
  const MutexLock lock(mutex_);
  closed_ = true;
  for (const Viewer& viewer : viewers_) {
    if (const std::shared_ptr<EventStream> stream = viewer.stream.lock()) stream->End();
  }
}

Task<void> EventBroadcaster::Run() {
  runs_ = true;
  while (!stopped_) {
    Tick();
    co_await delay_.For(kTickNanos / speed.load(std::memory_order_relaxed));
  }
  runs_ = false;
}

std::shared_ptr<EventStream> EventBroadcaster::Open(uint32_t interval, std::string more) {
  const auto stream =
      std::make_shared<EventStream>(EventStream::kKeepAliveMs / speed.load(std::memory_order_relaxed));
  {
    const MutexLock lock(mutex_);
    std::erase_if(viewers_, [](const Viewer& viewer) { return viewer.stream.expired(); });
    if (closed_ || viewers_.size() >= kMostViewers) return nullptr;
    viewers_.push_back({.stream = stream, .interval = interval, .more = std::move(more)});
  }
  thread_.loop.Post([this] {
    if (!stopped_ && tick_ != 0) Serve(/*new_ones_alone=*/true);
  });
  return stream;
}

void EventBroadcaster::Tick() {
  ++tick_;
  Follow();
  Serve(/*new_ones_alone=*/false);
}

// ---- what is kept without viewers

void EventBroadcaster::Follow() {
  FleetCounts counts = CountFleet(sources_.telemetries);
  counts.at_ns = thread_.clock.NowNanos();
  FollowReceipts(&counts);
  const ServerLimits& limits = thread_.limits;
  history_.Add(
      counts, UnixSeconds(),
      static_cast<double>(limits.concurrency.waiting() + limits.model_waits.waiting()));
}

void EventBroadcaster::FollowReceipts(FleetCounts* counts) {
  if (sources_.receipts != nullptr) news_ = sources_.receipts->AddedSince(&mark_, kMostReceipts);
  FleetCounts& sums = receipt_sums_;
  for (const Receipt& receipt : news_.receipts) {
    ++sums.receipts;
    if (receipt.prompt == Receipt::kNone) continue;
    if (receipt.reported != Receipt::kNone) {
      ++sums.reporting;
      sums.reported += receipt.reported;
      sums.reported_of += receipt.prompt;
      Tokens& tokens = tokens_[receipt.worker].sum;
      tokens.reported += receipt.reported;
      tokens.prompt += receipt.prompt;
    }
    if (receipt.predicted != Receipt::kNone) {
      sums.expected += receipt.predicted;
      sums.expected_of += receipt.prompt;
    }
  }
  counts->receipts = sums.receipts;
  counts->reporting = sums.reporting;
  counts->reported = sums.reported;
  counts->reported_of = sums.reported_of;
  counts->expected = sums.expected;
  counts->expected_of = sums.expected_of;
  if (tick_ % kMarkTicks == 0) {
    for (auto& [worker, tokens] : tokens_)
      tokens.marks[tick_ / kMarkTicks % WorkerTokens::kMarks] = tokens.sum;
  }
  if (tick_ % kForgetTicks == 0) {
    const std::shared_ptr<const FleetView> fleet = thread_.router->pool().fleet();
    std::erase_if(tokens_, [&fleet](const auto& entry) {
      return std::ranges::none_of(fleet->members(), [&entry](const FleetView::Member& member) {
        return static_cast<uint32_t>(member.worker->id) == entry.first;
      });
    });
  }
}

// The mark that is overwritten next is the oldest.
std::optional<double> EventBroadcaster::CachedAt(WorkerId worker) const {
  const auto found = tokens_.find(static_cast<uint32_t>(worker));
  if (found == tokens_.end()) return std::nullopt;
  const WorkerTokens& tokens = found->second;
  const Tokens& before = tokens.marks[(tick_ / kMarkTicks + 1) % WorkerTokens::kMarks];
  const uint64_t prompt = tokens.sum.prompt - before.prompt;
  if (prompt == 0) return std::nullopt;
  return static_cast<double>(tokens.sum.reported - before.reported) / static_cast<double>(prompt);
}

// ---- what viewers get

void EventBroadcaster::Serve(bool new_ones_alone) {
  std::vector<std::pair<Viewer, bool>> due;  // and whether it took its piece
  {
    const MutexLock lock(mutex_);
    std::erase_if(viewers_, [](const Viewer& viewer) { return viewer.stream.expired(); });
    for (const Viewer& viewer : viewers_) {
      if (viewer.last == 0 || (!new_ones_alone && tick_ - viewer.last >= viewer.interval))
        due.emplace_back(viewer, false);
    }
  }
  if (due.empty()) return;
  if (rows_tick_ != tick_) MakeRows();
  Texts texts;
  for (auto& [viewer, took] : due) {
    const std::shared_ptr<EventStream> stream = viewer.stream.lock();
    if (stream == nullptr) continue;
    took = stream->Add(PieceFor(viewer, &texts));
    if (!took) skipped_.fetch_add(1, std::memory_order_relaxed);
  }
  const MutexLock lock(mutex_);
  for (Viewer& viewer : viewers_) {
    for (const auto& [served, took] : due) {
      const bool is_it =
          !viewer.stream.owner_before(served.stream) && !served.stream.owner_before(viewer.stream);
      if (is_it && took) viewer.last = tick_;
    }
  }
}

void EventBroadcaster::MakeRows() {
  if (auto* const report = sources_.services.Find<ConditionReport>()) {
    report->Look();
    conditions_ = report->Report();
  }
  OutcomeSums outcomes;
  const int64_t now = thread_.clock.NowNanos();
  for (const RecentOutcomes* const of_thread : sources_.outcomes) of_thread->AddTo(&outcomes, now);
  const std::shared_ptr<const FleetView> fleet = thread_.router->pool().fleet();
  std::vector<std::string> rows;
  rows.reserve(fleet->members().size());
  for (const FleetView::Member& member : fleet->members()) {
    const auto found = outcomes.find(member.worker->id);
    const WorkerOutcomes* const of_worker = found == outcomes.end() ? nullptr : &found->second;
    rows.push_back(WorkerRow(member, of_worker, CachedAt(member.worker->id), *conditions_));
  }
  rows.swap(rows_);
  changed_.clear();
  is_other_fleet_ = fleet->membership_version() != fleet_version_;
  fleet_version_ = fleet->membership_version();
  for (size_t i = 0; i < rows_.size() && !is_other_fleet_; ++i) {
    if (rows[i] != rows_[i]) changed_.push_back(rows_[i]);
  }
  rows_tick_ = tick_;
}

DashboardTick EventBroadcaster::TickOf() const {
  int64_t in_flight = 0;
  for (const Telemetry* const telemetry : sources_.telemetries)
    in_flight += telemetry->in_flight.load(std::memory_order_relaxed);
  const uint64_t shown = std::min<uint64_t>(news_.receipts.size(), kReceiptsShown);
  return {
      .conditions = *conditions_,
      .workers = rows_.size(),
      .in_flight = in_flight,
      .shown = shown,
      .skipped = news_.added - shown};
}

std::string EventBroadcaster::LastReceipts() const {
  std::string text;
  if (sources_.receipts == nullptr) return text;
  const ReceiptLog::Found found = sources_.receipts->Find({.last = kReceiptsShown});
  for (size_t i = found.rows.size(); i-- > 0;) text += ReceiptEvent(found.rows[i]);
  return text;
}

// Evenly from those of this second.
std::string EventBroadcaster::NewReceipts() const {
  std::string text;
  const std::vector<Receipt>& all = news_.receipts;
  const size_t shown = std::min(all.size(), kReceiptsShown);
  for (size_t i = 0; i < shown; ++i)
    text += ReceiptEvent(sources_.receipts->RowOf(all[i * all.size() / shown]));
  return text;
}

EventStream::Piece EventBroadcaster::PieceFor(const Viewer& viewer, Texts* texts) const {
  const auto tick = [this] { return TickEvent(TickOf(), history_, {}); };
  if (viewer.last == 0)
    return PieceOf(HelloEvent(facts_, history_, viewer.more) + FleetEvent(rows_) + LastReceipts() + tick());
  if (viewer.last + 1 != tick_ || is_other_fleet_) {
    if (texts->whole == nullptr) texts->whole = PieceOf(FleetEvent(rows_) + NewReceipts() + tick());
    return texts->whole;
  }
  if (texts->changed == nullptr)
    texts->changed = PieceOf(NewReceipts() + TickEvent(TickOf(), history_, changed_));
  return texts->changed;
}

void EventBroadcaster::WriteMetrics(MetricsPage* page) const {
  size_t viewers = 0;
  {
    const MutexLock lock(mutex_);
    viewers = static_cast<size_t>(
        std::ranges::count_if(viewers_, [](const Viewer& viewer) { return !viewer.stream.expired(); }));
  }
  page->Gauge("dashboard_viewers", "Browsers that get the events of the dashboard.");
  page->Add(static_cast<double>(viewers));
  page->Counter(
      "dashboard_skipped_total",
      "Ticks that viewers of the dashboard did not get, since 256 KiB waited for them.");
  page->Add(static_cast<double>(skipped_.load(std::memory_order_relaxed)));
}

}  // namespace vllm_router
