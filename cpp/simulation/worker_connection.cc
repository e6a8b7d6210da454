#include "simulation/worker_connection.h"

#include <algorithm>
#include <boost/crc.hpp>
#include <cmath>
#include <cstring>
#include <ctime>
#include <utility>

#include "base/limits.h"
#include "base/text.h"
#include "http/head_writer.h"
#include "simulation/responses_api.h"

namespace vllm_router {

namespace {

constexpr size_t kFirstRead = 4 * 1024;
constexpr uint64_t kMaxBodyBytes = uint64_t{1} << 30;  // more is a mistake, even in a test
constexpr size_t kMaxBatchBytes = 64 * 1024;           // of events that are due together
// A closed gate is looked at again after this time: it may be opened by any thread, and so may a worker end.
constexpr int64_t kGateNanos = 1'000'000;
constexpr int64_t kHangNanos = int64_t{3600} * 1'000'000'000;
constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
constexpr std::string_view kGarbage = "\x16\x03\x01 this is not HTTP\r\n\r\n";
constexpr std::string_view kStreamHead =
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
    "Transfer-Encoding: chunked\r\n\r\n";
constexpr std::string_view kStreamHeadUntilClose =
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
    "Connection: close\r\n\r\n";

int64_t NanosOfMs(double ms) { return std::llround(ms * 1e6); }

// A header field's bytes as a JSON string: bytes that are not ASCII are read as Latin-1 characters.
std::string QuotedLatin1(std::string_view text) {
  std::string utf8;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x80) {
      utf8 += c;
    } else {
      utf8 += static_cast<char>(0xc0 | byte >> 6);
      utf8 += static_cast<char>(0x80 | (byte & 0x3f));
    }
  }
  return JsonQuoted(utf8);
}

// Of responses that have begun.
Usage UsageOf(const SimRequest& request, const LiveEngine::Progress& progress) {
  const size_t cached = request.pulled ? request.pulled_cached_tokens : progress.hit_tokens;
  const size_t generated = request.generates ? request.answer_tokens * request.choices() : 0;
  return {request.prompt_tokens(), cached, generated};
}

// Leaves the fault alone when the value is invalid.
void ReadFaultField(std::string_view name, std::string_view value, Faults* faults) {
  const std::optional<uint64_t> number = ParseDecimal(value);
  if (!number || *number > 1'000'000'000) return;
  if (EqualsIgnoreCase(name, "x-sim-status") && *number >= 200 && *number <= 599) {
    faults->status_code = static_cast<int>(*number);
    faults->fail_first_n = 0;
  } else if (EqualsIgnoreCase(name, "x-sim-delay-ms")) {
    faults->latency_ms = static_cast<double>(*number);
  } else if (EqualsIgnoreCase(name, "x-sim-close-after-bytes")) {
    faults->close_after_bytes = static_cast<int64_t>(*number);
  } else if (EqualsIgnoreCase(name, "x-sim-close-after-tokens")) {
    faults->close_after_tokens = static_cast<int64_t>(*number);
  } else if (EqualsIgnoreCase(name, "x-sim-close-early")) {
    faults->close_early = *number != 0;
  } else if (EqualsIgnoreCase(name, "x-sim-hang")) {
    faults->hang = *number != 0;
  } else if (EqualsIgnoreCase(name, "x-sim-garbage")) {
    faults->garbage = *number != 0;
  } else if (EqualsIgnoreCase(name, "x-sim-retry-after")) {
    faults->retry_after_s = static_cast<int>(*number);
  }
}

}  // namespace

void WorkerThread::WakeWaiting() {
  for (WorkerConnection* connection : awaiting_event) connection->WakeEarly();
}

void WorkerThread::CloseAll(bool reset) {
  for (WorkerConnection* connection : open) connection->Kill(reset);
}

WorkerConnection::WorkerConnection(WorkerThread& thread, Socket socket)
    : thread_(thread),
      state_(thread.state),
      socket_(std::move(socket)),
      buffer_(thread.pool),
      delay_(thread.loop) {
  thread_.open.insert(this);
  Count(thread_.counts.connections);
}

WorkerConnection::~WorkerConnection() {
  thread_.open.erase(this);
  Count(thread_.counts.closed_connections);
  if (thread_.stopping && thread_.open.empty()) thread_.loop.Stop();
}

void WorkerConnection::Kill(bool reset) {
  gone_ = true;
  if (reset) socket_.Abort();
  socket_.Close();
  delay_.Cancel();
}

