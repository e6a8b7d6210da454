#include "events/source_session.h"

#include <string_view>

#include "base/clock.h"
#include "base/time_units.h"

namespace vllm_router {
namespace {

constexpr size_t kMaxFrames = 8;
// Ten times a step of 64k tokens. With the limit of messages, it bounds what a source can make us hold.
constexpr int64_t kMaxBatchBytes = 8 * 1024 * 1024;
constexpr size_t kKeptTokens = 256 * 1024;  // room of a batch that is kept for the next one

// A publisher that is gone is noticed within half a minute, and looked for again at least each minute.
ZmqOptions OptionsFor(const KvSource& source) {
  return {
      .receive_limit = 64,
      .max_frame_bytes = kMaxBatchBytes,
      .reconnect_ms = 100,
      .reconnect_max_ms = 10'000,
      .heartbeat_ms = 10'000,
      .heartbeat_timeout_ms = 30'000,
      .keepalive_idle_s = 30,
      .keepalive_interval_s = 10,
      .keepalive_count = 3,
      .ipv6 = source.endpoint.find('[') != std::string::npos};
}

// A frame of eight bytes, big-endian.
std::optional<uint64_t> NumberIn(std::string_view frame) {
  if (frame.size() != 8) return std::nullopt;
  uint64_t number = 0;
  for (const char byte : frame) number = number << 8 | static_cast<uint8_t>(byte);
  return number;
}

}  // namespace

SourceSession::SourceSession(
    const KvSource& source, ReportedBlocks* blocks, const ZmqContext& context, ZmqSocket live,
    ZmqMonitor monitor)
    : source_(source),
      blocks_(*blocks),
      context_(context),
      state_({.has_replay = !source.replay_endpoint.empty()}),
      applier_(blocks, source.worker, {.model = source.model}),
      live_(std::move(live)),
      monitor_(std::move(monitor)) {}

StatusOr<SourceSession::Live> SourceSession::Connect(const KvSource& source, const ZmqContext& context) {
  ZmqOptions options = OptionsFor(source);
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
  gone_ = true;
  StatusOr<Live> live = Connect(source_, context_);
  if (!live.ok()) return;
  live_ = std::move(live->socket);
  monitor_ = std::move(live->monitor);
  items_ = 0;
}

void SourceSession::AppendTo(std::vector<ZmqPollItem>* items) {
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
  if (own[1].readable && ReceiveLive(now_ns)) more = true;
  return more;
}

void SourceSession::ReceiveMonitor(int64_t now_ns) {
  ZmqEvent event;
  while (monitor_.Next(&event)) {
    if (event.kind == ZmqEvent::Kind::kConnected) {
      connected_ = true;
      lost_ns_ = 0;
      gone_ = false;
      ++connections_;
      state_.OnConnected(now_ns, &actions_);
    } else {
      connected_ = false;
      lost_ns_ = now_ns;
      state_.OnDisconnected(now_ns, &actions_);
    }
    Perform(now_ns);
  }
}

bool SourceSession::ReceiveLive(int64_t now_ns) {
  size_t bytes = 0;
  for (size_t i = 0; i < kTurnMessages && bytes < kTurnBytes; ++i) {
    const ZmqReceive received = live_.Receive(kMaxFrames, &frames_);
    if (received == ZmqReceive::kNone || received == ZmqReceive::kError) return false;
    ++received_;
    published_ = true;
    const std::optional<uint64_t> number =
        received == ZmqReceive::kMessage && frames_.size() == 3 ? NumberIn(frames_[1]) : std::nullopt;
    if (!number || *number == kReplayEndMark) {
      ++malformed_;
      continue;
    }
    bytes += frames_[2].size();
    state_.OnBatch(*number, Payload(frames_[2].begin(), frames_[2].end()), now_ns, &actions_);
    Perform(now_ns);
  }
  return true;
}

// The number is the last frame but one, and the payload the last: in front of them may be a topic.
bool SourceSession::ReceiveReplay(int64_t now_ns) {
  size_t bytes = 0;
  for (size_t i = 0; i < kTurnMessages && bytes < kTurnBytes; ++i) {
    if (!replay_) return false;
    const ZmqReceive received = replay_->Receive(kMaxFrames, &frames_);
    if (received == ZmqReceive::kNone || received == ZmqReceive::kError) return false;
    const size_t count = frames_.size();
    const std::optional<uint64_t> number =
        received == ZmqReceive::kMessage && count >= 2 ? NumberIn(frames_[count - 2]) : std::nullopt;
    if (!number) {
      ++malformed_;
      continue;
    }
    const std::string& payload = frames_[count - 1];
    bytes += payload.size();
    if (*number == kReplayEndMark || payload.empty()) {
      state_.OnReplayEnd(now_ns, &actions_);
    } else {
      ++received_;
      published_ = true;
      state_.OnReplayBatch(*number, Payload(payload.begin(), payload.end()), now_ns, &actions_);
    }
    Perform(now_ns);
  }
  return true;
}

void SourceSession::Tick(int64_t now_ns) {
  state_.OnTick(now_ns, &actions_);
  Perform(now_ns);
}

void SourceSession::Audit(int64_t now_ns) {
  if (state_.holding() || !audit_.IsDue(now_ns)) return;
  const auto rank = source_.any_rank ? std::nullopt : std::optional(source_.rank);
  usable_blocks_ = blocks_.GpuBlocksOf(source_.worker, rank);
  if (audit_.Check(applier_.known_gpu_blocks(), usable_blocks_, state_.gaps(), now_ns))
    state_.Reset(IncarnationCause::kAudit, now_ns, &actions_);
  Perform(now_ns);
}

void SourceSession::ReportOutage(int64_t now_ns) {
  state_.OnEvidenceOfRestart(now_ns, &actions_);
  Perform(now_ns);
}

void SourceSession::Resync(int64_t now_ns) {
  state_.Reset(IncarnationCause::kReset, now_ns, &actions_);
  Perform(now_ns);
}

void SourceSession::StartReplay(int64_t now_ns) {
  const uint64_t from = *replay_from_;
  replay_from_.reset();
  StatusOr<ZmqSocket> socket = ZmqSocket::Open(context_, ZmqSocketType::kDealer, OptionsFor(source_));
  if (socket.ok() && socket->Connect(source_.replay_endpoint).ok()) {
    std::string number(8, '\0');
    for (size_t i = 0; i < number.size(); ++i) number[i] = static_cast<char>(from >> (56 - 8 * i));
    const std::array<std::string_view, 2> request = {std::string_view(), number};
    // libzmq keeps it until it has connected.
    socket->Send(request);
    replay_ = *std::move(socket);
  }
  // If it could not be sent, the machine's deadline for the first response ends the attempt.
  state_.OnReplayStarted(now_ns);
}

void SourceSession::Perform(int64_t now_ns) {
  // What is carried out may add actions.
  for (size_t i = 0; i < actions_.size(); ++i) {
    SourceAction action = std::move(actions_[i]);
    switch (action.kind) {
      case SourceAction::Kind::kApply:
        Apply(action, now_ns);
        break;
      case SourceAction::Kind::kNewIncarnation:
        applier_.NewIncarnation();
        mismatch_ = false;
        events_ = 0;
        break;
      case SourceAction::Kind::kStartReplay:
        replay_.reset();
        replay_from_ = action.number;
        break;
      case SourceAction::Kind::kStopReplay:
        replay_.reset();
        replay_from_.reset();
        break;
    }
  }
  actions_.clear();
  if (trust() != last_trust_) {
    last_trust_ = trust();
    trust_since_ns_ = now_ns;
  }
}

void SourceSession::Apply(const SourceAction& action, int64_t now_ns) {
  if (!DecodeKvBatch(action.payload, &batch_)) {
    ++malformed_;
    state_.OnMalformed(action.number, action.incarnation, now_ns, &actions_);
    return;
  }
  events_ += batch_.events.size() + batch_.dropped[0] + batch_.dropped[1];
  for (size_t drop = 0; drop < decoder_dropped_.size(); ++drop)
    decoder_dropped_[drop] += batch_.dropped[drop];
  if (batch_.rank && !source_.any_rank && *batch_.rank != source_.rank) {
    ++wrong_rank_;
    wrong_rank_events_ += batch_.events.size();
    return CheckUsability();
  }
  if (batch_.seconds > 0) lag_seconds_ = UnixSeconds() - batch_.seconds;
  const EventApplier::Result result = applier_.Apply(batch_, now_ns);
  if (result.cleared) state_.OnCleared(action.number, action.incarnation);
  if (result.contradiction && action.incarnation == state_.incarnation())
    state_.Reset(IncarnationCause::kContradiction, now_ns, &actions_);
  CheckUsability();
  if (batch_.tokens.capacity() > kKeptTokens) batch_ = KvBatch();
}

// What is left out on purpose, such as groups without full attention, does not count.
void SourceSession::CheckUsability() {
  uint64_t unusable = wrong_rank_events_;
  for (const uint64_t count : decoder_dropped_) unusable += count;
  for (const KvEventDrop drop :
       {KvEventDrop::kUnknownMedium, KvEventDrop::kBlockSize, KvEventDrop::kShape, KvEventDrop::kNamespace,
        KvEventDrop::kOrphanLimit, KvEventDrop::kFull, KvEventDrop::kUnknownWorker})
    unusable += applier_.figures().dropped[static_cast<size_t>(drop)];
  // Nothing was of use yet, and something was of none.
  useless_ = applier_.figures().stored_blocks == 0 && unusable > 0;
  if (events_ < kCheckedEvents) return;
  mismatch_ = 2 * (unusable - checked_unusable_) > events_;
  checked_unusable_ = unusable;
  events_ = 0;
}

KvSourceStatus SourceSession::Status(int64_t now_ns) const {
  const SourceState::Counts& counts = state_.counts();
  const EventApplier::Figures& figures = applier_.figures();
  KvSourceStatus status{
      .source = source_,
      .trust = trust(),
      .trust_seconds =
          trust_since_ns_ == 0 ? 0 : static_cast<double>(now_ns - trust_since_ns_) / kNanosPerSecond,
      .connected = connected_,
      .reconnects = connections_ > 0 ? connections_ - 1 : 0,
      .received_batches = received_,
      .applied_batches = counts.applied,
      .lost_batches = counts.lost,
      .lag_seconds = lag_seconds_,
      .next_number = state_.next_number(),
      .incarnation = state_.incarnation(),
      .held_bytes = state_.held_bytes(),
      .block_size = applier_.engine_block_size(),
      .coverage = usable_blocks_ == 0 ? 0
                                      : static_cast<double>(applier_.known_gpu_blocks()) /
                                            static_cast<double>(usable_blocks_),
      .stored_blocks = figures.stored_blocks,
      .removed_blocks = figures.removed_blocks,
      .unknown_removed_blocks = figures.unknown_removed,
      .blocks = applier_.TierCounts(),
      .orphan_blocks = applier_.orphan_blocks(),
      .bytes = applier_.bytes()};
  const auto put = [](KvSourceStatus::Counts* to, std::string_view label, uint64_t count) {
    if (count != 0) to->emplace_back(label, count);
  };
  put(&status.replays, "ok", counts.replays_ok);
  put(&status.replays, "incomplete", counts.replays_incomplete);
  put(&status.replays, "timeout", counts.replays_timed_out);
  put(&status.replays, "abandoned", counts.replays_abandoned);
  for (size_t cause = 0; cause < counts.incarnations.size(); ++cause)
    put(&status.incarnations, IncarnationCauseName(static_cast<IncarnationCause>(cause)),
        counts.incarnations[cause]);
  put(&status.dropped, "duplicate", counts.duplicates);
  put(&status.dropped, "malformed_batch", malformed_);
  put(&status.dropped, "wrong_rank", wrong_rank_);
  for (size_t drop = 0; drop < decoder_dropped_.size(); ++drop)
    put(&status.dropped, KvDropName(static_cast<KvDrop>(drop)), decoder_dropped_[drop]);
  for (size_t drop = 0; drop < figures.dropped.size(); ++drop)
    put(&status.dropped, KvEventDropName(static_cast<KvEventDrop>(drop)), figures.dropped[drop]);
  return status;
}

KvTrust SourceSession::trust() const {
  if (mismatch_ || useless_) return KvTrust::kMismatch;
  const KvTrust trust = audit_.Limit(state_.trust(), state_.gaps());
  // What it holds now is not known any more.
  return gone_ && IsComplete(trust) ? KvTrust::kPartial : trust;
}

}  // namespace vllm_router
