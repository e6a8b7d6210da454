// SourceFeed: one source of KV events without its transport: the batches of one data-parallel rank of a worker go
// to SourceState, and what that decides is carried out.
//
//   connected, lost, live batches, replayed batches -> SourceState -> apply | new incarnation | a replay is due
//                                                        |
//                                                        `-> DecodeKvBatch -> EventApplier -> ReportedBlocks
//
// Of a worker's KV events more than half of which cannot be used, nothing is believed: trust kMismatch.
// CacheAudit compares the rest with the size of the cache.
//
// On the events thread.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

#include "events/cache_audit.h"
#include "events/event_applier.h"
#include "events/kv_event.h"
#include "events/kv_source.h"
#include "events/source_state.h"
#include "index/reported_blocks.h"

namespace vllm_router {

class SourceFeed {
 public:
  // Events after which it is checked whether events can be used.
  static constexpr uint64_t kCheckedEvents = 100;

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
  // It was not connected for long: what it holds now is not known any more.
  void OnGone() { gone_ = true; }

  // A replay from this number on is due. The number of replays at once is limited, so the caller starts it.
  std::optional<uint64_t> replay_due() const { return replay_due_; }
  void OnReplayStarted(int64_t now_ns);
  // False: a replay that was started is of no use any more.
  bool replaying() const { return replaying_; }

  // Compares the blocks that are known with those that the worker's cache has, from time to time.
  void Audit(int64_t now_ns);

  void ReportOutage(int64_t now_ns);
  void Resync(int64_t now_ns);

  KvTrust trust() const;
  bool published() { return std::exchange(published_, false); }  // a message came since the last call
  KvSourceStatus Status(int64_t now_ns) const;

 private:
  void Perform(int64_t now_ns);  // actions_, and those that follow from them
  void Apply(const SourceAction& action, int64_t now_ns);
  void CheckUsability();

  const KvSource source_;
  ReportedBlocks& blocks_;
  SourceState state_;
  EventApplier applier_;
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
  std::array<uint64_t, kKvDropCount> decoder_dropped_{};
  double lag_seconds_ = 0;
  uint64_t usable_blocks_ = 0;  // at the last audit
  KvTrust last_trust_ = KvTrust::kWaiting;
  int64_t trust_since_ns_ = 0;
  bool mismatch_ = false;
  bool useless_ = false;  // nothing that came could be used
  uint64_t events_ = 0;   // since the last check
  uint64_t wrong_rank_events_ = 0;
  bool gone_ = false;
  uint64_t checked_unusable_ = 0;  // at the last check
};

}  // namespace vllm_router
