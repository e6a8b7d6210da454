// SourceState: the sequence of one source of KV events (one data-parallel rank of one worker): what to
// apply, what is missing and to be replayed, when the engine restarted, and how far to trust what is known.
//
//   live 41 ───────▶ apply                     a gap: later batches are held,
//   live 43 ───────▶ hold, replay from 42      the missing ones replayed,
//   replay 42, 43 ─▶ apply                     then the held ones applied in order
//   replay end ────▶ 43 held: duplicate
//
//   live number   == next   apply
//                  > next   gap: replay; without a replay endpoint the missing ones are lost
//                 >> next   beyond kMaxLost: a restart, since no engine gets so far ahead; it counts as no loss
//                  < next   duplicate if one of the last 64 batches has this number and digest, or if it is
//                           older than those and a replay ended less than 10 s ago; else a restart
//   first contact           replay from 0; without a replay endpoint the first live batch begins
//   reconnect               replay from next - 1, since an engine that restarts fast may reach our number:
//                             the digest we have    same engine; the rest closes any gap
//                             another digest, a lower number, the end mark alone        restart
//                             a higher number       restart if there is evidence of it, else partial
//                           without a replay endpoint, after an outage over 2 s: as a higher number
//
// A restart is a new incarnation: what is known is dropped, and first contact follows. A replay that fails
// (three attempts without a response for 2 s, 30 s in all, a hole that two more rounds leave open, more held
// than allowed) leaves the source partial; a hole that opened meanwhile is a gap of its own. Another one, from
// 0, follows after 10 s, doubling to 300 s: old batches may not be applied after newer ones, so if the engine's
// buffer reaches back as far as what was applied, a new incarnation is built from it; if not, there is nothing
// more to gain.
//
// Whatever the peer sends, work is bounded. New incarnations and replays share an allowance of 4, refilled
// at one per second: more than an engine that needs seconds to start can use, while numbers that jump up
// and down would otherwise discard the source's blocks with each batch. Beyond it live batches are held.
//
// trust(): kWaiting until the first replay of an incarnation ended. Then kExact if every batch since the
// engine started or was cleared was applied, or is being replayed at this moment; else kPartial.
//
// Cost: of a batch in order its XXH3-64 digest, and no copy. No clock, socket or thread of its own. Not
// thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <optional>
#include <string_view>
#include <vector>

#include "index/kv_trust.h"

namespace vllm_router {

using Payload = std::vector<uint8_t>;

// The number of a replay's end mark; never a batch's.
inline constexpr uint64_t kReplayEndMark = std::numeric_limits<uint64_t>::max();

// Batches that may be missing between two numbers of one engine: an hour of 290 a second, which is more than an engine
// steps. Numbers come from outside, so a larger jump tells of another engine, or of a forger, and of no loss.
inline constexpr uint64_t kMaxLost = 1 << 20;

// What told that the engine's cache is another one than before, or that what is known of it is wrong.
enum class IncarnationCause : uint8_t {
  kSequence,       // a number below the next one, or too far above it
  kDigest,         // another batch under the number of the last one
  kEndMark,        // the last batch is not in the engine's buffer, nor any later one
  kEvidence,       // the worker was seen to restart
  kAudit,          // more blocks are known than the cache has
  kContradiction,  // responses contradict what is known
  kReset,          // an operator, or a later replay that reaches further back
};
inline constexpr int kIncarnationCauseCount = 7;
std::string_view IncarnationCauseName(IncarnationCause cause);

struct SourceAction {
  enum class Kind : uint8_t {
    kApply,           // decode `payload` and apply it
    kNewIncarnation,  // drop what is known of the source, because of `cause`
    kStartReplay,     // close the replay socket if one is open; on a new one request all from `number` on
    kStopReplay,      // close the replay socket
  };

  Kind kind;
  uint64_t number = 0;
  uint32_t incarnation = 0;
  IncarnationCause cause{};
  Payload payload;
};
// Functions append to it. Execute in order; OnCleared() and OnMalformed() may be called in between, and
// append too.
using SourceActions = std::vector<SourceAction>;

struct SourceStateOptions {
  bool has_replay = false;
  size_t max_held_batches = 4096;
  size_t max_held_bytes = size_t{64} << 20;
};

class SourceState {
 public:
  struct Counts {  // they saturate
    uint64_t applied = 0;
    uint64_t duplicates = 0;
    uint64_t lost = 0;       // numbers that were passed over, or whose batch was malformed
    uint64_t discarded = 0;  // received, and neither applied nor a duplicate: a replay may still bring them
    uint64_t replays_started = 0;  // each ends as one of the following
    uint64_t replays_ok = 0;
    uint64_t replays_incomplete = 0;  // the engine no longer has what was requested
    uint64_t replays_timed_out = 0;
    uint64_t replays_abandoned = 0;  // too much was held, the connection broke, or a reset
    std::array<uint64_t, kIncarnationCauseCount> incarnations{};
  };

  explicit SourceState(const SourceStateOptions& options) : options_(options) {}

