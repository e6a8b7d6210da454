// ZmqFeed: KV events over ZeroMQ. It makes the events thread (EventSubscriber) once there is a source, and keeps the number of
// sources within the limit of open files.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "events/event_subscriber.h"
#include "events/kv_feed.h"

namespace vllm_router {

class ZmqFeed final : public KvFeed {
 public:
  // `blocks` outlives it. `bind_endpoints`: to which publishers may connect.
  ZmqFeed(ReportedBlocks* blocks, std::vector<std::string> bind_endpoints)
      : blocks_(*blocks), bind_endpoints_(std::move(bind_endpoints)) {}

  bool Follow(const Sources& sources) override;
  void ReportOutage(WorkerId worker) override;
  void Stop() override;
  bool Resync(std::string_view worker_url) override;
  std::vector<KvSourceStatus> Report() const override;
  // Any thread.
  std::vector<DialInStatus> DialInReport() const;

 private:
  ReportedBlocks& blocks_;
  const std::vector<std::string> bind_endpoints_;
  bool is_started_ = false;
  bool start_failed_ = false;
  bool warned_of_many_ = false;
  // As Follow() had them last.
  std::vector<KvSource> known_;
  std::vector<DialInWorker> may_connect_;

  mutable Mutex mutex_;  // held while the subscriber is made, changed or asked
  std::unique_ptr<EventSubscriber> subscriber_ ABSL_GUARDED_BY(mutex_);
  std::vector<KvSource> sources_ ABSL_GUARDED_BY(mutex_);  // as the subscriber has them
};

}  // namespace vllm_router