Task<void> WorkerConnection::Live(WorkerThread& thread, Socket socket) {
  WorkerConnection connection(thread, std::move(socket));
  co_await connection.Run();
}

Task<void> WorkerConnection::Run() {
  for (;;) {
    const bool arrived = co_await ReadHead();
    if (!arrived) break;
    const bool keep = co_await Answer();
    Unwatch();
    served_ = true;
    if (!keep || gone_) break;
  }
  socket_.Close();
}

Task<bool> WorkerConnection::ReadHead() {
  parser_.Reset();
  for (;;) {
    if (!buffer_.empty()) {
      const ParseState state = parser_.Feed(buffer_.view());
      if (state == ParseState::kDone) co_return true;
      if (state == ParseState::kBad) {
        answering_ = Answering{.close = true};
        if (parser_.error().status != 0) co_await SendError(parser_.error().status, parser_.error().message);
        co_return false;
      }
    } else {
      buffer_.Release();
      if (served_ && state_.options().keep_alive_s > 0) {
        const int64_t idle_ms = std::llround(state_.options().keep_alive_s * 1e3);
        idle_.Arm(thread_.loop.timers(), std::max<int64_t>(1, idle_ms), &WorkerConnection::OnIdle, this);
      }
      const bool open = co_await socket_.Readable();
      idle_.Disarm();
      if (!open) co_return false;
    }
    const bool more = co_await ReadMore();
    if (!more) co_return false;
  }
}

Task<bool> WorkerConnection::ReadMore() {
  if (buffer_.room().empty()) buffer_.Reserve(std::max(kFirstRead, buffer_.size()));
  for (;;) {
    const IoResult read = socket_.TryRead(buffer_.room());
    if (read.bytes > 0) {
      buffer_.Commit(static_cast<size_t>(read.bytes));
      co_return true;
    }
    if (!read.would_block()) co_return false;
    const bool open = co_await socket_.Readable();
    if (!open) co_return false;
  }
}

Task<WorkerConnection::BodyResult> WorkerConnection::ReadBody(
    BodyReader* reader, std::string* kept, uint64_t* bytes, uint32_t* crc) {
  boost::crc_32_type sum;
  for (;;) {
    const BodyReader::Step step = reader->Feed(buffer_.view());
    if (step.event == BodyReader::Event::kBad) {
      answering_.close = true;
      co_await SendError(400, reader->error());
      co_return BodyResult::kBad;
    }
    *bytes += step.data.size();
    if (crc != nullptr) sum.process_bytes(step.data.data(), step.data.size());
    if (kept != nullptr) kept->append(step.data);
    buffer_.Consume(step.used);
    if (reader->ended()) break;
    if (*bytes > kMaxBodyBytes) {
      answering_.close = true;
      co_await SendError(413, "The body is longer than 1 GiB, the limit of a simulated worker.");
      co_return BodyResult::kBad;
    }
    if (step.event != BodyReader::Event::kNeedMore) continue;
    if (buffer_.empty()) buffer_.Reserve(kRelayBufferMost);
    const bool more = co_await ReadMore();
    if (!more) co_return BodyResult::kGone;
  }
  if (crc != nullptr) *crc = sum.checksum();
  co_return BodyResult::kRead;
}

void WorkerConnection::ReadHeadFields(const RequestHead& head) {
  answering_ = Answering{
      .route = FindSimRoute(head.path),
      .post = head.method == "POST",
      .to_head = head.method == "HEAD",
      .http_10 = head.minor_version == 0,
      .close = !head.keep_alive || head.minor_version == 0,
      .faults = *thread_.faults.Get(),
  };
  if (state_.stage() != nullptr && answering_.post && IsApi(answering_.route)) {
    answering_.staged = std::make_unique<Staged>();
    CapturedRequest& captured = answering_.staged->captured;
    captured.path = head.path;
    for (const HeaderField& field : head.fields) captured.headers.emplace_back(field.name, field.value);
  }
  if (answering_.route == SimRoute::kConversations) {
    answering_.method = head.method;
    answering_.path = head.path;
  }
  for (const HeaderField& field : head.fields) {
    // Two letters decide for nearly all fields.
    if (field.name.size() < 6 || (field.name[0] | 0x20) != 'x' || field.name[1] != '-') continue;
    if (EqualsIgnoreCase(field.name.substr(0, 6), "x-sim-")) {
      ReadFaultField(field.name, field.value, &answering_.faults);
    } else if (EqualsIgnoreCase(field.name, "x-request-id")) {
      answering_.request_id = field.value;
    }
  }
}