  void OnConnected(int64_t now_ns, SourceActions* actions);  // also a reconnect
  void OnDisconnected(int64_t now_ns, SourceActions* actions);
  void OnBatch(uint64_t number, Payload payload, int64_t now_ns, SourceActions* actions);  // live
  // The socket of the last kStartReplay was opened: its deadlines begin. Until then there is none, since
  // the number of parallel replays is limited.
  void OnReplayStarted(int64_t now_ns);
  // Ignored while no replay runs. An empty payload is an end mark too.
  void OnReplayBatch(uint64_t number, Payload payload, int64_t now_ns, SourceActions* actions);
  void OnReplayEnd(int64_t now_ns, SourceActions* actions);
  void OnTick(int64_t now_ns, SourceActions* actions);
  int64_t next_tick_ns() const;  // INT64_MAX: none
  // The worker's HTTP port refused or its health check failed during an outage, a counter went back.
  void OnEvidenceOfRestart(int64_t now_ns, SourceActions* actions);
  // The applied batch dropped all blocks: nothing of before matters.
  void OnCleared(uint64_t number, uint32_t incarnation);
  // The applied batch cannot be decoded: it is requested once more, or lost.
  void OnMalformed(uint64_t number, uint32_t incarnation, int64_t now_ns, SourceActions* actions);
  // Begins a new incarnation.
  void Reset(IncarnationCause cause, int64_t now_ns, SourceActions* actions);

  KvTrust trust() const;                             // kWaiting, kExact or kPartial
  bool holding() const { return job_.has_value(); }  // live batches wait
  size_t held_batches() const { return held_.size(); }
  size_t held_bytes() const { return held_bytes_; }
  uint64_t next_number() const { return next_; }
  uint32_t incarnation() const { return incarnation_; }
  // Grows when batches may be missing that were not before, and with each incarnation.
  uint64_t gaps() const { return gaps_; }
  const Counts& counts() const { return counts_; }

 private:
  // What the first response to a replay decides.
  enum class Purpose : uint8_t {
    kFill,     // nothing: from next on
    kVerify,   // if the engine is the one we know: from next - 1 on
    kRebuild,  // if its buffer reaches back far enough: from 0 on
    kRestart,  // no replay: a new incarnation that waits for the allowance
  };
  enum class Phase : uint8_t { kDelayed, kRequested, kRunning };
  enum class Result : uint8_t { kOk, kIncomplete, kTimedOut, kAbandoned };

  // Why live batches are held.
  struct Job {
    Purpose purpose;
    Phase phase = Phase::kDelayed;
    bool counted = false;     // as started
    bool incomplete = false;  // a response showed a hole
    int attempts = 1;
    int rounds = 0;
    uint64_t next = 0;         // next_ at the last request
    IncarnationCause cause{};  // of kRestart
    int64_t due_ns = 0;        // kDelayed: begins; kRunning: next response
    int64_t started_ns = 0;
    int64_t left_ns;  // of the time for all attempts and rounds
  };
  struct Batch {
    uint64_t number;
    Payload payload;
  };
  struct Digest {
    uint64_t number;
    uint64_t digest;
  };
  static constexpr size_t kRing = 64;

  // Of batches in order.
  void Apply(uint64_t number, Payload payload, SourceActions* actions);
  void PassOver(uint64_t number);        // what is missing before `number` is lost
  void MarkIncomplete(uint64_t number);  // something may be missing before `number`
  const Digest* Find(uint64_t number) const;
  bool IsDuplicate(const Batch& batch, int64_t now_ns) const;

  // False: it must be held, since a job began.
  bool ProcessLive(Batch* batch, int64_t now_ns, SourceActions* actions);
  void Hold(Batch batch, int64_t now_ns, SourceActions* actions);
  void DiscardHeld();
  // Processes what is held until a job begins. False: stopped at a hole.
  bool Drain(bool stop_at_hole, int64_t now_ns, SourceActions* actions);

  bool TakeAllowance(int64_t now_ns);
  int64_t AllowanceReady() const;
  void StartJob(Purpose purpose, int64_t now_ns, SourceActions* actions);
  void Request(SourceActions* actions);
  void Record(Result result);
  void StopJob(Result result, SourceActions* actions);  // it has not ended by itself
  void EndJob(int64_t now_ns, SourceActions* actions);  // with the end mark
  void GiveUp(Result result, int64_t now_ns, SourceActions* actions);
  bool VerifyIncarnation(const Batch& batch, int64_t now_ns, SourceActions* actions);

  void Restart(IncarnationCause cause, int64_t now_ns, SourceActions* actions);
  void BeginIncarnation(IncarnationCause cause, SourceActions* actions);

  const SourceStateOptions options_;
  Counts counts_;

  // Of the incarnation.
  uint32_t incarnation_ = 0;
  uint64_t next_ = 0;        // number not yet applied
  bool first_done_ = false;  // its first replay ended, or its first batch was applied
  bool complete_ = true;
  uint64_t gaps_ = 0;                       // ever
  uint64_t contiguous_from_ = 0;            // nothing is missing from here to next_
  uint64_t history_from_ = kReplayEndMark;  // first batch applied, or the last clear
  std::optional<uint64_t> requested_again_;
  std::array<Digest, kRing> ring_{};
  size_t ring_count_ = 0;  // ever written

  bool connected_ = false;
  int64_t disconnected_ns_ = 0;
  bool evidence_ = false;
  bool doubt_ = false;  // without a replay endpoint: the next live batch decides

  std::optional<Job> job_;
  std::deque<Batch> held_;
  size_t held_bytes_ = 0;
  std::optional<int64_t> replay_ended_ns_;

  bool retry_ = false;  // a replay failed
  int64_t backoff_until_ns_ = std::numeric_limits<int64_t>::min();
  int64_t backoff_ns_ = 0;
  int64_t allowance_ns_ = 0;  // when it is full again
};

}  // namespace vllm_router
