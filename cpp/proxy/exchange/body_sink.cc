#include "proxy/exchange/body_sink.h"

#include <charconv>

namespace vllm_router {

// head | size CRLF | data | CRLF | 0 CRLF CRLF, those that apply
BodySink::Took ClientSink::Write(std::string_view data, bool last) {
  size_t count = 0;
  if (!head_.empty()) pieces_[count++] = Piece(head_);
  head_ = {};
  if (!data.empty()) {
    if (chunked_) {
      char* const begin = size_line_.data();
      char* end = std::to_chars(begin, begin + 16, data.size(), 16).ptr;
      *end++ = '\r';
      *end++ = '\n';
      pieces_[count++] = Piece({begin, static_cast<size_t>(end - begin)});
    }
    pieces_[count++] = Piece(data);
  }
  if (chunked_ && (last || !data.empty())) {
    pieces_[count++] = Piece(!last ? "\r\n" : data.empty() ? "0\r\n\r\n" : "\r\n0\r\n\r\n");
  }
  if (count == 0) return Took::kAll;
  const IoResult write = socket_.TryWrite({pieces_.data(), count});
  if (write.error != 0 && !write.would_block()) return socket_.is_open() ? Took::kGone : Took::kClosed;
  rest_ = SkipWritten({pieces_.data(), count}, static_cast<size_t>(write.bytes));
  return rest_.empty() ? Took::kAll : Took::kNotYet;
}

Task<BodySink::Took> ClientSink::Flush() {
  const WriteEnd end = co_await WriteAll(socket_, rest_, &stall_);
  if (end == WriteEnd::kAll) co_return Took::kAll;
  co_return socket_.is_open() ? Took::kGone : Took::kClosed;
}

BodySink::Took CapturedBody::Write(std::string_view data, bool last) {
  const std::string_view fits = data.substr(0, limit_ - bytes_.size());
  bytes_.append(fits);
  cut_ = cut_ || fits.size() < data.size();
  whole_ = last && !cut_;
  return Took::kAll;
}

BodySink::Took TeeSink::Write(std::string_view data, bool last) {
  const Took took = first_.Write(data, last);
  at_second_ = took == Took::kAll;
  if (at_second_) return second_.Write(data, last);
  data_ = data;
  last_ = last;
  return took;
}

Task<BodySink::Took> TeeSink::Flush() {
  if (!at_second_) {
    Took took = co_await first_.Flush();
    if (took == Took::kAll) took = second_.Write(data_, last_);
    if (took != Took::kNotYet) co_return took;
    at_second_ = true;
  }
  const Took took = co_await second_.Flush();
  co_return took;
}

}  // namespace vllm_router