Task<bool> WorkerConnection::Answer() {
  const RequestHead& head = parser_.head();
  ReadHeadFields(head);
  const SimRoute route = answering_.route;
  Count(thread_.counts.routes[static_cast<size_t>(route)]);
  if (head.expects_continue) {
    const bool sent = co_await Send(kContinue);
    if (!sent) co_return false;
  }
  if (route == SimRoute::kEcho) {
    const bool keep = co_await AnswerEcho();
    co_return keep;
  }
  if (route == SimRoute::kResponses && head.websocket && state_.stage() == nullptr) {
    const bool keep = co_await AnswerWebSocket();
    co_return keep;
  }

  const bool fixed = answering_.post && !state_.fixed_response().empty();
  const bool api = answering_.post && IsApi(route);
  StatusOr<SimRequest> request = absl::InternalError("not parsed");
  if (head.framing == BodyFraming::kLength && head.content_length <= kMaxBodyBytes) {
    // The usual case: the body is read behind its head, and used in place.
    const size_t length = head.content_length;
    buffer_.Consume(head.size);
    if (buffer_.size() < length) buffer_.Reserve(length - buffer_.size());
    while (buffer_.size() < length) {
      const bool more = co_await ReadMore();
      if (!more) co_return false;
    }
    if (api && !fixed) request = Parse(buffer_.view().substr(0, length));
    if (route == SimRoute::kConversations) answering_.body = buffer_.view().substr(0, length);
    buffer_.Consume(length);
  } else {
    BodyReader reader(head.framing, head.content_length, MessageKind::kRequest);
    buffer_.Consume(head.size);
    std::string body;
    uint64_t bytes = 0;
    const BodyResult result = co_await ReadBody(&reader, &body, &bytes, nullptr);
    if (result != BodyResult::kRead) co_return false;
    if (api && !fixed) request = Parse(body);
    if (route == SimRoute::kConversations) answering_.body = std::move(body);
  }

  if (fixed || api) {
    if (answering_.faults != Faults{}) {
      bool keep = false;
      const bool done = co_await Misbehave(&keep);
      if (done) co_return keep;
    }
    if (fixed) {
      const bool keep = co_await AnswerFixed();
      co_return keep;
    }
    const bool keep = co_await AnswerApi(std::move(request));
    co_return keep;
  }
  bool keep = false;
  if (route == SimRoute::kConversations) {
    keep = co_await AnswerConversation();
  } else {
    keep = co_await AnswerPlain();
  }
  co_return keep;
}

Task<bool> WorkerConnection::AnswerConversation() {
  const std::string id =
      answering_.request_id.empty() ? Hex16(state_.NextRequestNumber()) : answering_.request_id;
  const StatusOr<std::string> body = state_.conversations().Serve(
      {.method = answering_.method,
       .path = answering_.path,
       .body = answering_.body,
       .id = id,
       .now = std::time(nullptr)});
  bool keep = false;
  if (body.ok()) {
    keep = co_await SendOwn(200, *body);
  } else {
    const int status = absl::IsUnimplemented(body.status()) ? 405 : HttpStatusOf(body.status());
    keep = co_await SendError(
        status, std::string_view(body.status().message().data(), body.status().message().size()));
  }
  co_return keep;
}

Task<bool> WorkerConnection::Misbehave(bool* keep) {
  const Faults& faults = answering_.faults;
  const uint64_t number = state_.NumberForFaults();
  *keep = false;
  if (faults.crash_after > 0 && number > faults.crash_after) {
    state_.Crash();
    co_return true;
  }
  if (faults.latency_ms > 0) {
    const bool here = co_await WaitUntil(state_.Now() + NanosOfMs(faults.latency_ms));
    if (!here) co_return CountGone();
  }
  if (faults.hang) {
    bool here = true;
    while (here) here = co_await WaitUntil(state_.Now() + kHangNanos);
    co_return CountGone();
  }
  if (faults.garbage) {
    Count(thread_.counts.failed);
    co_await Send(kGarbage);
    co_return true;
  }
  answering_.bytes_left = faults.close_after_bytes;
  const int status = faults.status_code != 0 ? faults.status_code : faults.fail_first_n > 0 ? 500 : 0;
  if (status != 0 && (faults.fail_first_n == 0 || number <= faults.fail_first_n)) {
    *keep = co_await SendError(status, "The simulated worker was told to respond with this status.");
    co_return true;
  }
  co_return false;
}

bool WorkerConnection::CountGone() {
  Count(thread_.counts.aborted);
  return true;
}

