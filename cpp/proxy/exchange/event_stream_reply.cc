#include "proxy/exchange/event_stream_reply.h"

#include <memory>
#include <string>
#include <string_view>

#include "base/time_units.h"
#include "http/head_writer.h"
#include "proxy/api/event_stream.h"
#include "proxy/exchange/connection.h"
#include "proxy/exchange/downstream.h"
#include "proxy/exchange/request.h"
#include "proxy/thread/io_thread.h"

namespace vllm_router {
namespace {

constexpr std::string_view kComment = ": \n\n";

std::string WriteHead(Request& request, const AdminReply& reply, bool is_chunked) {
  if (!is_chunked || request.thread.draining) request.connection.keep = false;
  request.info.status = reply.status;
  ResponseHead head{
      .status = reply.status,
      .reason = ReasonPhrase(reply.status),
      .fields = {
          {"Content-Type", "text/event-stream; charset=utf-8"},
          {"Cache-Control", "no-store"},
          {"X-Accel-Buffering", "no"}}};
  head.fields.insert(head.fields.end(), reply.fields.begin(), reply.fields.end());
  return request.client.HeadFor(
      head, is_chunked ? BodyFraming::kChunked : BodyFraming::kUntilClose, /*explains=*/false);
}

std::string Framed(std::string_view bytes, bool is_chunked) {
  if (!is_chunked) return std::string(bytes);
  std::string out;
  WriteChunkSize(bytes.size(), &out);
  out.append(bytes).append("\r\n");
  return out;
}

// What adds to a stream knows no exchange: it ends a pause of whoever still waits here.
struct Reader {
  CancelScope* scope;  // null: it waits no more. Of its thread
};

}  // namespace

Task<void> ReplyWithEvents(Request& request, AdminReply reply) {
  Downstream& client = request.client;
  EventLoop& loop = request.thread.loop;
  const std::shared_ptr<EventStream> stream = std::move(reply.stream);
  const bool is_chunked = request.head->minor_version > 0;
  const auto reader = std::make_shared<Reader>(Reader{&request.scope});
  stream->Open([reader, &loop] {
    loop.Post([reader] {
      if (reader->scope != nullptr) reader->scope->EndPause();
    });
  });
  request.scope.set_long();
  client.watch().Begin();
  const std::string head = WriteHead(request, reply, is_chunked);
  client.Begin();
  bool is_open = co_await client.Write(head);
  while (is_open && !request.is_cancelled() && !stream->ended()) {
    EventStream::Piece piece = stream->Take();
    if (piece == nullptr) {
      const int64_t begun_ns = request.thread.clock.NowNanos();
      const int64_t keep_alive_ns = stream->keep_alive_ms() * kNanosPerMs;
      const bool goes_on = co_await request.scope.Pause(loop, keep_alive_ns);
      if (!goes_on || request.thread.clock.NowNanos() - begun_ns < keep_alive_ns) continue;
    }
    const std::string_view bytes = piece != nullptr ? std::string_view(*piece) : kComment;
    const std::string framed = Framed(bytes, is_chunked);
    request.info.bytes_out += bytes.size();
    is_open = co_await client.Write(framed);
  }
  reader->scope = nullptr;
  stream->Close();
  if (is_open && !request.is_cancelled() && is_chunked) co_await client.Write("0\r\n\r\n");
}

}  // namespace vllm_router
