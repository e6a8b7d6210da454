#include "proxy/exchange/request_body.h"

#include <algorithm>
#include <utility>

#include "base/limits.h"
#include "base/time_units.h"
#include "http/dechunk.h"
#include "proxy/api/settings.h"
#include "proxy/exchange/connection.h"
#include "proxy/thread/server_limits.h"

namespace vllm_router {
RequestBody::RequestBody(
    Connection& connection, BodyFraming framing, uint64_t content_length, size_t head_bytes)
    : connection_(connection),
      reader_(framing, content_length, MessageKind::kRequest),
      framing_(framing),
      content_length_(content_length),
      head_bytes_(head_bytes),
      memory_(connection.thread.limits.body_memory, connection.thread.loop),
      pace_(connection.settings->client_min_body_rate, connection.settings->body_rate_window_ms),
      held_(connection.thread.buffers),
      raw_(connection.thread.buffers) {
  Buffer& in = connection.in;
  const size_t behind = in.size() - head_bytes;
  if (framing == BodyFraming::kLength) {
    in_place_ = std::min<uint64_t>(behind, content_length);
    bytes_ = in_place_;
    Dechunk(reader_, {in.data() + head_bytes, in_place_});
  } else if (framing == BodyFraming::kChunked) {
    in_place_ = behind;  // all of it, for now; Release() puts back what belongs to the next request
    raw_.Append(in.view().substr(head_bytes));
  }
}

std::string_view RequestBody::held() const {
  if (!held_.empty() || framing_ != BodyFraming::kLength) return held_.view();
  return connection_.in.view().substr(head_bytes_, in_place_);
}

void RequestBody::Replace(size_t offset, size_t length, std::string_view text) {
  const std::string_view body = held();
  Buffer edited(connection_.thread.buffers);
  edited.Reserve(body.size() - length + text.size());
  edited.Append(body.substr(0, offset));
  edited.Append(text);
  edited.Append(body.substr(offset + length));
  held_ = std::move(edited);
}

// A client that leaves while its body waits for room leaves bytes unread, so its end is watched for.
Task<RequestBody::End> RequestBody::TakeMemory(uint64_t bytes, uint64_t need) {
  const BodyBudget::Entry entry = memory_.Grow(bytes, need);
  if (entry != BodyBudget::Entry::kWaiting) {
    co_return entry == BodyBudget::Entry::kHeld ? End::kOk : End::kNoMemory;
  }
  IoThread& thread = connection_.thread;
  thread.limits.slow_bodies.MakeRoom(0);
  connection_.socket.WatchEnd(&RequestBody::OnClientEnded, this);
  const BodyClaim::End end = co_await memory_.Wait(connection_.settings->queue_timeout_ms);
  connection_.socket.WatchEnd(nullptr, nullptr);
  if (stopped_) co_return End::kStopped;
  if (client_ended_) co_return End::kClientGone;
  co_return end == BodyClaim::End::kHeld ? End::kOk : End::kNoMemory;
}

void RequestBody::OnClientEnded(void* context) {
  auto* body = static_cast<RequestBody*>(context);
  if (body->connection_.MayStillRead()) return;
  body->client_ended_ = true;
  body->memory_.Leave();
}

// Reads once, waiting for the client if needed. `maximum` limits what is taken from the socket; `left` bytes complete
// the body.
Task<RequestBody::End> RequestBody::ReadMore(Buffer& into, size_t maximum, uint64_t left) {
  Socket& socket = connection_.socket;
  for (;;) {
    const std::span<char> room = into.room().first(std::min(maximum, into.room().size()));
    const IoResult read = socket.TryRead(room);
    if (read.ok()) {
      into.Commit(static_cast<size_t>(read.bytes));
      pace_.Arrived(static_cast<uint64_t>(read.bytes));
      // A client that sends faster than its bytes pass through would never be waited for. Behind the last of them
      // there is nothing to read.
      unshared_ += static_cast<size_t>(read.bytes);
      const bool completes = static_cast<uint64_t>(read.bytes) == left;
      if (unshared_ < kFairnessBytes || completes) co_return End::kOk;
      unshared_ = 0;
      co_await connection_.thread.loop.Yield();
      co_return stopped_ ? End::kStopped : End::kOk;
    }
    if (!read.would_block()) co_return End::kClientGone;
    unshared_ = 0;
    const End end = co_await WaitForClient();
    if (end != End::kOk) co_return end;
  }
}

// Waits until bytes can be read, or a limit has passed.
Task<RequestBody::End> RequestBody::WaitForClient() {
  IoThread& thread = connection_.thread;
  const int64_t patience_ns = connection_.settings->client_body_timeout_ms * kNanosPerMs;
  const int64_t began_ns = thread.clock.NowNanos();
  int64_t waited_ns = 0;
  SlowUploads* slow_ones = nullptr;  // the list that it is entered in
  std::shared_ptr<SlowUploads::Upload> slow;
  bool readable = false;
  End end = End::kOk;
  do {
    if (slow == nullptr && (slow_ones = WhereSlow()) != nullptr) {
      slow = slow_ones->Add(thread.loop, &RequestBody::OnCut, this);
    }
    ArmTimer(patience_ns - waited_ns);
    readable = co_await connection_.socket.Readable();
    timer_.Disarm();
    const int64_t now_ns = thread.clock.NowNanos() - began_ns;
    pace_.Waited(now_ns - waited_ns);
    waited_ns = now_ns;
    if (stopped_) {
      end = End::kStopped;
    } else if (cut_ || pace_.rate() == BodyPace::Rate::kTooSlow) {
      end = End::kTooSlow;
    } else if (patience_ns != 0 && !readable && waited_ns >= patience_ns) {
      end = End::kTimeout;
    }
  } while (std::exchange(timer_fired_, false) && !readable && end == End::kOk);
  if (slow != nullptr) slow_ones->Remove(slow);
  if (end == End::kOk && !readable) end = End::kClientGone;
  co_return end;
}

// The list for this upload if it is slow and holds a permit (while it is streamed) or memory. Null: it
// is fast enough, or holds nothing.
SlowUploads* RequestBody::WhereSlow() const {
  if (pace_.rate() != BodyPace::Rate::kSlow) return nullptr;
  ServerLimits& limits = connection_.thread.limits;
  if (handing_out_) return &limits.slow_uploads;
  return memory_.held() != 0 ? &limits.slow_bodies : nullptr;
}

// Arms the earlier of the limits on a silent client. `left_ns` counts if there is such a limit.
void RequestBody::ArmTimer(int64_t left_ns) {
  int64_t ms = pace_.ms_to_next_step();
  if (connection_.settings->client_body_timeout_ms != 0) {
    const int64_t left_ms = std::max<int64_t>(1, (left_ns + kNanosPerMs - 1) / kNanosPerMs);
    ms = ms == 0 ? left_ms : std::min(ms, left_ms);
  }
  timer_.Arm(connection_.thread.loop.timers(), ms, &RequestBody::OnTimer, this);
}

// The buffer for the rest of a body of known length. The head is in use until the response comes, so
// connection.in may be filled further but must not move. Nor may a body whose pieces are kept, which
// therefore gets all its room at once. Room for a longer one doubles with what has arrived, since its
// length is only a claim until then.
Buffer& RequestBody::LengthBuffer() {
  static_assert(kReplayBodyBytes <= BufferPool::kLargestKept);
  if (held_.capacity() != 0) {
    const auto missing = static_cast<size_t>(content_length_ - bytes_);
    if (missing != 0 && held_.room().empty()) held_.Reserve(std::min(missing, held_.size()));
    return held_;
  }
  if (connection_.in.room().size() >= content_length_ - in_place_) return connection_.in;
  held_.Reserve(std::min(static_cast<size_t>(content_length_), BufferPool::kLargestKept));
  held_.Append(connection_.in.view().substr(head_bytes_, in_place_));
  return held_;
}

// `read` bytes have come to the end of LengthBuffer(). (Calling it again would be wrong: its room is
// smaller now.)
void RequestBody::TakeLength(size_t read) {
  Buffer& into = held_.capacity() != 0 ? held_ : connection_.in;
  Dechunk(reader_, {into.data() + into.size() - read, read});
  bytes_ += read;
  if (&into == &connection_.in) in_place_ += read;
}

Task<RequestBody::End> RequestBody::ReadLength(uint64_t maximum) {
  Buffer& into = LengthBuffer();
  const size_t before = into.size();
  const uint64_t left = content_length_ - bytes_;
  const End end = co_await ReadMore(into, static_cast<size_t>(std::min(maximum, left)), left);
  TakeLength(into.size() - before);
  co_return end;
}

void RequestBody::Rewind() {
  handed_out_ = 0;
  stopped_ = false;
}

RequestBody::End RequestBody::TakeArrived() {
  // Keeping it is optional, so half of the memory is left to bodies that must be held.
  keeps_pieces_ = content_length_ <= kReplayBodyBytes && memory_.TryKeep(content_length_);
  if (!keeps_pieces_) return End::kOk;
  while (!complete()) {
    Buffer& into = LengthBuffer();
    const size_t missing = static_cast<size_t>(content_length_ - bytes_);
    const IoResult read =
        connection_.socket.TryRead(into.room().first(std::min(missing, into.room().size())));
    if (read.would_block()) break;
    if (!read.ok()) return End::kClientGone;
    into.Commit(static_cast<size_t>(read.bytes));
    TakeLength(static_cast<size_t>(read.bytes));
  }
  return End::kOk;
}

Task<RequestBody::End> RequestBody::Fill(uint64_t limit) {
  if (framing_ == BodyFraming::kLength) {
    const uint64_t wanted = std::min(content_length_, limit);
    while (bytes_ < wanted) {
      uint64_t room = std::max<uint64_t>(memory_.held(), kSmallBodyBytes);
      if (bytes_ >= room) {  // a length is only announced until the bytes have come
        room = std::min(wanted, 2 * bytes_);
        const End end = co_await TakeMemory(room, wanted);
        if (end != End::kOk) co_return end;
      }
      const End end = co_await ReadLength(std::min(wanted, room) - bytes_);
      if (end != End::kOk) co_return end;
    }
    memory_.Complete(bytes_);
    co_return End::kOk;
  }
  while (!complete()) {
    if (!raw_.empty()) {
      const Dechunked part = Dechunk(reader_, {raw_.data(), raw_.size()});
      if (part.bad) co_return End::kBadChunk;
      held_.Append(part.data);
      bytes_ += part.data.size();
      raw_.Consume(part.used);
      if (bytes_ > connection_.settings->max_payload_size) co_return End::kTooLarge;
      if (complete() || bytes_ > limit) {
        memory_.Complete(bytes_);
        co_return End::kOk;
      }
    }
    if (bytes_ > std::max<uint64_t>(memory_.held(), kSmallBodyBytes)) {
      const End end = co_await TakeMemory(std::min(limit, 2 * bytes_), limit);
      if (end != End::kOk) co_return end;
    }
    raw_.Reserve(kRelayBufferFirst);
    const End end = co_await ReadMore(raw_, SIZE_MAX, UINT64_MAX);
    if (end != End::kOk) co_return end;
  }
  co_return End::kOk;
}

Task<RequestBody::End> RequestBody::Next() {
  piece_ = {};
  handing_out_ = true;
  if (keeps_pieces()) {
    if (handed_out_ == bytes_ && !complete()) {
      const End end = co_await ReadLength(content_length_);
      if (end != End::kOk) co_return end;
    }
    piece_ = held().substr(static_cast<size_t>(handed_out_));
    handed_out_ = bytes_;
    co_return End::kOk;
  }
  if (handed_out_ == 0 && bytes_ != 0) {  // what came before streaming began
    handed_out_ = bytes_;
    piece_ = held();
    co_return End::kOk;
  }
  held_.Release();
  memory_.Return();
  while (piece_.empty() && !complete()) {
    if (raw_.empty()) {
      // A window that was filled completely is likely to be filled again.
      size_t window = std::max(raw_.capacity(), kRelayBufferFirst);
      if (brimful_) window = std::min(window * 4, kRelayBufferMost);
      raw_.Reserve(window);
      const uint64_t left = framing_ == BodyFraming::kLength ? reader_.left() : UINT64_MAX;
      const End end = co_await ReadMore(raw_, static_cast<size_t>(std::min<uint64_t>(left, window)), left);
      if (end != End::kOk) co_return end;
      brimful_ = raw_.room().empty();
    }
    const Dechunked part = Dechunk(reader_, {raw_.data(), raw_.size()});
    if (part.bad) co_return End::kBadChunk;
    piece_ = part.data;
    bytes_ += piece_.size();
    handed_out_ = bytes_;
    raw_.Consume(part.used);  // the bytes stay where they are until the next read
    if (bytes_ > connection_.settings->max_payload_size) co_return End::kTooLarge;
  }
  co_return End::kOk;
}

void RequestBody::Stop() {
  stopped_ = true;
  memory_.Leave();
  connection_.socket.InterruptRead();
}

void RequestBody::OnTimer(void* context) {
  auto* body = static_cast<RequestBody*>(context);
  body->timer_fired_ = true;
  body->connection_.socket.InterruptRead();
}

void RequestBody::OnCut(void* context) {
  auto* body = static_cast<RequestBody*>(context);
  body->cut_ = true;
  body->connection_.socket.InterruptRead();
}

void RequestBody::Release() {
  if (released_) return;
  released_ = true;
  Buffer& in = connection_.in;
  in.Consume(head_bytes_ + in_place_);
  if (complete()) in.Append(raw_.view());
  raw_.Release();
  held_.Release();
  memory_.Return();
  piece_ = {};
  if (cut_) {
    ServerLimits& limits = connection_.thread.limits;
    (handing_out_ ? limits.slow_uploads : limits.slow_bodies).CutEnded();
  }
}

}  // namespace vllm_router
