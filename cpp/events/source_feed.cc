#include "events/source_feed.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/time_units.h"

namespace vllm_router {
namespace {

constexpr size_t kKeptTokens = 256 * 1024;  // room of a batch that is kept for the next one

constexpr double kMaxLag = 1e9;  // seconds; engines may tell any time, and infinity

}  // namespace

SourceFeed::SourceFeed(KvSource source, ReportedBlocks* blocks, const SourceStateOptions& options)
    : source_(std::move(source)),
      blocks_(*blocks),
      state_(options),
      applier_(blocks, source_.worker, {.model = source_.model}) {}

void SourceFeed::OnConnected(int64_t now_ns) {
  connected_ = true;
  gone_ = false;
  ++connections_;
  state_.OnConnected(now_ns, &actions_);
  Perform(now_ns);
}

void SourceFeed::OnDisconnected(int64_t now_ns) {
  connected_ = false;
  state_.OnDisconnected(now_ns, &actions_);
  Perform(now_ns);
}

void SourceFeed::OnMalformedMessage() {
  ++received_;
  ++malformed_;
  published_ = true;
}

void SourceFeed::OnBatch(uint64_t number, std::string_view payload, int64_t now_ns) {
  if (number == kReplayEndMark) return OnMalformedMessage();
  ++received_;
  published_ = true;
  state_.OnBatch(number, Payload(payload.begin(), payload.end()), now_ns, &actions_);
  Perform(now_ns);
}

void SourceFeed::OnReplayBatch(uint64_t number, std::string_view payload, int64_t now_ns) {
  if (number == kReplayEndMark || payload.empty()) {
    state_.OnReplayEnd(now_ns, &actions_);
  } else {
    ++received_;
    published_ = true;
    state_.OnReplayBatch(number, Payload(payload.begin(), payload.end()), now_ns, &actions_);
  }
  Perform(now_ns);
}

void SourceFeed::OnTick(int64_t now_ns) {
  state_.OnTick(now_ns, &actions_);
  Perform(now_ns);
}

void SourceFeed::OnReplayStarted(int64_t now_ns) {
  replay_due_.reset();
  replaying_ = true;
  state_.OnReplayStarted(now_ns);
}

void SourceFeed::Audit(int64_t now_ns) {
  if (!audit_.IsDue(now_ns)) return;
  applier_.DropExpired(now_ns);
  if (state_.holding()) return;
  const auto rank = source_.any_rank ? std::nullopt : std::optional(source_.rank);
  usable_blocks_ = blocks_.GpuBlocksOf(source_.worker, rank);
  if (audit_.Check(applier_.known_gpu_blocks(), usable_blocks_, state_.gaps(), now_ns))
    state_.Reset(IncarnationCause::kAudit, now_ns, &actions_);
  Perform(now_ns);
}

void SourceFeed::ReportOutage(int64_t now_ns) {
  state_.OnEvidenceOfRestart(now_ns, &actions_);
  Perform(now_ns);
}

void SourceFeed::Resync(int64_t now_ns) {
  state_.Reset(IncarnationCause::kReset, now_ns, &actions_);
  Perform(now_ns);
}

void SourceFeed::Perform(int64_t now_ns) {
  // What is carried out may add actions.
  for (size_t i = 0; i < actions_.size(); ++i) {
    const SourceAction action = std::move(actions_[i]);
    switch (action.kind) {
      case SourceAction::Kind::kApply:
        Apply(action, now_ns);
        break;
      case SourceAction::Kind::kNewIncarnation:
        applier_.NewIncarnation();
        event_counts_.Restart();
        break;
      case SourceAction::Kind::kStartReplay:
        replaying_ = false;
        replay_due_ = action.number;
        break;
      case SourceAction::Kind::kStopReplay:
        replaying_ = false;
        replay_due_.reset();
        break;
    }
  }
  actions_.clear();
  if (trust() != last_trust_) {
    last_trust_ = trust();
    trust_since_ns_ = now_ns;
  }
}

void SourceFeed::Apply(const SourceAction& action, int64_t now_ns) {
  if (!DecodeKvBatch(action.payload, &batch_)) {
    ++malformed_;
    state_.OnMalformed(action.number, action.incarnation, now_ns, &actions_);
    return;
  }
  event_counts_.AddDecoded(batch_, batch_.events.size() + batch_.dropped[0] + batch_.dropped[1]);
  if (batch_.rank && !source_.any_rank && *batch_.rank != source_.rank) {
    ++wrong_rank_;
    event_counts_.AddUnusable(batch_.events.size());
    return event_counts_.Check(applier_);
  }
  if (batch_.seconds > 0) lag_seconds_ = std::clamp(UnixSeconds() - batch_.seconds, -kMaxLag, kMaxLag);
  const EventApplier::Result result = applier_.Apply(batch_, now_ns);
  if (result.cleared) state_.OnCleared(action.number, action.incarnation);
  if (result.contradiction && action.incarnation == state_.incarnation())
    state_.Reset(IncarnationCause::kContradiction, now_ns, &actions_);
  event_counts_.Check(applier_);
  if (batch_.tokens.capacity() > kKeptTokens) batch_ = KvBatch();
}

KvSourceStatus SourceFeed::Status(int64_t now_ns) const {
  const SourceState::Counts& counts = state_.counts();
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
                                            static_cast<double>(usable_blocks_)};
  AddCount(&status.replays, "ok", counts.replays_ok);
  AddCount(&status.replays, "incomplete", counts.replays_incomplete);
  AddCount(&status.replays, "timeout", counts.replays_timed_out);
  AddCount(&status.replays, "abandoned", counts.replays_abandoned);
  for (size_t cause = 0; cause < counts.incarnations.size(); ++cause)
    AddCount(
        &status.incarnations, IncarnationCauseName(static_cast<IncarnationCause>(cause)),
        counts.incarnations[cause]);
  AddCount(&status.dropped, "duplicate", counts.duplicates);
  AddCount(&status.dropped, "malformed_batch", malformed_);
  AddCount(&status.dropped, "wrong_rank", wrong_rank_);
  event_counts_.AddTo(applier_, &status);
  return status;
}

KvTrust SourceFeed::trust() const {
  if (!event_counts_.usable()) return KvTrust::kMismatch;
  const KvTrust trust = audit_.Limit(state_.trust(), state_.gaps());
  // What it holds now is not known any more.
  return gone_ && IsComplete(trust) ? KvTrust::kPartial : trust;
}

}  // namespace vllm_router
