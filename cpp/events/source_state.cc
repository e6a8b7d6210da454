#include "events/source_state.h"

#include <algorithm>
#include <utility>

#include "base/time_units.h"
#include "hashing/hash.h"

namespace vllm_router {

namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
constexpr int64_t kResponseNs = 2 * kNanosPerSecond;
constexpr int64_t kReplayNs = 30 * kNanosPerSecond;
constexpr int kMaxAttempts = 3;
constexpr int kMaxRounds = 2;
constexpr int64_t kLateNs = 10 * kNanosPerSecond;  // after a replay, live batches that it brought too
constexpr int64_t kShortOutageNs = 2 * kNanosPerSecond;
constexpr int64_t kMinBackoffNs = 10 * kNanosPerSecond;
constexpr int64_t kMaxBackoffNs = 300 * kNanosPerSecond;
constexpr int kAllowance = 4;
constexpr int64_t kAllowanceNs = kNanosPerSecond;

uint64_t DigestOf(const Payload& payload) { return Xxh3(payload.data(), payload.size()); }

void Add(uint64_t* counter, uint64_t amount) {
  *counter += std::min(amount, std::numeric_limits<uint64_t>::max() - *counter);
}

}  // namespace

std::string_view IncarnationCauseName(IncarnationCause cause) {
  constexpr std::array<std::string_view, kIncarnationCauseCount> kNames = {
      "sequence", "digest", "end_mark", "evidence", "audit", "contradiction", "reset"};
  return kNames[static_cast<size_t>(cause)];
}

// Batches in order.

void SourceState::Apply(uint64_t number, Payload payload, SourceActions* actions) {
  ring_[ring_count_++ % kRing] = {number, DigestOf(payload)};
  next_ = number + 1;
  history_from_ = std::min(history_from_, number);
  Add(&counts_.applied, 1);
  actions->push_back(
      {.kind = SourceAction::Kind::kApply,
       .number = number,
       .incarnation = incarnation_,
       .payload = std::move(payload)});
}

void SourceState::PassOver(uint64_t number) {
  if (number == next_) return;
  if (number - next_ <= kMaxLost) Add(&counts_.lost, number - next_);
  next_ = number;
  MarkIncomplete(number);
}

void SourceState::MarkIncomplete(uint64_t number) {
  complete_ = false;
  contiguous_from_ = number;
  ++gaps_;
}

const SourceState::Digest* SourceState::Find(uint64_t number) const {
  for (size_t i = 0; i < std::min(ring_count_, kRing); ++i) {  // the newest first
    const Digest& entry = ring_[(ring_count_ - 1 - i) % kRing];
    if (entry.number == number) return &entry;
  }
  return nullptr;
}

bool SourceState::IsDuplicate(const Batch& batch, int64_t now_ns) const {
  const Digest* const known = Find(batch.number);
  if (known != nullptr) return known->digest == DigestOf(batch.payload);
  const bool older =
      ring_count_ == 0 || batch.number < ring_[ring_count_ <= kRing ? 0 : ring_count_ % kRing].number;
  return older && replay_ended_ns_.has_value() && now_ns - *replay_ended_ns_ < kLateNs;
}

// Live batches.

void SourceState::OnBatch(uint64_t number, Payload payload, int64_t now_ns, SourceActions* actions) {
  // Without a connection none can be filled in; the replay after the next connect brings it again.
  const bool too_early =
      options_.has_replay && !connected_ && (job_.has_value() || !first_done_ || number != next_);
  if (number == kReplayEndMark || too_early) {
    Add(&counts_.discarded, 1);
    return;
  }
  Batch batch{number, std::move(payload)};
  if (job_.has_value() || !ProcessLive(&batch, now_ns, actions)) Hold(std::move(batch), now_ns, actions);
}

bool SourceState::ProcessLive(Batch* batch, int64_t now_ns, SourceActions* actions) {
  const uint64_t number = batch->number;
  if (first_done_ && number < next_) {
    if (IsDuplicate(*batch, now_ns)) {
      Add(&counts_.duplicates, 1);
      doubt_ = evidence_ = false;
      return true;
    }
    Restart(IncarnationCause::kSequence, now_ns, actions);
    if (job_.has_value()) return false;
  } else if (first_done_ && next_ != 0 && number - next_ > kMaxLost) {
    Restart(IncarnationCause::kSequence, now_ns, actions);
    if (job_.has_value()) return false;
  } else if (first_done_ && doubt_) {
    doubt_ = false;
    if (evidence_) {
      Restart(IncarnationCause::kEvidence, now_ns, actions);
      if (job_.has_value()) return false;
    } else {
      MarkIncomplete(number);
    }
  }
  if (number > next_ && options_.has_replay && connected_ && now_ns >= backoff_until_ns_) {
    StartJob(Purpose::kFill, now_ns, actions);
    return false;
  }
  PassOver(number);
  first_done_ = true;
  Apply(number, std::move(batch->payload), actions);
  return true;
}