Task<bool> WorkerConnection::AnswerFixed() {
  CountFinished();
  const bool sent = co_await Send(state_.fixed_response());
  CountEnd(sent);
  co_return sent && !answering_.close;
}

void WorkerConnection::CountFinished() {
  if (answering_.turn) state_.conversations().End(*answering_.turn);
  answering_.counted = true;
  Count(thread_.counts.finished);
}

void WorkerConnection::CountEnd(bool complete) {
  if (complete) return;
  if (answering_.counted) thread_.counts.finished.fetch_sub(1, std::memory_order_relaxed);
  Count(answering_.broken ? thread_.counts.failed : thread_.counts.aborted);
}

StatusOr<SimRequest> WorkerConnection::Parse(std::string_view body) {
  StageWorker* const stage = state_.stage();
  if (stage == nullptr) {
    if (answering_.route == SimRoute::kResponses) {
      StatusOr<std::optional<ConversationStore::Turn>> turn = state_.conversations().Begin(body);
      if (!turn.ok()) return turn.status();
      answering_.turn = *std::move(turn);
      if (answering_.turn) body = answering_.turn->body;
    }
    return ParseRequest(ApiOf(answering_.route), body, state_.options().model);
  }
  answering_.staged->captured.body = body;
  stage->Capture(std::move(answering_.staged->captured));
  StatusOr<TransferParams> params = ReadTransferParams(body);
  if (!params.ok()) {
    stage->CountDuplicate();
    return params.status();
  }
  answering_.staged->params = *std::move(params);
  return ParseRequest(ApiOf(answering_.route), body, state_.options().model);
}

Task<bool> WorkerConnection::AnswerApi(StatusOr<SimRequest> parsed) {
  StageWorker* const stage = state_.stage();
  if (stage != nullptr && stage->dead()) {
    const bool keep = co_await SendError(500, kEngineDead);
    co_return keep;
  }
  if (!parsed.ok()) {
    // What is of a wrong type never gets as far as the connector, which would tell prefill.
    const bool wrong_type = IsWrongType(parsed.status());
    if (stage != nullptr && !stage->prefills() && !wrong_type) stage->Release(answering_.staged->params);
    const std::string message(parsed.status().message());
    const bool keep = co_await SendError(HttpStatusOf(parsed.status()), message, wrong_type);
    co_return keep;
  }
  SimRequest& request = *parsed;
  if (stage != nullptr && request.api == Api::kResponses) answering_.request_id = stage->RandomHex(16);
  const std::string id =
      answering_.request_id.empty() ? Hex16(state_.NextRequestNumber()) : std::move(answering_.request_id);
  const AnswerStamp stamp{id, std::time(nullptr), thread_.fingerprint};
  if (ComputesNothing(request.api)) {
    std::string body;
    WriteAnswer(request, stamp, {}, &body);
    Count(thread_.counts.finished);
    const bool keep = co_await SendOwn(200, body);
    co_return keep;
  }

  if (answering_.turn) WriteOutputItems(request, id, &answering_.turn->output);
  bool keep = false;
  if (stage != nullptr && !stage->prefills()) {
    keep = co_await AnswerDecode(request, stamp);
  } else {
    keep = co_await AnswerGeneration(request, stamp);
  }
  co_return keep;
}

Task<bool> WorkerConnection::AnswerGeneration(const SimRequest& request, const AnswerStamp& stamp) {
  EngineWork work(state_, request);
  const bool streamed = request.stream && request.answer_tokens > 0;
  bool complete;
  if (streamed) {
    complete = co_await AnswerStreamed(request, work, stamp);
  } else {
    complete = co_await AnswerWhole(request, work, stamp);
  }
  CountEnd(complete);
  const bool staged = answering_.staged != nullptr;
  if (staged && !complete && !answering_.broken && !answering_.staged->prefilled)
    state_.stage()->CountAborted();
  work.Refresh();
  Count(thread_.counts.generation_tokens, work.progress().tokens * request.choices());
  co_return complete && !answering_.close;
}

