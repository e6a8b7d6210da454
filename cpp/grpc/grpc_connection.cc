#include "grpc/grpc_connection.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <nghttp2/nghttp2.h>

#include "base/check.h"
#include "base/limits.h"
#include "base/text.h"

namespace vllm_router {
namespace {

constexpr std::string_view kContentType = "application/grpc";
constexpr size_t kFieldOverhead = 32;  // RFC 9113, 6.5.2
constexpr size_t kKeptSentFrames = 64;

std::string_view View(const uint8_t* bytes, size_t size) {
  return {reinterpret_cast<const char*>(bytes), size};
}

// nghttp2 copies it, and changes nothing.
nghttp2_nv Field(std::string_view name, std::string_view value) {
  const auto bytes = [](std::string_view text) {
    return const_cast<uint8_t*>(reinterpret_cast<const uint8_t*>(text.data()));
  };
  return {bytes(name), bytes(value), name.size(), value.size(), NGHTTP2_NV_FLAG_NONE};
}

// "application/grpc", or that with a suffix or a parameter.
bool IsGrpc(std::string_view content_type) {
  if (content_type.size() < kContentType.size()) return false;
  if (!EqualsIgnoreCase(content_type.substr(0, kContentType.size()), kContentType)) return false;
  const std::string_view rest = content_type.substr(kContentType.size());
  return rest.empty() || rest.front() == '+' || rest.front() == ';';
}

// What nghttp2 cannot do only for want of memory.
void Must(int result) { ROUTER_CHECK(result == 0, "nghttp2 does not do what it always can"); }

}  // namespace

// nghttp2 calls these while it reads and writes.
struct GrpcConnection::Callbacks {
  static GrpcConnection& Of(void* user_data) { return *static_cast<GrpcConnection*>(user_data); }

  static bool IsRequestHead(const nghttp2_frame& frame) {
    return frame.hd.type == NGHTTP2_HEADERS && frame.headers.cat == NGHTTP2_HCAT_REQUEST;
  }

  static int BeginHeaders(nghttp2_session* /*session*/, const nghttp2_frame* frame, void* user_data) {
    GrpcConnection& self = Of(user_data);
    if (IsRequestHead(*frame)) self.streams_.try_emplace(frame->hd.stream_id, self.limits_.max_message_bytes);
    return 0;
  }

  static int Header(
      nghttp2_session* /*session*/, const nghttp2_frame* frame, const uint8_t* name, size_t name_size,
      const uint8_t* value, size_t value_size, uint8_t /*flags*/, void* user_data) {
    if (IsRequestHead(*frame))
      Of(user_data).TakeField(frame->hd.stream_id, View(name, name_size), View(value, value_size));
    return 0;
  }

  static int FrameReceived(nghttp2_session* /*session*/, const nghttp2_frame* frame, void* user_data) {
    GrpcConnection& self = Of(user_data);
    if (frame->hd.type == NGHTTP2_SETTINGS) self.greeted_ = true;
    if (frame->hd.type != NGHTTP2_HEADERS && frame->hd.type != NGHTTP2_DATA) return 0;
    Stream* const stream = self.Find(frame->hd.stream_id);
    if (stream == nullptr) return 0;
    if (IsRequestHead(*frame)) self.EndHead(frame->hd.stream_id, stream);
    if ((frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0) self.EndInput(frame->hd.stream_id, stream);
    return 0;
  }

  static int DataReceived(
      nghttp2_session* /*session*/, uint8_t /*flags*/, int32_t id, const uint8_t* data, size_t size,
      void* user_data) {
    Of(user_data).TakeData(id, View(data, size));
    return 0;
  }

  // Trailers that are sent before the peer has half-closed: it is told that the rest is not read.
  static int FrameSent(nghttp2_session* session, const nghttp2_frame* frame, void* /*user_data*/) {
    if (frame->hd.type == NGHTTP2_HEADERS && (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0 &&
        nghttp2_session_get_stream_remote_close(session, frame->hd.stream_id) == 0)
      Must(nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, frame->hd.stream_id, NGHTTP2_NO_ERROR));
    return 0;
  }

  static int StreamClosed(nghttp2_session* /*session*/, int32_t id, uint32_t /*error*/, void* user_data) {
    Of(user_data).TakeClose(id);
    return 0;
  }

  static ssize_t ReadData(
      nghttp2_session* /*session*/, int32_t id, uint8_t* to, size_t most, uint32_t* flags,
      nghttp2_data_source* /*source*/, void* user_data) {
    GrpcConnection& self = Of(user_data);
    Stream* const stream = self.Find(id);
    if (stream == nullptr) return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    bool last = false;
    const size_t given = self.GiveData(id, stream, reinterpret_cast<char*>(to), most, &last);
    if (last) *flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
    if (given == 0 && !last) return NGHTTP2_ERR_DEFERRED;
    return static_cast<ssize_t>(given);
  }

  static nghttp2_session* NewSession(const GrpcLimits& limits, GrpcConnection* self) {
    nghttp2_session_callbacks* callbacks = nullptr;
    Must(nghttp2_session_callbacks_new(&callbacks));
    nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, &BeginHeaders);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, &Header);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, &FrameReceived);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, &DataReceived);
    nghttp2_session_callbacks_set_on_frame_send_callback(callbacks, &FrameSent);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, &StreamClosed);
    nghttp2_option* option = nullptr;
    Must(nghttp2_option_new(&option));
    nghttp2_option_set_no_auto_window_update(option, 1);
    nghttp2_option_set_no_closed_streams(option, 1);
    nghttp2_option_set_stream_reset_rate_limit(
        option, limits.max_resets_per_second, limits.max_resets_per_second);
    nghttp2_session* session = nullptr;
    Must(nghttp2_session_server_new2(&session, callbacks, self, option));
    nghttp2_option_del(option);
    nghttp2_session_callbacks_del(callbacks);
    return session;
  }
};

