#include "proxy/request_body.h"

#include <algorithm>

#include "base/limits.h"
#include "http/unframe.h"
#include "proxy/connection.h"

namespace vllm_router {

RequestBody::RequestBody(
    Connection& connection, BodyFraming framing, uint64_t content_length, size_t head_bytes)
    : connection_(connection),
      reader_(framing, content_length, MessageKind::kRequest),
      framing_(framing),
      content_length_(content_length),
      head_bytes_(head_bytes),
      memory_(connection.lane.gates.body_memory, connection.lane),
      held_(connection.lane.buffers),
      raw_(connection.lane.buffers) {
  Buffer& in = connection.in;
  const size_t behind = in.size() - head_bytes;
  if (framing == BodyFraming::kLength) {
    in_place_ = std::min<uint64_t>(behind, content_length);
    bytes_ = in_place_;
    Unframe(reader_, {in.data() + head_bytes, in_place_});
  } else if (framing == BodyFraming::kChunked) {
    in_place_ = behind;  // all of it, for now; Release() puts back what turns out to be the next request's
    raw_.Append(in.view().substr(head_bytes));
  }
}

std::string_view RequestBody::held() const {
  if (!held_.empty() || framing_ != BodyFraming::kLength) return held_.view();
  return connection_.in.view().substr(head_bytes_, in_place_);
}

// A client that leaves while its body waits for room leaves bytes unread, so its end is watched for.
Task<RequestBody::End> RequestBody::TakeMemory(uint64_t bytes) {
  if (memory_.TryTake(bytes)) co_return End::kOk;
  connection_.socket.WatchEnd(&RequestBody::OnClientEnded, this);
  const Permit::End end = co_await memory_.Take(bytes, connection_.lane.options.queue_timeout_ms);
  connection_.socket.WatchEnd(nullptr, nullptr);
  if (stopped_) co_return End::kStopped;
  if (client_ended_) co_return End::kClientGone;
  co_return end == Permit::End::kHeld ? End::kOk : End::kNoMemory;
}

void RequestBody::OnClientEnded(void* context) {
  auto* body = static_cast<RequestBody*>(context);
  body->client_ended_ = true;
  body->memory_.Leave();
}

// Reads once, waiting for the client if need be. `most` bounds what is taken from the socket.
Task<RequestBody::End> RequestBody::ReadMore(Buffer& into, size_t most) {
  Socket& socket = connection_.socket;
  for (;;) {
    const std::span<char> room = into.room().first(std::min(most, into.room().size()));
    const IoResult read = socket.TryRead(room);
    if (read.ok()) {
      into.Commit(static_cast<size_t>(read.bytes));
      // A client that sends faster than its bytes pass through would never have to be waited for.
      unshared_ += static_cast<size_t>(read.bytes);
      if (unshared_ < kFairnessBytes) co_return End::kOk;
      unshared_ = 0;
      co_await connection_.lane.loop.Yield();
      co_return stopped_ ? End::kStopped : End::kOk;
    }
    if (!read.would_block()) co_return End::kClientGone;
    unshared_ = 0;
    timer_.Arm(
        connection_.lane.loop.timers(), connection_.lane.options.client_body_timeout_ms,
        &RequestBody::OnTimeout, this);
    const bool readable = co_await socket.Readable();
    timer_.Disarm();
    if (stopped_) co_return End::kStopped;
    if (timed_out_) co_return End::kTimeout;
    if (!readable) co_return End::kClientGone;
  }
}

// Where the rest of a body of known length goes. The head is in use until the answer comes, so connection.in may be
// filled further, but must not move; nor may a body whose pieces are kept, which therefore gets all its room at once.
// Room for a longer one doubles with what has arrived, since its length is only a claim until then.
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

// `read` bytes have come to the end of LengthBuffer(). (Asking it again would be wrong: its room is smaller now.)
void RequestBody::TakeLength(size_t read) {
  Buffer& into = held_.capacity() != 0 ? held_ : connection_.in;
  Unframe(reader_, {into.data() + into.size() - read, read});
  bytes_ += read;
  if (&into == &connection_.in) in_place_ += read;
}

Task<RequestBody::End> RequestBody::ReadLength(uint64_t most) {
  Buffer& into = LengthBuffer();
  const size_t before = into.size();
  const End end = co_await ReadMore(into, static_cast<size_t>(std::min(most, content_length_ - bytes_)));
  TakeLength(into.size() - before);
  co_return end;
}

void RequestBody::Rewind() {
  handed_out_ = 0;
  stopped_ = false;
}

RequestBody::End RequestBody::TakeArrived() {
  // It can do without, so it leaves half of the memory to those that cannot.
  const Admission& memory = connection_.lane.gates.body_memory;
  keeps_pieces_ = content_length_ <= kReplayBodyBytes && memory.in_use() < memory.permits() / 2 &&
                  memory_.TryTake(content_length_);
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
      // A length is a claim until something has come; memory for all of it is taken then.
      if (bytes_ >= kSmallBodyBytes && !memory_.held()) {
        const End end = co_await TakeMemory(wanted);
        if (end != End::kOk) co_return end;
      }
      const uint64_t until = memory_.held() ? wanted : std::min<uint64_t>(wanted, kSmallBodyBytes);
      const End end = co_await ReadLength(until - bytes_);
      if (end != End::kOk) co_return end;
    }
    co_return End::kOk;
  }
  while (!complete()) {
    if (!raw_.empty()) {
      const Unframed part = Unframe(reader_, {raw_.data(), raw_.size()});
      if (part.bad) co_return End::kBadChunk;
      held_.Append(part.data);
      bytes_ += part.data.size();
      raw_.Consume(part.used);
      if (bytes_ > connection_.lane.options.max_payload_size) co_return End::kTooLarge;
      if (complete() || bytes_ > limit) {
        memory_.Shrink(bytes_);
        co_return End::kOk;
      }
    }
    if (bytes_ > kSmallBodyBytes && !memory_.held()) {  // its length nobody knows, so all that it may be
      const End end = co_await TakeMemory(limit);
      if (end != End::kOk) co_return end;
    }
    raw_.Reserve(kRelayBufferFirst);
    const End end = co_await ReadMore(raw_, SIZE_MAX);
    if (end != End::kOk) co_return end;
  }
  co_return End::kOk;
}

Task<RequestBody::End> RequestBody::Next() {
  piece_ = {};
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
      // A window that was filled to the brim may well be filled again.
      size_t window = std::max(raw_.capacity(), kRelayBufferFirst);
      if (brimful_) window = std::min(window * 4, kRelayBufferMost);
      raw_.Reserve(window);
      const uint64_t left = framing_ == BodyFraming::kLength ? reader_.left() : UINT64_MAX;
      const End end = co_await ReadMore(raw_, static_cast<size_t>(std::min<uint64_t>(left, window)));
      if (end != End::kOk) co_return end;
      brimful_ = raw_.room().empty();
    }
    const Unframed part = Unframe(reader_, {raw_.data(), raw_.size()});
    if (part.bad) co_return End::kBadChunk;
    piece_ = part.data;
    bytes_ += piece_.size();
    handed_out_ = bytes_;
    raw_.Consume(part.used);  // the bytes stay where they are until the next read
    if (bytes_ > connection_.lane.options.max_payload_size) co_return End::kTooLarge;
  }
  co_return End::kOk;
}

void RequestBody::Stop() {
  stopped_ = true;
  memory_.Leave();
  connection_.socket.InterruptRead();
}

void RequestBody::OnTimeout(void* context) {
  auto* body = static_cast<RequestBody*>(context);
  body->timed_out_ = true;
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
}

}  // namespace vllm_router