Task<bool> WorkerConnection::AnswerWhole(
    const SimRequest& request, EngineWork& work, const AnswerStamp& stamp) {
  const bool begun = co_await WaitForFirstToken(request, work);
  if (!begun) co_return false;
  while (!work.progress().ended) {
    const bool here = co_await WaitForEvent(work);
    if (!here) co_return false;
  }
  const Usage usage = UsageOf(request, work.progress());
  if (answering_.staged != nullptr) {
    const bool here = co_await FinishPrefill(request, stamp, usage);
    if (!here) co_return false;
  }
  std::string body;
  WriteAnswer(request, stamp, usage, &body);
  if (answering_.staged != nullptr) AppendTransfer(&body);
  out_.clear();
  WriteOwnResponse({.body = body, .close = answering_.close, .to_head = answering_.to_head}, &out_);
  if (answering_.faults.close_early)
    answering_.bytes_left = static_cast<int64_t>(out_.size() - body.size() / 2);
  CountFinished();
  if (answering_.staged != nullptr) {
    const size_t head_bytes = out_.size() - (answering_.to_head ? 0 : body.size());
    const bool head_sent = co_await Send(std::string_view(out_).substr(0, head_bytes));
    if (!head_sent) co_return false;
    const bool here = co_await Pass(StageGate::kPrefillBody);
    if (!here) co_return false;
    out_.erase(0, head_bytes);
  }
  const bool sent = co_await Send(out_);
  co_return sent;
}

Task<bool> WorkerConnection::AnswerStreamed(
    const SimRequest& request, EngineWork& work, const AnswerStamp& stamp) {
  const std::string_view head = answering_.http_10 ? kStreamHeadUntilClose : kStreamHead;
  const bool head_sent =
      answering_.websocket || (answering_.staged != nullptr && answering_.staged->head_sent);
  if (!state_.options().late_head && !head_sent) {
    const bool sent = co_await Send(head);
    if (!sent) co_return false;
  }
  const bool begun = co_await WaitForFirstToken(request, work);
  if (!begun) co_return false;

  const std::unique_ptr<ResponseStream> stream = ResponseStream::Open(request, stamp);
  const Usage usage = UsageOf(request, work.progress());
  if (answering_.staged != nullptr) {
    const bool here = co_await Pass(StageGate::kFirstByte);
    if (!here) co_return false;
    work.Refresh();
  }
  size_t break_at = answering_.faults.close_early ? (request.answer_tokens + 1) / 2 : request.answer_tokens;
  const int64_t tokens_left = answering_.faults.close_after_tokens;
  if (tokens_left >= 0) break_at = std::min(break_at, static_cast<size_t>(tokens_left));
  std::string events;
  stream->Begin(usage, &events);
  bool head_due = state_.options().late_head && !answering_.websocket;
  for (size_t token = 0; token < break_at;) {
    // One event per token, as from an engine; events that are due together are sent together.
    const size_t due = std::min(break_at, work.progress().tokens);
    while (token < due && events.size() < kMaxBatchBytes) stream->Token(token++, &events);
    const bool last = token == request.answer_tokens;
    if (last && answering_.staged != nullptr) {
      const bool here = co_await FinishPrefill(request, stamp, usage);
      if (!here) co_return false;
    }
    if (last) stream->End(usage, &events);
    out_.clear();
    if (head_due) out_ = head;
    head_due = false;
    WriteEvents(events, last, &out_);
    events.clear();
    if (last) CountFinished();
    const int64_t sent = SendNow(out_);
    if (sent < 0) co_return false;
    if (static_cast<size_t>(sent) < out_.size()) {
      const bool rest_sent = co_await Send(std::string_view(out_).substr(static_cast<size_t>(sent)));
      if (!rest_sent) co_return false;
    }
    if (last) co_return true;
    while (token < break_at && token >= work.progress().tokens) {
      const bool here = co_await WaitUntil(work.progress().next_token);
      if (!here) co_return false;
      work.Refresh();
    }
  }
  // A fault requested to break off half way.
  answering_.broken = true;
  Kill(false);
  co_return false;
}

void WorkerConnection::WriteEvents(std::string_view events, bool last, std::string* out) const {
  if (answering_.websocket) return WriteEventMessages(events, out);
  if (!answering_.http_10) WriteChunkSize(events.size(), out);
  out->append(events);
  if (!answering_.http_10) out->append(last ? "\r\n0\r\n\r\n" : "\r\n");
}

// All other requests end without a response, as the process that serves them exits.
bool WorkerConnection::EngineDied() {
  const StageWorker* const stage = state_.stage();
  if (stage == nullptr || !stage->dead()) return false;
  answering_.broken = true;
  return true;
}

Task<bool> WorkerConnection::Pass(StageGate gate) {
  StageWorker& stage = *state_.stage();
  if (!stage.closed(gate)) co_return !gone_;
  stage.Enter(gate);
  bool here = true;
  while (here && stage.closed(gate)) here = co_await WaitUntil(state_.Now() + kGateNanos);
  stage.Exit(gate);
  co_return here;
}

