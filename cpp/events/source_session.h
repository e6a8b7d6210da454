// SourceSession: one source of KV events with its sockets: what arrives goes to SourceState, and what that
// decides is carried out.
//
//   SUB     live batches     --.
//   monitor connected, lost  --+-> SourceState -> apply | new incarnation | start or stop a replay
//   DEALER  replayed batches --'                    |
//                                                   `-> DecodeKvBatch -> EventApplier -> ReportedBlocks
//
// A replay has a DEALER of its own, so responses to an earlier one cannot mix in. Of a worker's KV events
// more than half of which cannot be used, nothing is believed: trust kMismatch. CacheAudit compares the rest
// with the size of the cache.
//
// On the events thread.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "events/cache_audit.h"
#include "events/event_applier.h"
#include "events/event_subscriber.h"
#include "events/kv_event.h"
#include "events/kv_source.h"
#include "events/source_state.h"
#include "index/reported_blocks.h"
#include "net/zmq_socket.h"

namespace vllm_router {

class SourceSession {
 public:
  static constexpr size_t kTurnMessages = 64;
  static constexpr size_t kTurnBytes = 256 * 1024;
  static constexpr int64_t kReopenNanos = 30'000'000'000;
  // Events after which it is checked whether events can be used.
  static constexpr uint64_t kCheckedEvents = 100;

  // Unavailable if the sockets cannot be made.
  static StatusOr<std::unique_ptr<SourceSession>> Open(
      const KvSource& source, ReportedBlocks* blocks, const ZmqContext& context);

  const KvSource& source() const { return source_; }
  void AppendTo(std::vector<ZmqPollItem>* items);  // its sockets

  // Handles what the sockets have, at most a turn's share. True: there may be more. `items`: those of the
  // last AppendTo(), polled.
  bool Receive(std::span<const ZmqPollItem> items, int64_t now_ns);
  void Tick(int64_t now_ns);
  // Connects anew if a connection was lost kReopenNanos ago: libzmq itself does so except to a publisher
  // that sent too long a frame.
  void ReopenIfLost(int64_t now_ns);
  int64_t next_tick_ns() const { return state_.next_tick_ns(); }

  // The number of replays at once is limited, so the caller starts one that is due.
  bool wants_replay() const { return replay_from_.has_value(); }
  bool is_replaying() const { return replay_.has_value(); }
  void StartReplay(int64_t now_ns);

  // Compares the blocks that are known with those that the worker's cache has, from time to time.
  void Audit(int64_t now_ns);

  void ReportOutage(int64_t now_ns);
  void Resync(int64_t now_ns);

  KvTrust trust() const;
  bool published() { return std::exchange(published_, false); }  // a batch came since the last call
  KvSourceStatus Status(int64_t now_ns) const;

 private:
  SourceSession(
      const KvSource& source, ReportedBlocks* blocks, const ZmqContext& context, ZmqSocket live,
      ZmqMonitor monitor);
  struct Live {
    ZmqSocket socket;
    ZmqMonitor monitor;
  };
  static StatusOr<Live> Connect(const KvSource& source, const ZmqContext& context);

  void ReceiveMonitor(int64_t now_ns);
  bool ReceiveLive(int64_t now_ns);
  bool ReceiveReplay(int64_t now_ns);
  void Perform(int64_t now_ns);  // actions_, and those that follow from them
  void Apply(const SourceAction& action, int64_t now_ns);
  void CheckUsability();

  const KvSource source_;
  ReportedBlocks& blocks_;
  const ZmqContext& context_;
  SourceState state_;
  EventApplier applier_;
  CacheAudit audit_;
  ZmqSocket live_;
  ZmqMonitor monitor_;
  std::optional<ZmqSocket> replay_;
  std::optional<uint64_t> replay_from_;  // a replay is due
  SourceActions actions_;
  std::vector<std::string> frames_;  // reused
  KvBatch batch_;                    // likewise

  size_t first_item_ = 0;  // of its sockets in the poll
  size_t items_ = 0;
  bool connected_ = false;
  bool published_ = false;
  int64_t lost_ns_ = 0;  // when the connection was; 0: it is there, or never was
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
  bool gone_ = false;              // for kReopenNanos
  uint64_t checked_unusable_ = 0;  // at the last check
};

}  // namespace vllm_router
