// HandOver: a stream that goes on at another worker while its own still has it, since that drains or stalls. It makes before
// it breaks:
//
//   worker ─▶ Relay ─▶ PausableSink ─▶ ContinuationSink ─▶ client       goes on meanwhile
//   other  ─▶ SecondRun                                                 is compared with what the client has
//
//   drain    equal ─▶ the first stands still, the rest is compared ─▶ equal ─▶ took_over()
//   stall    equal ─▶ took_over(); the first speaks before ─▶ the second is dropped
//
// Taking over closes the first worker's connection, which ends its relay; ContinuedStream then relays the second run. If
// that differs, fails, or finds no worker, the first goes on as if nothing had been, and so a drain or a false alarm costs
// no stream. If the first ends or is lost meanwhile: FirstEnded(). What follows what is the ContinueMachine's.
//
// There is one at a time for a stream, and after one that came to nothing a pause. Belongs to a ContinuedStream. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "continuation/continue_machine.h"
#include "net/task.h"
#include "net/timer_wheel.h"
#include "proxy/continuation/pausable_sink.h"
#include "proxy/continuation/second_run.h"
#include "proxy/continuation/stream_cut.h"

namespace vllm_router {

class Attempts;
class ClientWait;
class ContinuationSink;
struct Request;
struct ThreadContinuation;

class HandOver {
 public:
  // All outlive it.
  HandOver(Request& request, ThreadContinuation& thread, ContinueMachine& machine, ClientWait& wait)
      : request_(request), thread_(thread), machine_(machine), wait_(wait) {}

  // What relays write to in front of `sink`. Once.
  BodySink& BeginRelays(ContinuationSink& sink);
  // The stream should go elsewhere. No effect without a worker for it now, or while one has been begun.
  void Begin(StreamCut why);

  bool under_way() const { return running_; }
  bool took_over() const { return took_over_; }
  StreamCut why() const { return why_; }
  // Of the second run; null: there is none.
  Attempts* attempts() { return second_ != nullptr && !took_over_ ? &second_->attempts() : nullptr; }

  // The first worker's stream has ended like this, and its relay is over, or it is about to be: LetFirstEnd(). True: the
  // second run took over.
  Task<bool> FirstEnded(ContinueEventType how);
  void LetFirstEnd();
  // After took_over(): a relay of it may begin. Once.
  std::unique_ptr<RerunAttempts> TakeAttempts();
  // Another relay begins.
  void FollowNext();
  // No relay follows.
  Task<void> End();

 private:
  bool MayBegin() const;
  bool HasRoomElsewhere() const;
  Task<void> Run();
  Task<void> RunBeside();
  void Compare();
  void StepByState();
  void Step(ContinueEventType type);
  void Do(ContinueAction action);
  void TakeOver();
  void Count(ContinueEventType last);
  void ArmStall();
  static void OnFirstSpoke(void* self);
  static void OnStalled(void* self);

  Request& request_;
  ThreadContinuation& thread_;
  ContinueMachine& machine_;
  ClientWait& wait_;
  ContinuationSink* sink_ = nullptr;
  std::optional<PausableSink> gate_;
  std::unique_ptr<SecondRun> second_;
  Signal ended_;
  Timer stall_due_;
  int64_t not_before_ns_ = 0;
  StreamCut why_{};
  uint8_t failed_ = 0;
  bool running_ = false;
  bool took_over_ = false;
  bool dropped_ = false;  // the second run is over, or about to be
  bool lost_ = false;     // likewise, with its worker
};

}  // namespace vllm_router