// The engine has finished it; from now on a client that leaves ends nothing.
Task<bool> WorkerConnection::FinishPrefill(
    const SimRequest& request, const AnswerStamp& stamp, const Usage& usage) {
  StageWorker& stage = *state_.stage();
  Staged& staged = *answering_.staged;
  if (!stage.prefills()) {
    if (request.stream) co_return true;  // it passed the gate with its first token
    const bool here = co_await Pass(StageGate::kFirstByte);
    co_return here;
  }
  for (;;) {
    std::optional<std::string> transfer =
        stage.FinishPrefill(staged.params, request, stamp.request_id, usage.cached_tokens);
    if (transfer) {
      staged.transfer = *std::move(transfer);
      break;
    }
    const bool here = co_await WaitUntil(state_.Now() + kGateNanos);
    if (!here) co_return false;
  }
  staged.prefilled = true;
  const bool here = co_await Pass(StageGate::kPrefillHead);
  co_return here;
}

void WorkerConnection::AppendTransfer(std::string* body) const {
  const bool messages = answering_.route == SimRoute::kMessages;
  if (answering_.route == SimRoute::kEmbeddings) return;
  if (messages && answering_.staged->transfer == "null") return;
  body->pop_back();
  body->append(R"(,"kv_transfer_params":)").append(answering_.staged->transfer);
  body->append(messages ? "}" : R"(,"ec_transfer_params":null})");
}

Task<bool> WorkerConnection::AnswerDecode(SimRequest& request, const AnswerStamp& stamp) {
  StageWorker& stage = *state_.stage();
  Staged& staged = *answering_.staged;
  if (request.stream && request.answer_tokens > 0 && !state_.options().late_head) {
    staged.head_sent = co_await Send(answering_.http_10 ? kStreamHeadUntilClose : kStreamHead);
    if (!staged.head_sent) co_return !CountGone();
  }
  const bool admitted = co_await Pass(StageGate::kAdmission);
  if (!admitted) co_return !CountGone();  // the engine never saw it, so the prefill worker is not told

  const bool transfers = staged.params.remote_prefill;
  PullEnd end = PullEnd::kFailed;
  if (transfers) end = co_await PullBlocks(&request);
  if (end == PullEnd::kGone) {
    if (gone_) stage.CountAborted();
    co_return !CountGone();
  }
  const bool recomputes = end == PullEnd::kFailed && (!transfers || stage.recomputes());
  if (recomputes) stage.CountLocalPrefills(request.prompts.size());
  if (end != PullEnd::kPulled && !recomputes) {
    const bool keep = co_await SendStageError(end == PullEnd::kFailed ? kTransferFailed : kEngineDead);
    co_return keep;
  }
  const auto blocks = static_cast<int64_t>(end == PullEnd::kPulled ? staged.blocks : 0);
  stage.AddDecodeBlocks(blocks);
  const bool keep = co_await AnswerGeneration(request, stamp);
  stage.AddDecodeBlocks(-blocks);
  co_return keep;
}

Task<WorkerConnection::PullEnd> WorkerConnection::PullBlocks(SimRequest* request) {
  StageWorker& stage = *state_.stage();
  Staged& staged = *answering_.staged;
  staged.blocks = stage.BlocksOf(*request);
  stage.AddDeferred(1);
  const bool scheduled = co_await Pass(StageGate::kPullBegin);
  if (!scheduled) {
    stage.AddDeferred(-1);
    if (!stage.dead()) stage.Release(staged.params);
    co_return PullEnd::kGone;
  }
  if (!staged.params.whole) {  // the engine trips over them when it aborts the request
    bool here = true;
    while (here) here = co_await WaitUntil(state_.Now() + kGateNanos);
    stage.AddDeferred(-1);
    if (!thread_.stopping) state_.EndEngine();
    co_return PullEnd::kGone;
  }
  if (!stage.NamesEnoughBlocks(staged.params, *request)) {
    stage.AddDeferred(-1);
    state_.EndEngine();
    co_return PullEnd::kEngineDied;
  }
  co_await AwaitPullEnd();
  stage.AddDeferred(-1);
  if (stage.dead()) co_return PullEnd::kGone;
  const bool pulled = stage.Pull(staged.params, request);
  co_return gone_ ? PullEnd::kGone : pulled ? PullEnd::kPulled : PullEnd::kFailed;
}

