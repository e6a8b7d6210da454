// GrpcConnection: the server's side of one HTTP/2 connection that carries gRPC calls; bytes in, events and bytes out, no
// socket.
//
//   GrpcConnection connection;
//   connection.Feed(bytes_from_the_peer);                  // FailedPrecondition: it is no HTTP/2; close the socket
//   for (GrpcEvent& event : connection.TakeEvents()) …     // a stream opens, sends messages, half-closes, is reset
//   connection.Send(event.stream, message);
//   connection.Finish(event.stream, GrpcCode::kOk);        // trailers; no event of the stream follows
//   while (connection.Write(&out, 64 * 1024)) …            // bytes for the peer, after each of these calls
//   if (connection.ended()) …                              // nothing is to be read or written any more
//
//   a stream:   kOpened, kMessage*, kHalfClosed?, kReset?      kReset is the last, and comes unless Finish() or Reset() did
//
// Limits. A stream that is beyond one ends with a status, and the others go on: a message of more than max_message_bytes,
// a head of more than max_head_bytes, messages of all streams that are incomplete and together above max_partial_bytes
// (kResourceExhausted each), a compressed message (kUnimplemented), an end within a message (kInternal). A client that resets more
// than max_resets_per_second, or that does not read what HTTP/2 itself must send, loses the connection. A stream that is
// paused gives no credit to its sender, which can then send one window more. What Send() keeps has no limit of its own: the
// owner looks at unsent_bytes(), and pauses the stream. There is no clock here: the owner calls EndStalledWrites() and
// EndStalledReads(), each once for each of its timeouts, and a stream that has stood still from one call to the next ends.
//
// nghttp2 does HTTP/2: frames, HPACK, flow control, the order of headers. Cost: a copy of each message in, two of each out, to
// nghttp2 and to Write(). One thread; not movable, since nghttp2 has its address.
// The protocol: RFC 9113; grpc.io, "gRPC over HTTP2".
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/status.h"
#include "grpc/grpc_frame.h"

struct nghttp2_session;

namespace vllm_router {

struct GrpcLimits {
  uint32_t max_streams = 1024;                 // that are open at once
  size_t max_message_bytes = 4 * 1024 * 1024;  // from the peer; gRPC's usual default
  size_t max_head_bytes = 64 * 1024;  // names and values of a stream's head, and 32 for each of its fields
  size_t max_partial_bytes = 64 * 1024 * 1024;    // of incomplete messages, over all streams
  uint32_t stream_window = 1024 * 1024;           // bytes that may come on a stream before credit is given
  uint32_t connection_window = 16 * 1024 * 1024;  // the same of the connection
  uint32_t max_resets_per_second = 100;
};

struct GrpcEvent {
  enum class Kind : uint8_t {
    kOpened,      // path and metadata have come
    kMessage,     // one is complete
    kHalfClosed,  // the peer sends no more
    kReset,       // the peer reset the stream, or broke a rule: nothing can be sent on it
  };
  Kind kind;
  int32_t stream;
  std::string path = {};  // of kOpened, as "/package.Service/Method"
  // Of kOpened: names in lower case, and values as they came, without what HTTP/2 and gRPC themselves read.
  std::vector<std::pair<std::string, std::string>> metadata = {};
  std::string message = {};  // of kMessage
  GrpcCode code =
      GrpcCode::kOk;        // of kReset: kCancelled if the peer did it, else the status that it was sent
  std::string reason = {};  // of kReset
};

class GrpcConnection {
 public:
  explicit GrpcConnection(const GrpcLimits& limits = {});
  ~GrpcConnection();
  GrpcConnection(const GrpcConnection&) = delete;
  GrpcConnection& operator=(const GrpcConnection&) = delete;

