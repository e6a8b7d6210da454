// WorkerConnection: one client of a simulated worker, from accept to close: reads a request, responds at
// the engine's pace while watching for a disconnect, and reads the next one.
//
// A stream wakes at the end of each step that may bring it a token. A request that waits for its first
// token or for the whole response wakes at the engine's next event, which may come sooner when another
// job leaves.
//
// Lives in the coroutine that Serve() spawns, on one loop's thread.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>

#include "http/body_reader.h"
#include "http/head_parser.h"
#include "net/buffer.h"
#include "net/event_loop.h"
#include "net/socket.h"
#include "net/task.h"
#include "simulation/websocket_frames.h"
#include "simulation/worker_state.h"

namespace vllm_router {

class ResponsesSession;
class WorkerConnection;

// The state that the connections of one loop share.
struct WorkerThread {
  WorkerState& state;
  EventLoop& loop;
  WorkerCounts& counts;
  uint16_t port = 0;
  std::string fingerprint{};
  BufferPool pool{};
  Snapshot<Faults>::Cached faults;
  std::unordered_set<WorkerConnection*> open{};
  std::unordered_set<WorkerConnection*> awaiting_event{};
  bool stopping = false;  // the last connection stops the loop

  WorkerThread(WorkerState& state, EventLoop& loop, WorkerCounts& counts)
      : state(state), loop(loop), counts(counts), faults(state.faults_snapshot()) {}

  // The engine's next event came nearer: connections that wait for it poll again. On the loop's thread.
  void WakeWaiting();
  // Closes all connections; `reset`: as a dying process would.
  void CloseAll(bool reset);
};

class WorkerConnection {
 public:
  static void Serve(WorkerThread& thread, Socket socket) { Spawn(Live(thread, std::move(socket))); }

  WorkerConnection(WorkerThread& thread, Socket socket);
  ~WorkerConnection();
  WorkerConnection(const WorkerConnection&) = delete;
  WorkerConnection& operator=(const WorkerConnection&) = delete;

  // Cancels its current operation, now or in the loop's next turn.
  void Kill(bool reset);
  void WakeEarly() { delay_.Cancel(); }

 private:
  // What a worker with a stage keeps of a request to an API.
  struct Staged {
    CapturedRequest captured;
    TransferParams params;
    bool head_sent = false;        // of a stream
    bool prefilled = false;        // the engine has finished it: its blocks outlive the connection
    size_t blocks = 0;             // decode: allocated for the transfer
    std::string transfer{"null"};  // prefill: the response's kv_transfer_params
  };

  // The data of a request's head that outlive its bytes, and how its response is to be sent.
  struct Answering {
    SimRoute route = SimRoute::kUnknown;
    bool post = false;
    bool to_head = false;
    bool http_10 = false;
    bool close = false;  // the connection, after the response
    std::string request_id;
    Faults faults;
    int64_t bytes_left = -1;         // until the connection is to be closed; -1: no limit
    bool websocket = false;          // it has been switched: events are messages
    bool broken = false;             // broken off on purpose, because a fault requested it
    bool counted = false;            // as finished
    std::unique_ptr<Staged> staged;  // of a worker with a stage
    std::optional<ConversationStore::Turn> turn;
    std::string method;  // of a request to /v1/conversations or below, as are these
    std::string path;
    std::string body;
  };

  static Task<void> Live(WorkerThread& thread, Socket socket);
  Task<void> Run();
  // False: the connection has ended.
  Task<bool> ReadHead();
  Task<bool> ReadMore();
  // kBad has had its response, kGone needs none.
  enum class BodyResult : uint8_t { kRead, kBad, kGone };
  Task<BodyResult> ReadBody(BodyReader* reader, std::string* kept, uint64_t* bytes, uint32_t* crc);

  // Each responds to one request; false: the connection is to be closed.
  Task<bool> Answer();
  Task<bool> AnswerEcho();
  Task<bool> AnswerPlain();
  Task<bool> AnswerConversation();
  Task<bool> AnswerFixed();
  // Of a WebSocket (worker_websocket.cc). False of all: the connection has ended.
  Task<bool> AnswerWebSocket();
  Task<bool> AnswerFrame(WebSocketOpcode opcode, std::string_view payload, ResponsesSession* session);
  Task<bool> AnswerMessage(std::string_view message, ResponsesSession* session);
  static void WriteEventMessages(std::string_view events, std::string* out);
  // A response's last bytes are about to leave: it is counted before a client can read them.
  void CountFinished();
  // It has ended. `complete`: all of it was sent.
  void CountEnd(bool complete);
  // As ParseRequest; of a worker with a stage, it captures the request and reads its parameters as well, of another one a
  // request in a conversation gets the items of that.
  StatusOr<SimRequest> Parse(std::string_view body);
  Task<bool> AnswerApi(StatusOr<SimRequest> parsed);
  Task<bool> AnswerGeneration(const SimRequest& request, const AnswerStamp& stamp);

  // Of a worker with a stage. False of the first two: the client has gone.
  Task<bool> Pass(StageGate gate);
  bool EngineDied();
  Task<bool> FinishPrefill(const SimRequest& request, const AnswerStamp& stamp, const Usage& usage);
  Task<bool> AnswerDecode(SimRequest& request, const AnswerStamp& stamp);
  enum class PullEnd : uint8_t { kPulled, kFailed, kEngineDied, kGone };
  Task<PullEnd> PullBlocks(SimRequest* request);
  Task<void> AwaitPullEnd();
  // As the result of Answer(): an error, which a stream whose head is sent carries as an event.
  Task<bool> SendStageError(std::string_view message);
  void AppendTransfer(std::string* body) const;
  // True: the whole response was sent.
  Task<bool> AnswerStreamed(const SimRequest& request, EngineWork& work, const AnswerStamp& stamp);
  Task<bool> AnswerWhole(const SimRequest& request, EngineWork& work, const AnswerStamp& stamp);
  // Events as they go out: in a chunk, plain until the connection closes, or as messages.
  void WriteEvents(std::string_view events, bool last, std::string* out) const;
  // True: a fault has responded to, or broken off, the request; then `*keep` is the result of Answer().
  Task<bool> Misbehave(bool* keep);
  bool CountGone();

  void ReadHeadFields(const RequestHead& head);
  Task<bool> SendOwn(int status, std::string_view body, std::string_view content_type = "application/json");
  Task<bool> SendError(int status, std::string_view message, bool wrong_type = false);
  Task<bool> Send(std::string_view bytes);
  // The number of bytes that the socket takes at once; -1: it has ended, or we have ended it.
  int64_t SendNow(std::string_view bytes);
  // False: the client has gone.
  Task<bool> WaitUntil(int64_t time);
  Task<bool> WaitForEvent(EngineWork& work);
  // Waits until all responses have begun; from then on the cached tokens are known.
  Task<bool> WaitForFirstToken(const SimRequest& request, EngineWork& work);

  void Watch();
  void Unwatch();
  void OnReadable();
  static void OnReadableCall(void* self) { static_cast<WorkerConnection*>(self)->OnReadable(); }
  static void OnIdle(void* self) { static_cast<WorkerConnection*>(self)->socket_.Close(); }

  WorkerThread& thread_;
  WorkerState& state_;
  Socket socket_;
  Buffer buffer_;  // received and not yet used
  RequestHeadParser parser_;
  Delay delay_;
  Timer idle_;
  Answering answering_;
  std::string out_;
  bool gone_ = false;  // the client has gone, or we closed the connection
  bool watching_ = false;
  bool served_ = false;  // at least one request
};

}  // namespace vllm_router
