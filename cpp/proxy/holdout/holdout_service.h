// HoldoutService: takes the turns of all threads once a second, adds them up by conversation, and keeps what the closed ones
// show. It ends the hold-out when that is certainly harmful.
//
//   threads' TurnBuffer  -->  ConversationTable  -->  HoldoutResults  -->  GET /admin/holdout, metrics
//                                                            '-->  SharedHoldout::stopped
//
// On the control thread; View() on any.
#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/mutex.h"
#include "holdout/conversation_table.h"
#include "holdout/holdout_results.h"
#include "net/event_loop.h"
#include "net/task.h"
#include "proxy/control/service.h"
#include "proxy/holdout/thread_holdout.h"

namespace vllm_router {

struct IoThread;

class HoldoutService final : public Service {
 public:
  static constexpr int64_t kTickNanos = 1'000'000'000;
  static std::atomic<int64_t>
      speed;  // of ticks and of the silence that closes a conversation; tests are faster

  struct Options {
    double percent = 0;
    std::string_view baseline;
  };

  // The threads outlive it.
  HoldoutService(
      IoThread& control, const Options& options, SharedHoldout* shared, std::vector<ThreadHoldout*> threads);

  void Start() override;
  void Stop() override;
  bool ended() const override { return !runs_; }
  void WriteMetrics(MetricsPage* page) const override;

  struct View {
    Options options;
    double since = 0;    // Unix time, seconds
    double seconds = 0;  // since then, until the hold-out stopped
    HoldoutResults results;
    uint64_t open = 0;
    uint64_t dropped_turns = 0;
    std::string_view stopped;  // why; empty: it goes on
  };
  View Look() const;

 private:
  Task<void> Run();
  void Tick();

  IoThread& thread_;
  const Options options_;
  SharedHoldout& shared_;
  const std::vector<ThreadHoldout*> threads_;
  Delay delay_;
  bool stopping_ = false;
  bool runs_ = false;
  ConversationTable table_;
  std::vector<ClosedConversation> closed_;

  mutable Mutex mutex_;  // leaf
  View view_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace vllm_router
