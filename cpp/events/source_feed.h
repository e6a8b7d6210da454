// SourceFeed: one source of KV events without its transport: the batches of one data-parallel rank of a worker go
// to SourceState, and what that decides is carried out.
//
//   connected, lost, live batches, replayed batches -> SourceState -> apply | new incarnation | a replay is due
//                                                        |
//                                                        `-> DecodeKvBatch -> EventApplier -> ReportedBlocks
//
// EventCounts says whether the events can be used at all; of the others, trust is kMismatch. CacheAudit compares
// what is known with the size of the cache.
//
// On the events thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

#include "events/cache_audit.h"
#include "events/event_applier.h"
#include "events/event_counts.h"
#include "events/kv_event.h"
#include "events/kv_source.h"
#include "events/source_state.h"
#include "index/reported_blocks.h"

namespace vllm_router {

class SourceFeed {
 public:
  SourceFeed(KvSource source, ReportedBlocks* blocks, const SourceStateOptions& options);

  const KvSource& source() const { return source_; }

  void OnConnected(int64_t now_ns);
  void OnDisconnected(int64_t now_ns);
  void OnBatch(uint64_t number, std::string_view payload, int64_t now_ns);  // live
  void OnReplayBatch(
      uint64_t number, std::string_view payload, int64_t now_ns);  // an empty payload is the end
  void OnMalformedMessage();                                       // not the frames of a publisher
  void OnTick(int64_t now_ns);
  int64_t next_tick_ns() const { return state_.next_tick_ns(); }
  bool connected() const { return connected_; }
  // What it holds now is not known until it is connected again.
  void OnGone() { gone_ = true; }

  // A replay from this number on is due. The number of replays at once is limited, so the caller starts it.
  std::optional<uint64_t> replay_due() const { return replay_due_; }
  void OnReplayStarted(int64_t now_ns);
  // False: a replay that was started is of no use any more.
  bool replaying() const { return replaying_; }

  // From time to time: drops what waits in vain, and compares the blocks that are known with those that the
  // worker's cache has.
  void Audit(int64_t now_ns);

  void ReportOutage(int64_t now_ns);
  void Resync(int64_t now_ns);

  KvTrust trust() const;
  bool was_useful() const { return applier_.figures().stored_blocks != 0; }  // blocks of it were stored
  size_t waiting_bytes() const { return state_.held_bytes() + applier_.orphan_bytes(); }
  bool published() { return std::exchange(published_, false); }  // a message came since the last call
  KvSourceStatus Status(int64_t now_ns) const;

 private:
  void Perform(int64_t now_ns);  // actions_, and those that follow from them
  void Apply(const SourceAction& action, int64_t now_ns);

  const KvSource source_;
  ReportedBlocks& blocks_;
  SourceState state_;
  EventApplier applier_;
  EventCounts event_counts_;
  CacheAudit audit_;
  std::optional<uint64_t> replay_due_;
  bool replaying_ = false;
  SourceActions actions_;
  KvBatch batch_;  // reused

  bool connected_ = false;
  bool published_ = false;
  uint64_t connections_ = 0;
  uint64_t received_ = 0;
  uint64_t malformed_ = 0;
  uint64_t wrong_rank_ = 0;
  double lag_seconds_ = 0;
  uint64_t usable_blocks_ = 0;  // at the last audit
  KvTrust last_trust_ = KvTrust::kWaiting;
  int64_t trust_since_ns_ = 0;
  bool gone_ = false;
};

}  // namespace vllm_router