// A pull that has begun is not cancelled: when the client leaves, the blocks stay until the prefill worker has responded
// (the gate) or is dead.
Task<void> WorkerConnection::AwaitPullEnd() {
  StageWorker& stage = *state_.stage();
  const TransferParams& params = answering_.staged->params;
  const auto blocks = static_cast<int64_t>(answering_.staged->blocks);
  const auto waits = [&] {
    return stage.closed(StageGate::kPullEnd) && stage.IsPeerAlive(params) && !thread_.stopping &&
           !state_.crashed() && !stage.dead();
  };
  stage.AddFetching(1);
  stage.AddDecodeBlocks(blocks);
  stage.Enter(StageGate::kPullEnd);
  bool here = true;
  while (here && waits()) here = co_await WaitUntil(state_.Now() + kGateNanos);
  stage.Exit(StageGate::kPullEnd);
  stage.AddFetching(-1);
  if (!here) {
    stage.AddDeferred(-1);
    stage.AddLeaked(blocks);
    while (waits()) co_await delay_.For(kGateNanos);
    stage.AddLeaked(-blocks);
    stage.AddDeferred(1);
  }
  stage.AddDecodeBlocks(-blocks);
}

Task<bool> WorkerConnection::SendStageError(std::string_view message) {
  if (!answering_.staged->head_sent) {
    const bool keep = co_await SendError(500, message);
    co_return keep;
  }
  Count(thread_.counts.failed);
  const std::string events = Concat(
                                 R"(data: {"error": {"message": )", JsonQuoted(message),
                                 R"(, "type": "InternalServerError", "param": null, "code": 500}})") +
                             "\n\ndata: [DONE]\n\n";
  out_.clear();
  WriteEvents(events, /*last=*/true, &out_);
  const bool sent = co_await Send(out_);
  co_return sent && !answering_.close;
}

Task<bool> WorkerConnection::WaitForEvent(EngineWork& work) {
  Watch();
  thread_.awaiting_event.insert(this);
  co_await delay_.For(work.progress().next_event - state_.Now());
  thread_.awaiting_event.erase(this);
  if (gone_ || EngineDied()) co_return false;
  work.Refresh();
  co_return true;
}

Task<bool> WorkerConnection::WaitForFirstToken(const SimRequest& request, EngineWork& work) {
  while (!work.begun()) {
    const bool here = co_await WaitForEvent(work);
    if (!here) co_return false;
  }
  const Usage usage = UsageOf(request, work.progress());
  Count(thread_.counts.prompt_tokens, usage.prompt_tokens);
  Count(thread_.counts.cached_tokens, usage.cached_tokens);
  co_return true;
}

Task<bool> WorkerConnection::WaitUntil(int64_t time) {
  while (state_.Now() < time) {
    Watch();
    co_await delay_.For(time - state_.Now());
    if (gone_ || EngineDied()) co_return false;
  }
  co_return true;
}

Task<bool> WorkerConnection::AnswerPlain() {
  const SimRoute route = answering_.route;
  bool keep = false;
  switch (route) {
    case SimRoute::kHealth:
    case SimRoute::kPing:
      keep = co_await SendOwn(
          state_.stage() != nullptr && state_.stage()->dead() ? 503 : answering_.faults.health_status, "");
      break;
    case SimRoute::kModels:
      keep = co_await SendOwn(200, state_.ModelsJson());
      break;
    case SimRoute::kVersion:
      keep = co_await SendOwn(200, R"({"version":"simulated"})");
      break;
    case SimRoute::kLoad:
      keep = co_await SendOwn(200, state_.LoadJson());
      break;
    case SimRoute::kMetrics:
      keep = co_await SendOwn(200, state_.MetricsText(), "text/plain; version=0.0.4; charset=utf-8");
      break;
    case SimRoute::kStats:
      keep = co_await SendOwn(200, state_.StatsJson());
      break;
    case SimRoute::kReset:
      state_.ClearCache();
      keep = co_await SendOwn(200, R"({"success":true})");
      break;
    case SimRoute::kKvEventSources:
      keep = co_await SendOwn(200, state_.KvEventSourcesJson());
      break;
    case SimRoute::kKvCacheEvents:
      if (answering_.post) {
        keep = co_await SendOwn(200, state_.TakeKvEvents());
      } else {
        keep = co_await SendError(405, "Method Not Allowed");
      }
      break;
    case SimRoute::kUnknown:
      keep = co_await SendError(404, "Not Found");
      break;
    default:
      keep = co_await SendError(405, "Method Not Allowed");
      break;
  }
  co_return keep;
}

