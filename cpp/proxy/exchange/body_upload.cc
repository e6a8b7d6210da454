#include "proxy/exchange/body_upload.h"

#include <algorithm>
#include <memory>
#include <span>
#include <utility>

#include "base/limits.h"
#include "base/time_units.h"
#include "proxy/api/settings.h"
#include "proxy/exchange/connection.h"
#include "proxy/thread/server_limits.h"

namespace vllm_router {

BodyUpload::BodyUpload(Connection& connection)
    : connection_(connection),
      memory_(connection.thread.limits.body_memory, connection.thread.loop),
      pace_(connection.settings->client_min_body_rate, connection.settings->body_rate_window_ms) {}

// A client that leaves while its body waits for room leaves bytes unread, so its end is watched for.
Task<BodyUpload::End> BodyUpload::TakeMemory(uint64_t bytes, uint64_t need) {
  const BodyBudget::Entry entry = memory_.Grow(bytes, need);
  if (entry != BodyBudget::Entry::kWaiting) {
    co_return entry == BodyBudget::Entry::kHeld ? End::kOk : End::kNoMemory;
  }
  IoThread& thread = connection_.thread;
  thread.limits.slow_bodies.MakeRoom(0);
  connection_.socket.WatchEnd(&BodyUpload::OnClientEnded, this);
  const BodyClaim::End end = co_await memory_.Wait(connection_.settings->queue_timeout_ms);
  connection_.socket.WatchEnd(nullptr, nullptr);
  if (stopped_) co_return End::kStopped;
  if (client_ended_) co_return End::kClientGone;
  co_return end == BodyClaim::End::kHeld ? End::kOk : End::kNoMemory;
}

void BodyUpload::OnClientEnded(void* context) {
  auto* upload = static_cast<BodyUpload*>(context);
  if (upload->connection_.MayStillRead()) return;
  upload->client_ended_ = true;
  upload->memory_.Leave();
}

Task<BodyUpload::End> BodyUpload::Read(Buffer& into, size_t maximum, uint64_t left) {
  Socket& socket = connection_.socket;
  for (;;) {
    const std::span<char> room = into.room().first(std::min(maximum, into.room().size()));
    const IoResult read = socket.TryRead(room);
    if (read.ok()) {
      into.Commit(static_cast<size_t>(read.bytes));
      pace_.Arrived(static_cast<uint64_t>(read.bytes));
      // A client that sends faster than its bytes pass through would never be waited for. Behind the last of them
      // there is nothing to read.
      bytes_since_yield_ += static_cast<size_t>(read.bytes);
      const bool completes = static_cast<uint64_t>(read.bytes) == left;
      if (bytes_since_yield_ < kFairnessBytes || completes) co_return End::kOk;
      bytes_since_yield_ = 0;
      co_await connection_.thread.loop.Yield();
      co_return stopped_ ? End::kStopped : End::kOk;
    }
    if (!read.would_block()) co_return End::kClientGone;
    bytes_since_yield_ = 0;
    const End end = co_await WaitForClient();
    if (end != End::kOk) co_return end;
  }
}

// Waits until bytes can be read, or a limit has passed.
Task<BodyUpload::End> BodyUpload::WaitForClient() {
  IoThread& thread = connection_.thread;
  const int64_t timeout_ns = connection_.settings->client_body_timeout_ms * kNanosPerMs;
  const int64_t began_ns = thread.clock.NowNanos();
  int64_t waited_ns = 0;
  SlowUploads* list = nullptr;  // the list that it is entered in
  std::shared_ptr<SlowUploads::Upload> slow;
  bool readable = false;
  End end = End::kOk;
  do {
    if (slow == nullptr && (list = WhereSlow()) != nullptr) {
      slow = list->Add(thread.loop, &BodyUpload::OnCut, this);
    }
    ArmTimer(timeout_ns - waited_ns);
    readable = co_await connection_.socket.Readable();
    timer_.Disarm();
    const int64_t now_ns = thread.clock.NowNanos() - began_ns;
    pace_.Waited(now_ns - waited_ns);
    waited_ns = now_ns;
    if (stopped_) {
      end = End::kStopped;
    } else if (cut_ || pace_.rate() == BodyPace::Rate::kTooSlow) {
      end = End::kTooSlow;
    } else if (timeout_ns != 0 && !readable && waited_ns >= timeout_ns) {
      end = End::kTimeout;
    }
  } while (std::exchange(timer_fired_, false) && !readable && end == End::kOk);
  if (slow != nullptr) list->Remove(slow);
  if (end == End::kOk && !readable) end = End::kClientGone;
  co_return end;
}

// The list for this upload if it is slow and holds a permit (while it is streamed) or memory. Null: it
// is fast enough, or holds nothing.
SlowUploads* BodyUpload::WhereSlow() const {
  if (pace_.rate() != BodyPace::Rate::kSlow) return nullptr;
  ServerLimits& limits = connection_.thread.limits;
  if (streams_) return &limits.slow_uploads;
  return memory_.held() != 0 ? &limits.slow_bodies : nullptr;
}

// Arms the earlier of the limits on a silent client. `left_ns` counts if there is such a limit.
void BodyUpload::ArmTimer(int64_t left_ns) {
  int64_t ms = pace_.ms_to_next_step();
  if (connection_.settings->client_body_timeout_ms != 0) {
    const int64_t left_ms = std::max<int64_t>(1, (left_ns + kNanosPerMs - 1) / kNanosPerMs);
    ms = ms == 0 ? left_ms : std::min(ms, left_ms);
  }
  timer_.Arm(connection_.thread.loop.timers(), ms, &BodyUpload::OnTimer, this);
}

void BodyUpload::Stop() {
  stopped_ = true;
  memory_.Leave();
  connection_.socket.InterruptRead();
}

void BodyUpload::OnTimer(void* context) {
  auto* upload = static_cast<BodyUpload*>(context);
  upload->timer_fired_ = true;
  upload->connection_.socket.InterruptRead();
}

void BodyUpload::OnCut(void* context) {
  auto* upload = static_cast<BodyUpload*>(context);
  upload->cut_ = true;
  upload->connection_.socket.InterruptRead();
}

void BodyUpload::Finish() {
  memory_.Return();
  if (!cut_) return;
  ServerLimits& limits = connection_.thread.limits;
  (streams_ ? limits.slow_uploads : limits.slow_bodies).CutEnded();
}

}  // namespace vllm_router
