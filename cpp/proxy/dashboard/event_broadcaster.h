// EventBroadcaster: what the dashboard shows, once a second, for all viewers alike.
//
//   always            counts of all threads, new receipts   -->  FleetHistory, cached tokens of each worker
//   with a viewer     fleet, conditions, receipts           -->  one text per event, which the viewers share
//   a new viewer      hello with the history, fleet, the last receipts, tick
//
// A tick has the rows that have changed since the tick before. A viewer that did not get that one, since it wants a longer
// interval or had no room, gets all rows first. On the control thread; Open() on any. Cost without viewers: some
// microseconds a second per thread and worker, and 0.1 us for each receipt up to kMostReceipts a second.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"
#include "conditions/recent_outcomes.h"
#include "net/event_loop.h"
#include "net/task.h"
#include "proxy/api/event_stream.h"
#include "proxy/control/service.h"
#include "proxy/dashboard/dashboard_events.h"
#include "proxy/dashboard/fleet_history.h"
#include "proxy/telemetry/counters.h"
#include "receipts/receipt_log.h"

namespace vllm_router {

class Services;
class Telemetry;
struct IoThread;

class EventBroadcaster final : public Service {
 public:
  static constexpr int64_t kTickNanos = 1'000'000'000;
  static constexpr size_t kMostViewers = 16;
  static constexpr size_t kReceiptsShown = 20;    // a second
  static constexpr size_t kMostReceipts = 4'096;  // a second and thread, of which cached tokens are counted
  static constexpr uint32_t kLongestInterval = 60;
  static std::atomic<int64_t> speed;  // of its seconds; tests are faster

  // These outlive it; `receipts` may be null.
  struct Sources {
    std::vector<const Telemetry*> telemetries;
    std::vector<const RecentOutcomes*> outcomes;
    const ReceiptLog* receipts = nullptr;
    const Services& services;
  };
  EventBroadcaster(IoThread& control, Sources sources, DashboardFacts facts);

  void Start() override;
  void Stop() override;
  bool ended() const override { return !runs_; }
  void WriteMetrics(MetricsPage* page) const override;

  // Of a new viewer, who gets a tick every `interval` seconds, 1 to kLongestInterval; `more` is for its hello
  // (dashboard_events.h). Null: there are kMostViewers. Any thread.
  std::shared_ptr<EventStream> Open(uint32_t interval, std::string more) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Viewer {
    std::weak_ptr<EventStream> stream;  // expired: it has left
    uint64_t interval;
    std::string more;   // of its hello
    uint64_t last = 0;  // the tick that it got; 0: none yet
  };
  // Of receipts, so far.
  struct Tokens {
    uint64_t reported = 0, prompt = 0;
  };
  struct WorkerTokens {
    static constexpr size_t kMarks = 6;  // of ten seconds
    Tokens sum;
    std::array<Tokens, kMarks> marks{};
  };
  // What a viewer gets at a tick, made when the first one needs it.
  struct Texts {
    EventStream::Piece whole;    // fleet, receipts, tick
    EventStream::Piece changed;  // receipts, tick
  };

  Task<void> Run();
  void Tick();
  void Follow();
  void FollowReceipts(FleetCounts* counts);
  void Serve(bool new_ones_alone);
  void MakeRows();
  DashboardTick TickOf() const;
  std::string LastReceipts() const;
  std::string NewReceipts() const;
  EventStream::Piece PieceFor(const Viewer& viewer, Texts* texts) const;
  std::optional<double> CachedAt(WorkerId worker) const;

  IoThread& thread_;
  const Sources sources_;
  const DashboardFacts facts_;
  Delay delay_;
  bool stopped_ = false;
  bool runs_ = false;

  FleetHistory history_;
  FleetCounts receipt_sums_;  // the part that receipts add
  ReceiptLog::Mark mark_;
  ReceiptLog::News news_;
  std::unordered_map<uint32_t, WorkerTokens> tokens_;  // by worker
  uint64_t tick_ = 0;
  uint64_t rows_tick_ = 0;       // of rows_
  uint64_t fleet_version_ = 0;   // likewise
  bool is_other_fleet_ = false;  // than at the rows before
  std::vector<std::string> rows_;
  std::vector<std::string_view> changed_;  // of rows_
  std::shared_ptr<const std::vector<ActiveCondition>> conditions_;

  mutable Mutex mutex_;
  std::vector<Viewer> viewers_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  std::atomic<uint64_t> skipped_{0};
};

}  // namespace vllm_router
