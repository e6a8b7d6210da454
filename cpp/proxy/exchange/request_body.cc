#include "proxy/exchange/request_body.h"

#include <algorithm>
#include <utility>

#include "base/limits.h"
#include "http/dechunk.h"
#include "proxy/api/settings.h"
#include "proxy/exchange/connection.h"

namespace vllm_router {

RequestBody::RequestBody(
    Connection& connection, BodyFraming framing, uint64_t content_length, size_t head_bytes)
    : connection_(connection),
      reader_(framing, content_length, MessageKind::kRequest),
      framing_(framing),
      content_length_(content_length),
      head_bytes_(head_bytes),
      upload_(connection),
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
  const End end = co_await upload_.Read(into, static_cast<size_t>(std::min(maximum, left)), left);
  TakeLength(into.size() - before);
  co_return end;
}

void RequestBody::Rewind() {
  handed_out_ = 0;
  upload_.Resume();
}

RequestBody::End RequestBody::TakeArrived() {
  // Keeping it is optional, so half of the memory is left to bodies that must be held.
  keeps_pieces_ = content_length_ <= kReplayBodyBytes && upload_.memory().TryKeep(content_length_);
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
      uint64_t room = std::max<uint64_t>(upload_.memory().held(), kSmallBodyBytes);
      if (bytes_ >= room) {  // a length is only announced until the bytes have come
        room = std::min(wanted, 2 * bytes_);
        const End end = co_await upload_.TakeMemory(room, wanted);
        if (end != End::kOk) co_return end;
      }
      const End end = co_await ReadLength(std::min(wanted, room) - bytes_);
      if (end != End::kOk) co_return end;
    }
    upload_.memory().Complete(bytes_);
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
        upload_.memory().Complete(bytes_);
        co_return End::kOk;
      }
    }
    if (bytes_ > std::max<uint64_t>(upload_.memory().held(), kSmallBodyBytes)) {
      const End end = co_await upload_.TakeMemory(std::min(limit, 2 * bytes_), limit);
      if (end != End::kOk) co_return end;
    }
    raw_.Reserve(kRelayBufferFirst);
    const End end = co_await upload_.Read(raw_, SIZE_MAX, UINT64_MAX);
    if (end != End::kOk) co_return end;
  }
  co_return End::kOk;
}

Task<RequestBody::End> RequestBody::Next() {
  piece_ = {};
  upload_.BeginStreaming();
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
  upload_.memory().Return();
  while (piece_.empty() && !complete()) {
    if (raw_.empty()) {
      // A window that was filled completely is likely to be filled again.
      size_t window = std::max(raw_.capacity(), kRelayBufferFirst);
      if (filled_window_) window = std::min(window * 4, kRelayBufferMost);
      raw_.Reserve(window);
      const uint64_t left = framing_ == BodyFraming::kLength ? reader_.left() : UINT64_MAX;
      const End end =
          co_await upload_.Read(raw_, static_cast<size_t>(std::min<uint64_t>(left, window)), left);
      if (end != End::kOk) co_return end;
      filled_window_ = raw_.room().empty();
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

void RequestBody::Release() {
  if (released_) return;
  released_ = true;
  Buffer& in = connection_.in;
  in.Consume(head_bytes_ + in_place_);
  if (complete()) in.Append(raw_.view());
  raw_.Release();
  held_.Release();
  piece_ = {};
  upload_.Finish();
}

}  // namespace vllm_router