void SourceState::Hold(Batch batch, int64_t now_ns, SourceActions* actions) {
  held_bytes_ += batch.payload.size();
  held_.push_back(std::move(batch));
  if (held_.size() <= options_.max_held_batches && held_bytes_ <= options_.max_held_bytes) return;
  if (job_->purpose == Purpose::kRestart) {
    DiscardHeld();
  } else {
    GiveUp(Result::kAbandoned, now_ns, actions);
  }
}

void SourceState::DiscardHeld() {
  Add(&counts_.discarded, held_.size());
  held_.clear();
  held_bytes_ = 0;
}

bool SourceState::Drain(bool stop_at_hole, int64_t now_ns, SourceActions* actions) {
  while (!held_.empty() && !job_.has_value()) {
    if (stop_at_hole && held_.front().number > next_) return false;
    Batch batch = std::move(held_.front());
    const size_t bytes = batch.payload.size();
    held_.pop_front();
    if (ProcessLive(&batch, now_ns, actions)) {
      held_bytes_ -= bytes;
    } else {
      held_.push_front(std::move(batch));
    }
  }
  return true;
}

// Connections.

void SourceState::OnConnected(int64_t now_ns, SourceActions* actions) {
  if (connected_) OnDisconnected(now_ns, actions);
  connected_ = true;
  backoff_until_ns_ = std::numeric_limits<int64_t>::min();
  if (job_.has_value()) return;  // a restart that waits
  if (!options_.has_replay) {
    doubt_ = doubt_ || (first_done_ && now_ns - disconnected_ns_ > kShortOutageNs);
    return;
  }
  if (next_ != 0) return StartJob(Purpose::kVerify, now_ns, actions);
  first_done_ = false;
  complete_ = true;
  retry_ = false;
  StartJob(Purpose::kFill, now_ns, actions);
}

void SourceState::OnDisconnected(int64_t now_ns, SourceActions* actions) {
  if (!connected_) return;
  connected_ = false;
  disconnected_ns_ = now_ns;
  DiscardHeld();
  if (job_.has_value() && job_->purpose != Purpose::kRestart) StopJob(Result::kAbandoned, actions);
}

void SourceState::OnEvidenceOfRestart(int64_t now_ns, SourceActions* actions) {
  if (next_ == 0) return;  // nothing is known that a restart would change
  evidence_ = true;
  if (!options_.has_replay) {
    doubt_ = true;
  } else if (connected_ && !job_.has_value()) {
    StartJob(Purpose::kVerify, now_ns, actions);
  }
}

// Replays.

bool SourceState::TakeAllowance(int64_t now_ns) {
  if (now_ns < AllowanceReady()) return false;
  allowance_ns_ = std::max(allowance_ns_, now_ns) + kAllowanceNs;
  return true;
}

int64_t SourceState::AllowanceReady() const { return allowance_ns_ - (kAllowance - 1) * kAllowanceNs; }

void SourceState::StartJob(Purpose purpose, int64_t now_ns, SourceActions* actions) {
  job_ = Job{.purpose = purpose, .left_ns = kReplayNs};
  if (TakeAllowance(now_ns)) {
    Request(actions);
  } else {
    job_->due_ns = AllowanceReady();
  }
}

void SourceState::Request(SourceActions* actions) {
  uint64_t from = next_;
  if (job_->purpose == Purpose::kVerify) from = next_ - 1;
  if (job_->purpose == Purpose::kRebuild) from = 0;
  if (!job_->counted) Add(&counts_.replays_started, 1);
  job_->counted = true;
  job_->next = next_;
  job_->phase = Phase::kRequested;
  actions->push_back({.kind = SourceAction::Kind::kStartReplay, .number = from, .incarnation = incarnation_});
}

void SourceState::Record(Result result) {
  if (!job_->counted) return;
  switch (result) {
    case Result::kOk:
      return Add(&counts_.replays_ok, 1);
    case Result::kIncomplete:
      return Add(&counts_.replays_incomplete, 1);
    case Result::kTimedOut:
      return Add(&counts_.replays_timed_out, 1);
    case Result::kAbandoned:
      return Add(&counts_.replays_abandoned, 1);
  }
}

