#include "proxy/exchange/upstream_sender.h"

#include <array>
#include <span>
#include <string_view>

#include "http/dechunk.h"
#include "http/head_writer.h"
#include "net/write_all.h"
#include "proxy/thread/io_thread.h"

namespace vllm_router {

void UpstreamSender::WriteHead(const WorkerUrl& url) {
  const RequestHead& head = *message_.head;
  const bool has_body = head.framing != BodyFraming::kNone;
  const bool chunked = has_body && message_.stream_body && head.framing == BodyFraming::kChunked;
  UpstreamHeadParts parts = PartsFor(thread_, url, message_.client);
  parts.data_parallel_rank = url.rank;
  parts.websocket = head.websocket;
  parts.framing = !has_body ? BodyFraming::kNone : chunked ? BodyFraming::kChunked : BodyFraming::kLength;
  parts.content_length = message_.copy != nullptr ? message_.copy->size
                         : message_.stream_body   ? head.content_length
                                                  : message_.body->held().size();
  if (message_.pair) parts.identity = parts.identity || message_.pair->identity;
  if (RequestTrace* const trace = message_.client.trace) {
    parts.traceparent = trace->HeaderOf(record_.SpanIn(*trace));
  }
  head_.clear();
  WriteUpstreamHead(head, parts, &head_);
}

void UpstreamSender::Send(int64_t write_timeout_ms) {
  sent_ = false;
  sent_ns_ = 0;
  const int64_t now = thread_.clock.NowNanos();
  record_.Sending(now);

  if (hooks_.sending != nullptr) hooks_.sending(hooks_.context);
  Pieces pieces = HeadAndBody();
  const IoResult write = connection_.socket().TryWrite(pieces);
  if (write.error != 0 && !write.would_block())
    return;  // AWAIT detects the failure, and may still find a response
  const size_t written = static_cast<size_t>(write.bytes);
  if (!message_.stream_body && SkipWritten({pieces.data(), pieces.size()}, written).empty()) {
    sent_ = true;
    sent_ns_ = now;
    return;
  }
  sending_ = true;
  Spawn(SendRest(written, write_timeout_ms));
}

UpstreamSender::Pieces UpstreamSender::HeadAndBody() const {
  Pieces pieces{Piece(head_)};
  if (message_.copy != nullptr) {
    for (const std::string_view piece : message_.copy->pieces) pieces.push_back(Piece(piece));
  } else if (!message_.stream_body) {
    pieces.push_back(Piece(message_.body->held()));
  }
  return pieces;
}

Task<void> UpstreamSender::SendRest(size_t written, int64_t write_timeout_ms) {
  Pieces whole = HeadAndBody();
  std::array<iovec, 3> pieces;  // of a chunk
  WriteStall stall{
      .loop = thread_.loop,
      .timer = deadline_,
      .timeout_ms = write_timeout_ms,
      .callback = &UpstreamSender::OnStalled,
      .context = this};
  Socket& socket = connection_.socket();
  WriteEnd end = co_await WriteAll(socket, SkipWritten({whole.data(), whole.size()}, written), &stall);
  bool sent = end == WriteEnd::kAll;
  if (message_.stream_body) {
    const bool chunked = message_.head->framing == BodyFraming::kChunked;
    std::string size_line;
    while (sent) {
      const RequestBody::End next = co_await message_.body->Next();
      if (next != RequestBody::End::kOk) {
        sent = false;
        if (next != RequestBody::End::kStopped) hooks_.body_failed(hooks_.context, next);
        break;
      }
      const std::string_view piece = message_.body->piece();
      if (!piece.empty()) {
        size_t count = 0;
        if (chunked) {
          size_line.clear();
          WriteChunkSize(piece.size(), &size_line);
          pieces[count++] = Piece(size_line);
        }
        pieces[count++] = Piece(piece);
        if (chunked) pieces[count++] = Piece("\r\n");
        end = co_await WriteAll(socket, {pieces.data(), count}, &stall);
        sent = end == WriteEnd::kAll;
      }
      if (piece.empty() || (!chunked && message_.body->complete())) {
        if (chunked) {
          pieces[0] = Piece("0\r\n\r\n");
          end = co_await WriteAll(socket, {pieces.data(), 1}, &stall);
          sent = end == WriteEnd::kAll;
        }
        break;
      }
    }
    if (sent) hooks_.body_sent(hooks_.context);
  }
  record_.AddStalls(stall.waits);
  sent_ = sent;
  if (sent && record_.status() == 0) sent_ns_ = thread_.clock.NowNanos();
  sending_ = false;
  done_.Notify();
}

void UpstreamSender::OnStalled(void* context) {
  auto* sender = static_cast<UpstreamSender*>(context);
  if (sender->record_.status() == 0) sender->connection_.GiveUp(HttpError::kWorkerWriteTimeout);
}

Task<void> UpstreamSender::Stop() {
  if (!sending_) co_return;
  connection_.socket().Close();
  if (message_.stream_body) message_.body->Stop();
  while (sending_) co_await done_;
}

}  // namespace vllm_router