Task<bool> WorkerConnection::AnswerEcho() {
  const RequestHead& head = parser_.head();
  std::string json = "{\"method\":" + QuotedLatin1(head.method) + ",\"path\":" + QuotedLatin1(head.path) +
                     ",\"query\":" + QuotedLatin1(head.query) + ",\"headers\":[";
  for (const HeaderField& field : head.fields) {
    if (json.back() != '[') json += ',';
    json += "[" + QuotedLatin1(field.name) + "," + QuotedLatin1(field.value) + "]";
  }
  BodyReader reader(head.framing, head.content_length, MessageKind::kRequest);
  buffer_.Consume(head.size);
  uint64_t bytes = 0;
  uint32_t crc = 0;
  const BodyResult result = co_await ReadBody(&reader, nullptr, &bytes, &crc);
  if (result != BodyResult::kRead) co_return false;
  json += "],\"body_bytes\":" + std::to_string(bytes) + ",\"body_crc32\":" + std::to_string(crc) +
          ",\"port\":" + std::to_string(thread_.port) + "}";
  if (answering_.faults != Faults{}) {
    bool keep = false;
    const bool done = co_await Misbehave(&keep);
    if (done) co_return keep;
  }
  const bool keep = co_await SendOwn(200, json);
  co_return keep;
}

Task<bool> WorkerConnection::SendOwn(int status, std::string_view body, std::string_view content_type) {
  const std::string retry_after = std::to_string(answering_.faults.retry_after_s);
  const HeaderField extra{"Retry-After", retry_after};
  const bool has_extra = status >= 400 && answering_.faults.retry_after_s > 0;
  out_.clear();
  WriteOwnResponse(
      {.status = status,
       .content_type = content_type,
       .extra = std::span(&extra, has_extra ? 1 : 0),
       .body = body,
       .close = answering_.close,
       .to_head = answering_.to_head},
      &out_);
  const bool sent = co_await Send(out_);
  co_return sent && !answering_.close;
}

Task<bool> WorkerConnection::SendError(int status, std::string_view message, bool wrong_type) {
  Count(thread_.counts.failed);
  std::string body;
  const Api api = IsApi(answering_.route) ? ApiOf(answering_.route) : Api::kChat;
  WriteError(api, status, message, &body, wrong_type);
  const bool keep = co_await SendOwn(status, body);
  co_return keep;
}

int64_t WorkerConnection::SendNow(std::string_view bytes) {
  int64_t& left = answering_.bytes_left;
  const bool cut = left >= 0 && static_cast<uint64_t>(left) <= bytes.size();
  if (cut) bytes = bytes.substr(0, static_cast<size_t>(left));
  size_t sent = 0;
  while (sent < bytes.size()) {
    const iovec piece{const_cast<char*>(bytes.data()) + sent, bytes.size() - sent};
    const IoResult written = socket_.TryWrite(std::span(&piece, 1));
    if (written.would_block()) break;
    if (!written.ok()) {
      gone_ = true;
      return -1;
    }
    sent += static_cast<size_t>(written.bytes);
  }
  if (left >= 0) left -= static_cast<int64_t>(sent);
  if (cut && left == 0) {
    answering_.broken = true;
    Kill(false);
    return -1;
  }
  return static_cast<int64_t>(sent);
}

Task<bool> WorkerConnection::Send(std::string_view bytes) {
  for (;;) {
    const int64_t sent = SendNow(bytes);
    if (sent < 0) co_return false;
    bytes.remove_prefix(static_cast<size_t>(sent));
    if (bytes.empty()) co_return true;
    const bool open = co_await socket_.Writable();
    if (!open || gone_) co_return false;
  }
}

void WorkerConnection::Watch() {
  if (watching_) return;
  watching_ = true;
  socket_.WatchReadable(&WorkerConnection::OnReadableCall, this);
}

void WorkerConnection::Unwatch() {
  if (watching_) socket_.WatchReadable(nullptr, nullptr);
  watching_ = false;
}

void WorkerConnection::OnReadable() {
  watching_ = false;
  // The next request may arrive before this one has its response; only behind it can a disconnect be
  // seen.
  while (buffer_.size() < kMaxPipelinedBytes) {
    if (buffer_.room().empty()) buffer_.Reserve(kFirstRead);
    const IoResult read = socket_.TryRead(buffer_.room());
    if (read.bytes > 0) {
      buffer_.Commit(static_cast<size_t>(read.bytes));
    } else if (read.would_block()) {
      Watch();
      return;
    } else {
      Kill(false);  // a half-closed connection counts as gone, as it does with uvicorn
      return;
    }
  }
}

}  // namespace vllm_router
