#include "events/source_session.h"

#include <array>
#include <utility>

namespace vllm_router {
namespace {

constexpr size_t kQueuedMessages = 64;
// Ten times a step of 64k tokens. With the limit of messages, it bounds what a source can make us hold.
constexpr int64_t kMaxBatchBytes = 8 * 1024 * 1024;

// Big-endian.
std::optional<uint64_t> NumberInFrame(std::string_view frame) {
  if (frame.size() != 8) return std::nullopt;
  uint64_t number = 0;
  for (const char byte : frame) number = number << 8 | static_cast<uint8_t>(byte);
  return number;
}

}  // namespace

ZmqOptions PublisherOptions(std::string_view endpoint) {
  return {
      .receive_limit = kQueuedMessages,
      .max_frame_bytes = kMaxBatchBytes,
      .reconnect_ms = 100,
      .reconnect_max_ms = 10'000,
      .heartbeat_ms = 10'000,
      .heartbeat_timeout_ms = 30'000,
      .keepalive_idle_s = 30,
      .keepalive_interval_s = 10,
      .keepalive_count = 3,
      .ipv6 = endpoint.find('[') != std::string_view::npos};
}

std::optional<uint64_t> NumberOfBatch(ZmqReceive received, std::span<const std::string> frames) {
  if (received != ZmqReceive::kMessage || frames.size() != 3) return std::nullopt;
  return NumberInFrame(frames[1]);
}

SourceSession::SourceSession(
    const KvSource& source, ReportedBlocks* blocks, const ZmqContext& context, ZmqSocket live,
    ZmqMonitor monitor)
    : context_(context),
      feed_(source, blocks, {.has_replay = !source.replay_endpoint.empty()}),
      live_(std::move(live)),
      monitor_(std::move(monitor)) {}

StatusOr<SourceSession::Live> SourceSession::Connect(const KvSource& source, const ZmqContext& context) {
  ZmqOptions options = PublisherOptions(source.endpoint);
  options.subscriptions = {source.topic};
  StatusOr<ZmqSocket> socket = ZmqSocket::Open(context, ZmqSocketType::kSub, options);
  if (!socket.ok()) return socket.status();
  StatusOr<ZmqMonitor> monitor = ZmqMonitor::Open(*socket);
  if (!monitor.ok()) return monitor.status();
  ROUTER_RETURN_IF_ERROR(socket->Connect(source.endpoint));
  return Live{*std::move(socket), *std::move(monitor)};
}

StatusOr<std::unique_ptr<SourceSession>> SourceSession::Open(
    const KvSource& source, ReportedBlocks* blocks, const ZmqContext& context) {
  StatusOr<Live> live = Connect(source, context);
  if (!live.ok()) return live.status();
  return std::unique_ptr<SourceSession>(
      new SourceSession(source, blocks, context, std::move(live->socket), std::move(live->monitor)));
}

void SourceSession::ReopenIfLost(int64_t now_ns) {
  if (lost_ns_ == 0 || now_ns - lost_ns_ < kReopenNanos) return;
  lost_ns_ = now_ns;
  feed_.OnGone();
  StatusOr<Live> live = Connect(feed_.source(), context_);
  if (!live.ok()) return;
  live_ = std::move(live->socket);
  monitor_ = std::move(live->monitor);
  items_ = 0;
}

void SourceSession::AppendTo(std::vector<ZmqPollItem>* items) {
  if (!feed_.replaying()) replay_.reset();
  first_item_ = items->size();
  items->push_back({.socket = &monitor_.socket()});
  items->push_back({.socket = &live_});
  if (replay_) items->push_back({.socket = &*replay_});
  items_ = items->size() - first_item_;
}

bool SourceSession::Receive(std::span<const ZmqPollItem> items, int64_t now_ns) {
  if (items_ == 0) return true;  // opened since the poll
  const std::span<const ZmqPollItem> own = items.subspan(first_item_, items_);
  bool more = false;
  if (own[0].readable) ReceiveMonitor(now_ns);
  // Of a replay first: live batches wait for it.
  if (own.size() > 2 && own[2].readable) more = ReceiveReplay(now_ns);
  if (own[1].readable && ReceiveLive(now_ns)) {
    more = true;
  } else if (left_over_ > 0) {
    BeginConnection(now_ns);
  }
  return more;
}

void SourceSession::BeginConnection(int64_t now_ns) {
  left_over_ = 0;
  feed_.OnConnected(now_ns);
}

void SourceSession::ReceiveMonitor(int64_t now_ns) {
  ZmqEvent event;
  while (monitor_.Next(&event)) {
    if (event.kind == ZmqEvent::Kind::kConnected) {
      lost_ns_ = 0;
      left_over_ = kQueuedMessages + 1;
    } else {
      lost_ns_ = now_ns;
      left_over_ = 0;
      feed_.OnDisconnected(now_ns);
    }
  }
}

bool SourceSession::ReceiveLive(int64_t now_ns) {
  size_t bytes = 0;
  for (size_t i = 0; i < kTurnMessages && bytes < kTurnBytes; ++i) {
    const ZmqReceive received = live_.Receive(kMaxPublisherFrames, &frames_);
    if (received == ZmqReceive::kNone || received == ZmqReceive::kError) return false;
    if (left_over_ > 0 && --left_over_ == 0) BeginConnection(now_ns);
    const std::optional<uint64_t> number = NumberOfBatch(received, frames_);
    if (!number) {
      feed_.OnMalformedMessage();
      continue;
    }
    bytes += frames_[2].size();
    feed_.OnBatch(*number, frames_[2], now_ns);
  }
  return true;
}

// The number is the last frame but one, and the payload the last: in front of them may be a topic.
bool SourceSession::ReceiveReplay(int64_t now_ns) {
  size_t bytes = 0;
  for (size_t i = 0; i < kTurnMessages && bytes < kTurnBytes; ++i) {
    if (!feed_.replaying()) replay_.reset();
    if (!replay_) return false;
    const ZmqReceive received = replay_->Receive(kMaxPublisherFrames, &frames_);
    if (received == ZmqReceive::kNone || received == ZmqReceive::kError) return false;
    const size_t count = frames_.size();
    const std::optional<uint64_t> number =
        received == ZmqReceive::kMessage && count >= 2 ? NumberInFrame(frames_[count - 2]) : std::nullopt;
    if (!number) {
      feed_.OnMalformedMessage();
      continue;
    }
    bytes += frames_[count - 1].size();
    feed_.OnReplayBatch(*number, frames_[count - 1], now_ns);
  }
  return true;
}

void SourceSession::StartReplay(int64_t now_ns) {
  const uint64_t from = *feed_.replay_due();
  const KvSource& source = feed_.source();
  replay_.reset();
  StatusOr<ZmqSocket> socket =
      ZmqSocket::Open(context_, ZmqSocketType::kDealer, PublisherOptions(source.replay_endpoint));
  if (socket.ok() && socket->Connect(source.replay_endpoint).ok()) {
    std::string number(8, '\0');
    for (size_t i = 0; i < number.size(); ++i) number[i] = static_cast<char>(from >> (56 - 8 * i));
    const std::array<std::string_view, 2> request = {std::string_view(), number};
    // libzmq keeps it until it has connected.
    socket->Send(request);
    replay_ = *std::move(socket);
  }
  // If it could not be sent, the machine's deadline for the first response ends the attempt.
  feed_.OnReplayStarted(now_ns);
}

}  // namespace vllm_router
