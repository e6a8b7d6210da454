// SourceSession: one source of KV events that is subscribed to, with its sockets: what arrives goes to its
// SourceFeed.
//
//   SUB     live batches     --.
//   monitor connected, lost  --+-> SourceFeed
//   DEALER  replayed batches --'
//
// A replay has a DEALER of its own, so responses to an earlier one cannot mix in. After a reconnect, what the
// engine sent before still waits in the SUB: it is handled as sent before, since an engine that restarted uses
// these numbers again.
//
// On the events thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "events/kv_source.h"
#include "events/source_feed.h"
#include "index/reported_blocks.h"
#include "net/zmq_socket.h"

namespace vllm_router {

// Of a socket that hears publishers: a publisher that is gone is noticed within half a minute, and looked for
// again at least each minute.
ZmqOptions PublisherOptions(std::string_view endpoint);
inline constexpr size_t kMaxPublisherFrames = 8;
// The number of a live batch, whose frames are topic, number of eight bytes, payload. Nullopt: it is none.
std::optional<uint64_t> NumberOfBatch(ZmqReceive received, std::span<const std::string> frames);

class SourceSession {
 public:
  static constexpr size_t kTurnMessages = 64;
  static constexpr size_t kTurnBytes = 256 * 1024;
  static constexpr int64_t kReopenNanos = 30'000'000'000;

  // Unavailable if the sockets cannot be made.
  static StatusOr<std::unique_ptr<SourceSession>> Open(
      const KvSource& source, ReportedBlocks* blocks, const ZmqContext& context);

  SourceFeed& feed() { return feed_; }
  const SourceFeed& feed() const { return feed_; }
  void AppendTo(std::vector<ZmqPollItem>* items);  // its sockets

  // Handles what the sockets have, at most a turn's share. True: there may be more. `items`: those of the
  // last AppendTo(), polled.
  bool Receive(std::span<const ZmqPollItem> items, int64_t now_ns);
  // Connects anew if a connection was lost kReopenNanos ago: libzmq itself does so except to a publisher
  // that sent too long a frame.
  void ReopenIfLost(int64_t now_ns);
  void StartReplay(int64_t now_ns);  // REQUIRES: one is due

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
  void BeginConnection(int64_t now_ns);
  bool ReceiveLive(int64_t now_ns);
  bool ReceiveReplay(int64_t now_ns);

  const ZmqContext& context_;
  SourceFeed feed_;
  ZmqSocket live_;
  ZmqMonitor monitor_;
  std::optional<ZmqSocket> replay_;  // closed within a turn after it stopped
  std::vector<std::string> frames_;  // reused

  size_t first_item_ = 0;  // of its sockets in the poll
  size_t items_ = 0;
  // Until the feed is told of the new connection: 1 + the maximum number of messages of the one before.
  size_t left_over_ = 0;
  int64_t lost_ns_ = 0;  // when the connection was; 0: it is there, or never was
};

}  // namespace vllm_router