void SourceState::StopJob(Result result, SourceActions* actions) {
  Record(result);
  if (job_->phase != Phase::kDelayed) {
    actions->push_back({.kind = SourceAction::Kind::kStopReplay, .incarnation = incarnation_});
  }
  job_.reset();
}

void SourceState::OnReplayStarted(int64_t now_ns) {
  if (!job_.has_value() || job_->phase != Phase::kRequested) return;
  job_->phase = Phase::kRunning;
  job_->started_ns = now_ns;
  job_->due_ns = now_ns + kResponseNs;
}

void SourceState::OnReplayBatch(uint64_t number, Payload payload, int64_t now_ns, SourceActions* actions) {
  if (number == kReplayEndMark || payload.empty()) return OnReplayEnd(now_ns, actions);
  if (!job_.has_value() || job_->phase != Phase::kRunning) return;
  job_->due_ns = now_ns + kResponseNs;
  Batch batch{number, std::move(payload)};
  if (!VerifyIncarnation(batch, now_ns, actions)) return;
  if (number < next_) {
    Add(&counts_.duplicates, 1);
    return;
  }
  job_->incomplete = job_->incomplete || number > next_;
  PassOver(number);
  Apply(number, std::move(batch.payload), actions);
}

// What the first response of a replay decides. False: the replay is over.
bool SourceState::VerifyIncarnation(const Batch& batch, int64_t now_ns, SourceActions* actions) {
  if (job_->purpose == Purpose::kVerify) {
    const Digest* const known = Find(batch.number);
    if (batch.number < next_ - 1) {
      Restart(IncarnationCause::kSequence, now_ns, actions);
      return false;
    }
    if (batch.number == next_ - 1 && known != nullptr && known->digest != DigestOf(batch.payload)) {
      Restart(IncarnationCause::kDigest, now_ns, actions);
      return false;
    }
    if (batch.number >= next_ || known == nullptr) {
      if (evidence_) {
        Restart(IncarnationCause::kEvidence, now_ns, actions);
        return false;
      }
      job_->incomplete = true;
      MarkIncomplete(next_);
    }
    evidence_ = false;
  } else if (job_->purpose == Purpose::kRebuild) {
    retry_ = false;
    if (batch.number > history_from_) {
      job_->incomplete = true;
      actions->push_back({.kind = SourceAction::Kind::kStopReplay, .incarnation = incarnation_});
      Add(&counts_.discarded, 1);
      EndJob(now_ns, actions);
      return false;
    }
    BeginIncarnation(IncarnationCause::kReset, actions);
  }
  job_->purpose = Purpose::kFill;
  return true;
}

void SourceState::OnReplayEnd(int64_t now_ns, SourceActions* actions) {
  if (!job_.has_value() || job_->phase != Phase::kRunning) return;
  if (job_->purpose == Purpose::kVerify) return Restart(IncarnationCause::kEndMark, now_ns, actions);
  if (job_->purpose == Purpose::kRebuild) {
    retry_ = false;
    if (ring_count_ == 0) complete_ = true;  // nothing was ever published
    job_->incomplete = ring_count_ != 0;
  }
  actions->push_back({.kind = SourceAction::Kind::kStopReplay, .incarnation = incarnation_});
  EndJob(now_ns, actions);
}

// The socket is closed.
void SourceState::EndJob(int64_t now_ns, SourceActions* actions) {
  replay_ended_ns_ = now_ns;
  const bool was_done = std::exchange(first_done_, true);
  Job job = *std::exchange(job_, std::nullopt);
  const bool hole = !Drain(true, now_ns, actions);
  if (hole && (job.rounds < kMaxRounds || next_ <= job.next)) {
    first_done_ = was_done;
    job.left_ns -= now_ns - job.started_ns;
    job.purpose = Purpose::kFill;
    job.phase = Phase::kDelayed;
    job_ = job;
    if (job.rounds == kMaxRounds) return GiveUp(Result::kIncomplete, now_ns, actions);
    ++job_->rounds;
    return Request(actions);
  }
  backoff_ns_ = 0;
  if (!retry_) backoff_until_ns_ = std::numeric_limits<int64_t>::min();
  std::optional<Job> next = std::exchange(job_, std::move(job));
  Record(job_->incomplete ? Result::kIncomplete : Result::kOk);
  job_ = std::move(next);
  if (hole) Drain(false, now_ns, actions);  // it is a gap of its own
  if (evidence_ && options_.has_replay && connected_ && !job_.has_value() && next_ != 0) {
    StartJob(Purpose::kVerify, now_ns, actions);
  }
}