  // Takes all of `bytes`. FailedPrecondition, with what is wrong, for bytes that end the connection at once; a peer that breaks
  // a rule of HTTP/2 in a way that can be told gets a GOAWAY by Write() instead, and ended() follows.
  Status Feed(std::string_view bytes);
  // In the order in which they happened. Write() may make some, too.
  std::vector<GrpcEvent> TakeEvents() { return std::exchange(events_, {}); }
  // Appends bytes for the peer to `out`, until there are `most` of them or a little more. True: there are more.
  bool Write(std::string* out, size_t most);

  // Queues a message. False: the stream is over.
  bool Send(int32_t stream, std::string message);
  // Ends the stream, with its trailers behind the messages. `text` is for people. False: it is over already.
  bool Finish(int32_t stream, GrpcCode code, std::string_view text = {});
  // Ends the stream at once, without what is queued. False: it is over already.
  bool Reset(int32_t stream);
  // While it is paused, the peer gets no credit to send more on this stream.
  void SetPaused(int32_t stream, bool paused);
  // Resets streams of which Write() has taken nothing since the last call, though there was something then.
  void EndStalledWrites();
  // Ends streams within a message that was incomplete at the last call already, unless they were paused (kDeadlineExceeded).
  void EndStalledReads();
  // Of messages with their frames, that Write() has not taken; 0 for a stream that is over.
  size_t unsent_bytes(int32_t stream) const;

  // Tells the peer to open no more streams here; those that are on their way are served.
  void Drain();
  // The same, but streams that are not open yet are dropped; the connection ends with its last stream. After Drain(), once a
  // round trip has passed.
  void Close();
  // The peer has begun as a client of HTTP/2 does: with the preface and its settings.
  bool greeted() const { return greeted_; }
  // Nothing is left to be read or written: the socket can be closed.
  bool ended() const;
  size_t streams() const { return streams_.size(); }

 private:
  struct Stream {
    explicit Stream(size_t max_message_bytes) : reader(max_message_bytes) {}

    GrpcFrameReader reader;
    // The head, while it comes.
    std::vector<std::pair<std::string, std::string>> metadata;
    std::string path;
    std::string method;
    std::string content_type;
    std::string encoding;
    size_t head_bytes = 0;
    bool head_too_large = false;

    bool opened = false;        // there was an event of it
    bool over = false;          // for the caller: no event follows, and nothing can be sent
    bool has_response = false;  // its head is queued
    bool paused = false;
    size_t withheld = 0;            // bytes without credit for their sender
    std::vector<GrpcFrame> unsent;  // from `next` on, and of that from `sent` on
    size_t next = 0;
    size_t sent = 0;
    size_t unsent_bytes = 0;
    bool write_waits = false;       // since the last EndStalledWrites()
    bool read_waits = false;        // since the last EndStalledReads()
    GrpcCode code = GrpcCode::kOk;  // of the trailers, once it is over
    std::string text;
  };
  struct Callbacks;
  struct Free {
    void operator()(nghttp2_session* session) const;
  };

  Stream* Find(int32_t id);
  void TakeField(int32_t id, std::string_view name, std::string_view value);
  void EndHead(int32_t id, Stream* stream);
  void TakeData(int32_t id, std::string_view bytes);
  void EndInput(int32_t id, Stream* stream);
  size_t GiveData(int32_t id, Stream* stream, char* to, size_t most, bool* last);
  void SendHead(int32_t id, Stream* stream);
  void SendEnd(int32_t id, Stream* stream);
  void SendTrailers(int32_t id, const Stream& stream);
  void RejectHead(int32_t id, Stream* stream, std::string_view http_status);
  // The peer broke a rule.
  void Fail(int32_t id, Stream* stream, GrpcCode code, std::string reason);
  void TakeClose(int32_t id);

  const GrpcLimits limits_;
  std::unordered_map<int32_t, Stream> streams_;
  std::vector<GrpcEvent> events_;
  size_t partial_bytes_ = 0;
  bool greeted_ = false;
  std::unique_ptr<nghttp2_session, Free> session_;  // calls back into all of the above
};

}  // namespace vllm_router