void GrpcConnection::Free::operator()(nghttp2_session* session) const { nghttp2_session_del(session); }

GrpcConnection::GrpcConnection(const GrpcLimits& limits)
    : limits_(limits), session_(Callbacks::NewSession(limits, this)) {
  const nghttp2_settings_entry settings[] = {
      {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, limits_.max_streams},
      {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, limits_.stream_window},
      {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, static_cast<uint32_t>(limits_.max_head_bytes)},
  };
  Must(nghttp2_submit_settings(session_.get(), NGHTTP2_FLAG_NONE, settings, std::size(settings)));
  Must(nghttp2_session_set_local_window_size(
      session_.get(), NGHTTP2_FLAG_NONE, 0, static_cast<int32_t>(limits_.connection_window)));
}

GrpcConnection::~GrpcConnection() = default;

Status GrpcConnection::Feed(std::string_view bytes) {
  const ssize_t taken =
      nghttp2_session_mem_recv(session_.get(), reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  if (taken >= 0) return absl::OkStatus();
  return absl::FailedPreconditionError(Concat(
      "the peer does not speak HTTP/2 as a gRPC client does: ",
      std::string_view(nghttp2_strerror(static_cast<int>(taken)))));
}

bool GrpcConnection::Write(std::string* out, size_t most) {
  const size_t before = out->size();
  while (out->size() - before < most) {
    const uint8_t* bytes = nullptr;
    const ssize_t size = nghttp2_session_mem_send(session_.get(), &bytes);
    ROUTER_CHECK(size >= 0, "nghttp2 does not do what it always can");
    if (size == 0) return false;
    out->append(View(bytes, static_cast<size_t>(size)));
  }
  return nghttp2_session_want_write(session_.get()) != 0;
}

bool GrpcConnection::Send(int32_t stream, std::string message) {
  Stream* const found = Find(stream);
  if (found == nullptr || found->over) return false;
  if (found->next >= kKeptSentFrames && found->next * 2 > found->unsent.size()) {
    found->unsent.erase(found->unsent.begin(), found->unsent.begin() + static_cast<ptrdiff_t>(found->next));
    found->next = 0;
  }
  found->unsent_bytes += found->unsent.emplace_back(std::move(message)).size();
  if (!found->has_response) {
    SendHead(stream, found);
  } else {
    nghttp2_session_resume_data(session_.get(), stream);  // an error if it is not deferred, which is as good
  }
  return true;
}

bool GrpcConnection::Finish(int32_t stream, GrpcCode code, std::string_view text) {
  Stream* const found = Find(stream);
  if (found == nullptr || found->over) return false;
  found->over = true;
  found->code = code;
  found->text = GrpcMessageText(text);
  SendEnd(stream, found);
  return true;
}

bool GrpcConnection::Reset(int32_t stream) {
  Stream* const found = Find(stream);
  if (found == nullptr || found->over) return false;
  found->over = true;
  Must(nghttp2_submit_rst_stream(session_.get(), NGHTTP2_FLAG_NONE, stream, NGHTTP2_CANCEL));
  return true;
}

void GrpcConnection::SetPaused(int32_t stream, bool paused) {
  Stream* const found = Find(stream);
  if (found == nullptr) return;
  found->paused = paused;
  found->read_waits = false;
  if (paused || found->withheld == 0) return;
  nghttp2_session_consume_stream(session_.get(), stream, std::exchange(found->withheld, 0));
}

// Trailers would wait behind the messages.
void GrpcConnection::EndStalledWrites() {
  for (auto& [id, stream] : streams_) {
    const bool waits = stream.unsent_bytes != 0;
    if (!std::exchange(stream.write_waits, waits) || !waits) continue;
    Must(nghttp2_submit_rst_stream(session_.get(), NGHTTP2_FLAG_NONE, id, NGHTTP2_CANCEL));
    if (std::exchange(stream.over, true)) continue;
    events_.push_back(
        {.kind = GrpcEvent::Kind::kReset,
         .stream = id,
         .code = GrpcCode::kDeadlineExceeded,
         .reason = "the peer takes nothing of what is sent on the stream"});
  }
}

void GrpcConnection::EndStalledReads() {
  for (auto& [id, stream] : streams_) {
    const bool waits = !stream.over && !stream.paused && stream.reader.partial_bytes() != 0;
    if (!std::exchange(stream.read_waits, waits) || !waits) continue;
    Fail(
        id, &stream, GrpcCode::kDeadlineExceeded,
        Concat(
            "a message is incomplete for too long, with ", stream.reader.partial_bytes(),
            " bytes; send all of it at once"));
  }
}

size_t GrpcConnection::unsent_bytes(int32_t stream) const {
  const auto found = streams_.find(stream);
  return found == streams_.end() ? 0 : found->second.unsent_bytes;
}

void GrpcConnection::Drain() { Must(nghttp2_submit_shutdown_notice(session_.get())); }

void GrpcConnection::Close() {
  Must(nghttp2_submit_goaway(
      session_.get(), NGHTTP2_FLAG_NONE, nghttp2_session_get_last_proc_stream_id(session_.get()),
      NGHTTP2_NO_ERROR, nullptr, 0));
}

bool GrpcConnection::ended() const {
  return nghttp2_session_want_read(session_.get()) == 0 && nghttp2_session_want_write(session_.get()) == 0;
}

GrpcConnection::Stream* GrpcConnection::Find(int32_t id) {
  const auto found = streams_.find(id);
  return found == streams_.end() ? nullptr : &found->second;
}

void GrpcConnection::TakeField(int32_t id, std::string_view name, std::string_view value) {
  Stream* const stream = Find(id);
  if (stream == nullptr || stream->head_too_large) return;
  stream->head_bytes += name.size() + value.size() + kFieldOverhead;
  const bool is_metadata =
      !name.starts_with(':') && name != "content-type" && name != "te" && name != "grpc-encoding";
  if (stream->head_bytes > limits_.max_head_bytes ||
      (is_metadata && stream->metadata.size() == kMaxHeadFields)) {
    stream->head_too_large = true;
    stream->metadata = {};
    return;
  }
  if (name == ":path") {
    stream->path = value;
  } else if (name == ":method") {
    stream->method = value;
  } else if (name == "content-type") {
    stream->content_type = value;
  } else if (name == "grpc-encoding") {
    stream->encoding = value;
  } else if (is_metadata) {
    stream->metadata.emplace_back(name, value);
  }
}

void GrpcConnection::EndHead(int32_t id, Stream* stream) {
  if (stream->over) return;
  if (!stream->head_too_large && stream->method != "POST") return RejectHead(id, stream, "405");
  if (!stream->head_too_large && !IsGrpc(stream->content_type)) return RejectHead(id, stream, "415");
  if (stream->head_too_large) {
    return Fail(
        id, stream, GrpcCode::kResourceExhausted,
        Concat(
            "the head of the call has more than ", limits_.max_head_bytes, " bytes or ", kMaxHeadFields,
            " fields; send less metadata"));
  }
  stream->opened = true;
  events_.push_back(
      {.kind = GrpcEvent::Kind::kOpened,
       .stream = id,
       .path = std::move(stream->path),
       .metadata = std::exchange(stream->metadata, {})});
}

void GrpcConnection::TakeData(int32_t id, std::string_view bytes) {
  // A stream that is paused must not hold up the others.
  nghttp2_session_consume_connection(session_.get(), bytes.size());
  Stream* const stream = Find(id);
  if (stream == nullptr || stream->over) return;
  if (stream->paused) {
    stream->withheld += bytes.size();
  } else {
    nghttp2_session_consume_stream(session_.get(), id, bytes.size());
  }
  partial_bytes_ -= stream->reader.partial_bytes();
  GrpcFrameReader::Result result = GrpcFrameReader::Result::kMessage;
  while (result == GrpcFrameReader::Result::kMessage && !bytes.empty()) {
    result = stream->reader.Read(&bytes);
    if (result != GrpcFrameReader::Result::kMessage) break;
    stream->read_waits = false;
    events_.push_back(
        {.kind = GrpcEvent::Kind::kMessage, .stream = id, .message = stream->reader.TakeMessage()});
  }
  partial_bytes_ += stream->reader.partial_bytes();
  switch (result) {
    case GrpcFrameReader::Result::kCompressed:
      return Fail(
          id, stream, GrpcCode::kUnimplemented,
          Concat(
              "a message is compressed (grpc-encoding ",
              stream->encoding.empty() ? std::string("not given") : Quoted(stream->encoding),
              "); send messages as they are"));
    case GrpcFrameReader::Result::kTooLarge:
      return Fail(
          id, stream, GrpcCode::kResourceExhausted,
          Concat(
              "a message has ", stream->reader.message_bytes(), " bytes; at most ", limits_.max_message_bytes,
              " are accepted: send less in one message"));
    case GrpcFrameReader::Result::kMessage:
    case GrpcFrameReader::Result::kNeedMore:
      break;
  }
  if (partial_bytes_ > limits_.max_partial_bytes) {
    Fail(
        id, stream, GrpcCode::kResourceExhausted,
        Concat(
            "incomplete messages of this connection have ", partial_bytes_, " bytes; at most ",
            limits_.max_partial_bytes, " are kept: send fewer at once"));
  }
}

void GrpcConnection::EndInput(int32_t id, Stream* stream) {
  if (stream->over) return;
  if (stream->reader.partial_bytes() != 0) {
    return Fail(
        id, stream, GrpcCode::kInternal,
        "the call was half-closed within a message; send the rest of it before");
  }
  events_.push_back({.kind = GrpcEvent::Kind::kHalfClosed, .stream = id});
}

size_t GrpcConnection::GiveData(int32_t id, Stream* stream, char* to, size_t most, bool* last) {
  size_t given = 0;
  while (given < most && stream->next < stream->unsent.size()) {
    const GrpcFrame& frame = stream->unsent[stream->next];
    const size_t copied = frame.Copy(stream->sent, to + given, most - given);
    given += copied;
    stream->sent += copied;
    if (stream->sent < frame.size()) break;
    const GrpcFrame done = std::move(stream->unsent[stream->next++]);  // whose memory is of use to others
    stream->sent = 0;
  }
  stream->unsent_bytes -= given;
  if (given != 0) stream->write_waits = false;
  if (stream->next == stream->unsent.size()) {
    stream->unsent.clear();
    stream->next = 0;
    if (stream->over) {
      *last = true;
      SendTrailers(id, *stream);
    }
  }
  return given;
}

void GrpcConnection::SendHead(int32_t id, Stream* stream) {
  const nghttp2_nv fields[] = {Field(":status", "200"), Field("content-type", kContentType)};
  nghttp2_data_provider provider{};
  provider.read_callback = &Callbacks::ReadData;
  Must(nghttp2_submit_response(session_.get(), id, fields, std::size(fields), &provider));
  stream->has_response = true;
}

void GrpcConnection::SendEnd(int32_t id, Stream* stream) {
  if (stream->has_response) {
    nghttp2_session_resume_data(session_.get(), id);  // as in Send()
    return;
  }
  const std::string code = Concat(static_cast<int>(stream->code));
  const nghttp2_nv fields[] = {
      Field(":status", "200"), Field("content-type", kContentType), Field("grpc-status", code),
      Field("grpc-message", stream->text)};
  Must(nghttp2_submit_response(
      session_.get(), id, fields, std::size(fields) - (stream->text.empty() ? 1 : 0), nullptr));
  stream->has_response = true;
}

void GrpcConnection::SendTrailers(int32_t id, const Stream& stream) {
  const std::string code = Concat(static_cast<int>(stream.code));
  const nghttp2_nv fields[] = {Field("grpc-status", code), Field("grpc-message", stream.text)};
  Must(nghttp2_submit_trailer(session_.get(), id, fields, std::size(fields) - (stream.text.empty() ? 1 : 0)));
}

void GrpcConnection::RejectHead(int32_t id, Stream* stream, std::string_view http_status) {
  const nghttp2_nv fields[] = {Field(":status", http_status)};
  Must(nghttp2_submit_response(session_.get(), id, fields, std::size(fields), nullptr));
  stream->has_response = true;
  stream->over = true;
}

void GrpcConnection::Fail(int32_t id, Stream* stream, GrpcCode code, std::string reason) {
  stream->over = true;
  stream->code = code;
  stream->text = GrpcMessageText(reason);
  SendEnd(id, stream);
  if (!stream->opened) return;
  events_.push_back(
      {.kind = GrpcEvent::Kind::kReset, .stream = id, .code = code, .reason = std::move(reason)});
}

void GrpcConnection::TakeClose(int32_t id) {
  const auto found = streams_.find(id);
  if (found == streams_.end()) return;
  partial_bytes_ -= found->second.reader.partial_bytes();
  const bool tells = found->second.opened && !found->second.over;
  streams_.erase(found);
  if (!tells) return;
  events_.push_back(
      {.kind = GrpcEvent::Kind::kReset,
       .stream = id,
       .code = GrpcCode::kCancelled,
       .reason = "the peer reset the stream"});
}

}  // namespace vllm_router