void SourceState::GiveUp(Result result, int64_t now_ns, SourceActions* actions) {
  const bool rebuilt = job_->purpose == Purpose::kRebuild;  // nothing is missing that was not before
  StopJob(result, actions);
  replay_ended_ns_ = now_ns;
  first_done_ = true;
  if (!rebuilt) MarkIncomplete(next_);
  retry_ = true;
  backoff_ns_ = std::clamp(2 * backoff_ns_, kMinBackoffNs, kMaxBackoffNs);
  backoff_until_ns_ = now_ns + backoff_ns_;
  if (std::exchange(evidence_, false)) Restart(IncarnationCause::kEvidence, now_ns, actions);
  Drain(false, now_ns, actions);
}

void SourceState::OnTick(int64_t now_ns, SourceActions* actions) {
  if (now_ns < next_tick_ns()) return;
  if (!job_.has_value()) return StartJob(Purpose::kRebuild, now_ns, actions);
  if (job_->phase == Phase::kRunning) {
    job_->left_ns -= now_ns - job_->started_ns;
    if (job_->left_ns <= 0 || job_->attempts == kMaxAttempts) {
      return GiveUp(Result::kTimedOut, now_ns, actions);
    }
    ++job_->attempts;
    return Request(actions);
  }
  if (job_->purpose != Purpose::kRestart) {
    TakeAllowance(now_ns);
    return Request(actions);
  }
  Restart(job_->cause, now_ns, actions);
  Drain(false, now_ns, actions);
}

int64_t SourceState::next_tick_ns() const {
  if (!job_.has_value()) return retry_ && connected_ ? backoff_until_ns_ : kNever;
  switch (job_->phase) {
    case Phase::kDelayed:
      return job_->due_ns;
    case Phase::kRequested:
      return kNever;
    case Phase::kRunning:
      return std::min(job_->due_ns, job_->started_ns + job_->left_ns);
  }
  return kNever;
}

// Incarnations.

void SourceState::Restart(IncarnationCause cause, int64_t now_ns, SourceActions* actions) {
  const bool stream = cause <= IncarnationCause::kEvidence;  // then a running replay gave its verdict
  if (job_.has_value()) StopJob(stream ? Result::kOk : Result::kAbandoned, actions);
  if (!TakeAllowance(now_ns)) {
    job_ = Job{.purpose = Purpose::kRestart, .cause = cause, .due_ns = AllowanceReady(), .left_ns = 0};
    return;
  }
  BeginIncarnation(cause, actions);
  if (!options_.has_replay || !connected_) return;
  job_ = Job{.purpose = Purpose::kFill, .left_ns = kReplayNs};
  Request(actions);
}

void SourceState::BeginIncarnation(IncarnationCause cause, SourceActions* actions) {
  ++incarnation_;
  ++gaps_;
  Add(&counts_.incarnations[static_cast<size_t>(cause)], 1);
  next_ = 0;
  first_done_ = false;
  complete_ = true;
  contiguous_from_ = 0;
  history_from_ = kReplayEndMark;
  requested_again_.reset();
  ring_count_ = 0;
  evidence_ = doubt_ = retry_ = false;
  replay_ended_ns_.reset();
  actions->push_back(
      {.kind = SourceAction::Kind::kNewIncarnation, .incarnation = incarnation_, .cause = cause});
}

void SourceState::Reset(IncarnationCause cause, int64_t now_ns, SourceActions* actions) {
  Restart(cause, now_ns, actions);
  Drain(false, now_ns, actions);
}

// What the applied batches contained.

void SourceState::OnCleared(uint64_t number, uint32_t incarnation) {
  if (incarnation != incarnation_) return;
  history_from_ = number;
  if (number < contiguous_from_) return;
  complete_ = true;
  retry_ = false;
}

void SourceState::OnMalformed(uint64_t number, uint32_t incarnation, int64_t now_ns, SourceActions* actions) {
  --counts_.applied;
  const bool last = incarnation == incarnation_ && number + 1 == next_;
  if (last && options_.has_replay && connected_ && !job_.has_value() && now_ns >= backoff_until_ns_ &&
      requested_again_ != number) {
    requested_again_ = number;
    next_ = number;
    StartJob(Purpose::kFill, now_ns, actions);
    return;
  }
  Add(&counts_.lost, 1);
  if (incarnation == incarnation_ && number >= contiguous_from_) MarkIncomplete(number + 1);
}

KvTrust SourceState::trust() const {
  if (!first_done_ || (job_.has_value() && job_->purpose == Purpose::kRestart)) return KvTrust::kWaiting;
  return complete_ ? KvTrust::kExact : KvTrust::kPartial;
}

}  // namespace vllm_router
