// A connection of a simulated worker that has become a WebSocket of /v1/responses: each message of type
// `response.create` is a request, each event of its response a message.
#include <ctime>
#include <utility>

#include "base/text.h"
#include "simulation/responses_api.h"
#include "simulation/responses_session.h"
#include "simulation/websocket_frames.h"
#include "simulation/worker_connection.h"

namespace vllm_router {

namespace {

constexpr size_t kMaxMessageBytes = size_t{64} << 20;
constexpr uint16_t kUnsupportedData = 1003;  // a binary message

std::string_view FieldOf(const RequestHead& head, std::string_view name) {
  for (const HeaderField& field : head.fields) {
    if (EqualsIgnoreCase(field.name, name)) return field.value;
  }
  return "";
}

std::string CloseFrame(uint16_t code) {
  std::string frame;
  const char payload[] = {static_cast<char>(code >> 8), static_cast<char>(code)};
  WriteWebSocketFrame(WebSocketOpcode::kClose, {payload, sizeof(payload)}, &frame);
  return frame;
}

}  // namespace

void WorkerConnection::WriteEventMessages(std::string_view events, std::string* out) {
  constexpr std::string_view kEnd = "\n\n", kData = "data: ";
  while (!events.empty()) {
    const size_t end = events.find(kEnd);
    const std::string_view event = events.substr(0, end);
    WriteWebSocketFrame(WebSocketOpcode::kText, event.substr(event.find(kData) + kData.size()), out);
    events.remove_prefix(end + kEnd.size());
  }
}

Task<bool> WorkerConnection::AnswerWebSocket() {
  const RequestHead& head = parser_.head();
  const std::string_view key = FieldOf(head, "sec-websocket-key");
  if (key.empty()) {
    answering_.close = true;
    const bool keep = co_await SendError(400, "The request for a WebSocket has no Sec-WebSocket-Key.");
    co_return keep;
  }
  const std::string switched = Concat(
      "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n",
      "Sec-WebSocket-Accept: ", WebSocketAccept(key), "\r\n\r\n");
  buffer_.Consume(head.size);
  if (answering_.faults != Faults{}) {
    bool keep = false;
    const bool done = co_await Misbehave(&keep);
    if (done) co_return keep;
  }
  const bool switched_sent = co_await Send(switched);
  if (!switched_sent) co_return false;
  answering_.websocket = true;

  WebSocketReader reader(kMaxMessageBytes);
  ResponsesSession session;
  for (bool open = true; open;) {
    size_t used = 0;
    const WebSocketReader::State state = reader.Feed(buffer_.view(), &used);
    buffer_.Consume(used);
    if (state == WebSocketReader::State::kMore) {
      open = co_await ReadMore();
    } else if (state == WebSocketReader::State::kBad) {
      co_await Send(CloseFrame(reader.close_code()));
      open = false;
    } else {
      open = co_await AnswerFrame(reader.opcode(), reader.payload(), &session);
    }
  }
  co_return false;
}

Task<bool> WorkerConnection::AnswerFrame(
    WebSocketOpcode opcode, std::string_view payload, ResponsesSession* session) {
  bool open = true;
  switch (opcode) {
    case WebSocketOpcode::kText:
      open = co_await AnswerMessage(payload, session);
      break;
    case WebSocketOpcode::kPing:
      out_.clear();
      WriteWebSocketFrame(WebSocketOpcode::kPong, payload, &out_);
      open = co_await Send(out_);
      break;
    case WebSocketOpcode::kClose:
      out_.clear();
      WriteWebSocketFrame(WebSocketOpcode::kClose, payload, &out_);
      co_await Send(out_);
      open = false;
      break;
    case WebSocketOpcode::kBinary:
      out_ = CloseFrame(kUnsupportedData);
      co_await Send(out_);
      open = false;
      break;
    case WebSocketOpcode::kPong:
    case WebSocketOpcode::kContinuation:
      break;
  }
  co_return open;
}

Task<bool> WorkerConnection::AnswerMessage(std::string_view message, ResponsesSession* session) {
  Count(thread_.counts.routes[static_cast<size_t>(SimRoute::kResponses)]);
  answering_.counted = false;
  StatusOr<SimRequest> request = absl::InternalError("not parsed");
  StatusOr<std::string> body = session->Expand(message);
  if (body.ok()) {
    request = ParseRequest(Api::kResponses, *body, state_.options().model);
  } else {
    request = body.status();
  }
  if (!request.ok()) {
    Count(thread_.counts.failed);
    std::string error;
    WriteSessionError(request.status(), &error);
    out_.clear();
    WriteWebSocketFrame(WebSocketOpcode::kText, error, &out_);
    const bool sent = co_await Send(out_);
    co_return sent;
  }
  // With the upgrade's id in front, so that no two workers have the same.
  const std::string id = answering_.request_id + Hex16(state_.NextRequestNumber());
  const AnswerStamp stamp{id, std::time(nullptr), thread_.fingerprint};
  const bool complete = co_await AnswerGeneration(*request, stamp);
  Unwatch();
  std::string items;
  WriteOutputItems(*request, id, &items);
  session->Complete(AnswerId(Api::kResponses, id), items);
  co_return complete;
}

}  // namespace vllm_router
