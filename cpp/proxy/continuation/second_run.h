// SecondRun: a run of a request at another worker, beside the one that goes on, as far as it has to be read to tell whether
// it says what the client has.
//
//   SecondRun second(request, thread);
//   co_await second.Begin(failed, worker, sent_ns)     true: its response has begun
//   second.Compare(delivered);                         with what the client has now; again after that has grown
//   while (second.state() == SecondRun::State::kBehind) got = co_await second.Read(idle_ms);
//   second.TakeAttempts()                              their response is as if nothing of it had been read
//
// Nothing that comes is taken out of the response: it waits in front of the relay that is to follow, at most kMostBytes of
// it, which count in --continue-memory-mb. Ends with Drop() or TakeAttempts(). One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "continuation/event_gate.h"
#include "continuation/rerun_verifier.h"
#include "http/body_reader.h"
#include "net/task.h"
#include "proxy/continuation/rerun_attempts.h"

namespace vllm_router {

class DeliveredText;
struct ThreadContinuation;

// The worker drains, is unhealthy, or has been removed.
bool IsLeaving(IoThread& thread, const Worker& worker);

class SecondRun {
 public:
  static constexpr uint64_t kMostBytes = uint64_t{4} << 20;

  enum class State : uint8_t {
    kBehind,  // of what the client has; so far nothing differs
    kCaughtUp,
    kDiffers,
    kShort,   // it has ended before that place
    kFailed,  // its worker says so
  };
  enum class Got : uint8_t {
    kMore,
    kLost,       // its connection ended early, or its framing broke
    kSilent,     // nothing came
    kTooMuch,    // kMostBytes, or no memory
    kLeaving,    // its worker drains, is unhealthy, or has been removed
    kCancelled,  // or Interrupt()
  };

  // Both outlive it.
  SecondRun(Request& request, ThreadContinuation& thread);
  ~SecondRun();
  SecondRun(const SecondRun&) = delete;
  SecondRun& operator=(const SecondRun&) = delete;

  // As RerunAttempts::RunAgain().
  Task<bool> Begin(const FailedAttempt& failed, std::shared_ptr<Worker> worker, int64_t sent_ns);
  bool begun() const { return begun_; }
  // As of its worker. REQUIRES: begun().
  bool IsLeaving() const;
  // REQUIRES: delivered.ok(); Begin() was true.
  void Compare(const DeliveredText& delivered);
  State state() const;
  // Waits for more, which is compared, at most so long; 0: as long as it takes. One waiter.
  Task<Got> Read(int64_t idle_ms);
  void Interrupt();
  void Cancel();

  RerunAttempts& attempts() { return *attempts_; }
  std::unique_ptr<RerunAttempts> TakeAttempts() { return std::move(attempts_); }
  // The first run goes on, or has ended. `lost`: the worker was, with this run.
  Task<void> Drop(bool lost);

 private:
  void Feed();
  Got Take();
  bool TakeMemory();

  Request& request_;
  ThreadContinuation& thread_;
  std::unique_ptr<RerunAttempts> attempts_;
  BodyReader reader_;
  size_t fed_ = 0;  // of what is there of the response
  EventGate gate_;
  std::optional<RerunVerifier> verifier_;
  uint64_t memory_bytes_ = 0;
  bool begun_ = false;
  bool has_event_ = false;
  bool is_broken_ = false;  // the framing
  bool is_cancelled_ = false;
};

}  // namespace vllm_router
