// The worker's response, to the client: its bytes as they come, or a tunnel after a switch of protocols.
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/limits.h"
#include "http/body_reader.h"
#include "proxy/api/error_event.h"
#include "proxy/api/settings.h"
#include "proxy/exchange/body_sink.h"
#include "proxy/exchange/connection.h"
#include "proxy/exchange/downstream.h"
#include "proxy/exchange/relay.h"
#include "proxy/exchange/request.h"
#include "proxy/exchange/resumable_response.h"
#include "proxy/exchange/step.h"
#include "proxy/exchange/tunnel.h"
#include "proxy/exchange/usage_sink.h"
#include "proxy/thread/io_thread.h"

namespace vllm_router {
namespace {

// Streams of these routes end with "data: [DONE]".
bool EndsWithDone(Route route) { return route == Route::kChatCompletions || route == Route::kCompletions; }

// As the head of a client that has had a comment says.
bool IsPlainStream(const ResponseHead& response) {
  return response.status == 200 && response.event_stream && !FindHeader(response.fields, "content-encoding");
}

// Where a response says that its engine aborted the generation. What is asked of a stored response is why that one
// ended, which may be long ago and by its client's wish.
std::optional<ResponseForm> FormOf(const RequestInfo& info) {
  if (info.status != 200) return std::nullopt;
  switch (info.route) {
    case Route::kChatCompletions:
    case Route::kCompletions:
    case Route::kGenerate:
    case Route::kInferenceGenerate:
      return ResponseForm::kChoices;
    case Route::kMessages:
      return ResponseForm::kMessage;
    case Route::kResponses:
      return ResponseForm::kResponse;
    default:
      return std::nullopt;
  }
}

// Each piece of what an engine computes shows that its worker serves.
ResponseProgress* ProgressOf(const Request& request) {
  const bool shows = request.settings.detects_hangs() && request.route().computes;
  const RequestInfo& info = request.info;
  return shows && info.status / 100 == 2 && info.worker != nullptr ? &info.worker->progress : nullptr;
}

void OnFirstByte(void* context) {
  auto* request = static_cast<Request*>(context);
  // Of a stream that goes on at another worker, the first one's counts.
  if (request->info.first_body_ns == 0) request->info.first_body_ns = request->thread.clock.NowNanos();
  ArrivingResponse& response = request->attempts->response();
  if (request->info.stream && response.ticket() != nullptr) response.ticket()->FirstToken();
  response.CountFirstByte();
}

template <CancelReason kReason>
void CancelFor(void* context) {
  static_cast<Request*>(context)->Cancel(kReason);
}

void OnWorkerIdle(void* context) {
  LeaveWorkerOrCancel(*static_cast<Request*>(context), CancelReason::kIdleTimeout);
}

Relay::Hooks HooksFor(Request& request) {
  return {
      .worker_idle = &OnWorkerIdle,
      .first_byte = &OnFirstByte,
      .context = &request,
      .progress = ProgressOf(request)};
}

// The worker's head, which is not needed any more.
void DropHead(ArrivingResponse& response) {
  response.in().Consume(response.head().size);
  response.ForgetHead();
}

// Nothing is sent again once a response is being relayed, unless another worker may finish it. A stream may last for
// minutes.
void ForgetRequest(Request& request) {
  request.attempts->ForgetRequest();
  if (ResumableOf(request) == nullptr) request.Forget();
}

bool KeepsConnection(const ResponseHead& response) {
  return response.keep_alive && response.framing != BodyFraming::kUntilClose;
}

BodyReader ReaderOf(const ResponseHead& response) {
  return {response.framing, response.content_length, MessageKind::kResponse};
}

std::optional<ExchangeEnd> EndSaid(const Request& request, const StreamSummary& summary) {
  // Clients leave when they see such an event, so it counts for clients that left, too.
  if (request.info.stream && summary.server_error) return ExchangeEnd::kWorkerError;
  if (summary.aborted) return ExchangeEnd::kWorkerAborted;
  return std::nullopt;
}

ResponseEnd ResponseEndOf(std::optional<ExchangeEnd> said) {
  return !said                                ? ResponseEnd::kWhole
         : *said == ExchangeEnd::kWorkerError ? ResponseEnd::kServerError
                                              : ResponseEnd::kAborted;
}

void ReadTail(Request& request, const Relay& relay, const StreamSummary& summary) {
  RequestInfo& info = request.info;
  info.bytes_out = relay.bytes();
  info.client_stalls = static_cast<uint32_t>(relay.stalls());
  info.prompt_tokens = summary.prompt_tokens;
  info.completion_tokens = summary.completion_tokens;
  info.cached_tokens = summary.cached_tokens;
  const bool is_needed = info.prompt != nullptr || info.identity != nullptr;
  if (is_needed && info.stream && !info.completion_tokens.has_value()) {
    info.events = relay.tail().EstimateEvents(relay.bytes());
  }
}

// What the end of the response means for its worker, the log, and the client. `end`: kDone if only bytes behind the
// last event are missing, which is then `rest_missing`.
void RecordRelayEnd(
    Request& request, Relay::End end, bool rest_missing, bool worker_keeps, const StreamSummary& summary) {
  RequestInfo& info = request.info;
  Attempts& attempts = *request.attempts;
  const std::optional<ExchangeEnd> said = EndSaid(request, summary);
  const ResumableResponse* const resumable = ResumableOf(request);
  switch (end) {
    case Relay::End::kDone:
      attempts.ResponseEnded(ResponseEndOf(said));
      request.lease_reusable = worker_keeps && attempts.sent() && attempts.response().in().empty() &&
                               !rest_missing &&
                               (resumable == nullptr || resumable->left_worker() == CancelReason::kNone);
      if (said) {
        request.worker_failed = true;
        info.end = *said;
        info.error = *said == ExchangeEnd::kWorkerError ? "worker_error_event" : "worker_aborted";
      } else if (info.stream && !summary.done && EndsWithDone(info.route)) {
        info.end = ExchangeEnd::kNoDone;
      }
      break;
    case Relay::End::kClientGone:
      if (said) attempts.ResponseEnded(ResponseEndOf(said));
      request.Cancel(CancelReason::kClientGone);
      break;
    case Relay::End::kWorkerGone:
    case Relay::End::kBadFraming:
      request.worker_failed = true;
      attempts.ResponseEnded(ResponseEnd::kBrokeOff);
      info.end = ExchangeEnd::kWorkerGone;
      info.error = end == Relay::End::kWorkerGone ? "worker_closed" : "worker_bad_framing";
      request.client.Cut();
      break;
    case Relay::End::kClosed:
      if (request.cancelled == CancelReason::kIdleTimeout || request.cancelled == CancelReason::kWorkerDead) {
        attempts.ResponseEnded(ResponseEnd::kBrokeOff);
      } else if (said) {
        attempts.ResponseEnded(ResponseEndOf(said));
      }
      request.client.Cut();
      break;
  }
}

// What came of another worker is no continuation of what the client has. The first worker is to blame.
void RecordDivergence(Request& request) {
  request.info.end = ExchangeEnd::kWorkerGone;
  request.info.error = "worker_closed";
  request.client.Cut();
}

// The router wrote the end of a stream that lacked nothing else. Its worker did not finish it.
void RecordWrittenEnd(Request& request) {
  request.worker_failed = true;
  request.attempts->ResponseEnded(ResponseEnd::kBrokeOff);
}

// The client gets chunks, as what it gets is of another length.
bool RewritesBody(const Request& request) {
  const ResumableResponse* const resumable = ResumableOf(request);
  return resumable != nullptr && resumable->rewrites();
}

// The stream did not come to its end here, and it can be told whether it goes on.
bool MayResume(const Request& request, const Relay& relay, Relay::End end) {
  return ResumableOf(request) != nullptr && !request.is_cancelled() && !relay.client_left() &&
         end != Relay::End::kClientGone;
}

// What steps still have to do with the response. The client has all of it: neither its departure nor a deadline changes
// what became of the request.
std::vector<Task<void>> WorkAfter(Request& request, bool whole) {
  std::vector<Task<void>> work;
  for (const auto hook : request.pipeline.on_relayed()) {
    if (std::optional<Task<void>> each = hook(request, whole)) work.push_back(*std::move(each));
  }
  if (!work.empty()) {
    request.total_deadline.Disarm();
    request.client.watch().Stop();
  }
  return work;
}

Task<Verdict> RelayResponse(Request& request) {
  Attempts& attempts = *request.attempts;
  Downstream& client = request.client;
  Connection& connection = request.connection;
  RequestInfo& info = request.info;
  const ResponseHead& response = attempts.response().head();
  info.stream = response.event_stream;
  const bool old_client = request.head->minor_version == 0;
  bool worker_keeps = KeepsConnection(response);
  const bool until_close =
      response.framing == BodyFraming::kChunked || response.framing == BodyFraming::kUntilClose;
  const bool chunked = ((until_close || RewritesBody(request)) && !old_client) || client.sent_head();
  const bool ends_with_connection = until_close && old_client;
  if (request.thread.draining || !request.fully_read() || ends_with_connection) connection.keep = false;
  if (!request.fully_read()) connection.linger = true;

  if (response.event_stream) request.ArmTotalDeadline(request.settings.stream_total_timeout_ms);
  const BodyFraming framing = chunked                ? BodyFraming::kChunked
                              : ends_with_connection ? BodyFraming::kUntilClose
                                                     : response.framing;
  const std::string client_head =
      client.sent_head() ? client.TakeUnsent() : client.HeadFor(response, framing);
  BodyReader reader = ReaderOf(response);
  const bool may_change = response.event_stream && response.framing != BodyFraming::kLength &&
                          !FindHeader(response.fields, "content-encoding");
  const std::string* const usage = may_change ? attempts.prefill_usage() : nullptr;
  std::vector<BodySink*> taps;
  request.pipeline.AddTaps(request, response, &taps);
  if (!chunked || usage != nullptr) MakeUnresumable(request);
  ResumableResponse* const resumable = ResumableOf(request);
  DropHead(attempts.response());
  // A worker that responds early may still be taking the body, which must then stay.
  if (attempts.sent()) ForgetRequest(request);

  client.Begin(ends_with_connection);
  Timer client_timer;
  ClientSink to_client(connection.socket, client_head, chunked, client.Stall(client_timer));
  BodySink* sink = &to_client;
  std::vector<std::unique_ptr<TeeSink>> tees;
  for (BodySink* const tap : taps) sink = tees.emplace_back(std::make_unique<TeeSink>(*tap, *sink)).get();
  std::optional<UsageSink> merging;
  if (usage != nullptr) sink = &merging.emplace(*usage, *sink);
  if (resumable != nullptr) sink = &resumable->Begin(*sink);
  std::optional<Relay> relay;
  Relay::End end{};
  ResumableResponse::Resumed resumed{};
  uint64_t stalls = 0;
  do {
    Relay::Hooks hooks = HooksFor(request);  // of this worker
    if (info.stream && usage == nullptr) hooks.client_left = &ClientWatch::OnLeft;
    relay.emplace(
        request.thread.loop, request.attempts->response().socket(), *sink,
        request.settings.stream_idle_timeout_ms, hooks);
    client.set_relay(chunked && info.stream ? &*relay : nullptr);
    request.relaying = true;
    end = co_await relay->Run(request.attempts->response().in(), reader);
    request.relaying = false;
    request.deadline.Disarm();
    stalls += relay->stalls();
    resumed = ResumableResponse::Resumed::kEnds;
    if (MayResume(request, *relay, end)) {
      resumed = co_await resumable->Resume(end);
      if (request.is_cancelled()) end = Relay::End::kClosed;
    }
    if (resumed == ResumableResponse::Resumed::kResumed) {
      worker_keeps = KeepsConnection(request.attempts->response().head());
      reader = ReaderOf(request.attempts->response().head());
      DropHead(request.attempts->response());
      if (request.attempts->sent()) ForgetRequest(request);
    }
  } while (resumed == ResumableResponse::Resumed::kResumed);
  if (resumable != nullptr) co_await resumable->Ended();

  StreamSummary summary = relay->tail().Summarize(FormOf(info));
  if (resumable != nullptr) resumable->Correct(&summary);
  ReadTail(request, *relay, summary);
  info.client_stalls = static_cast<uint32_t>(stalls);
  const bool was_resumed = resumable != nullptr && resumable->resumed();
  if (was_resumed || RewritesBody(request)) info.bytes_out = resumable->bytes();
  const bool rest_missing = relay->client_left() && end != Relay::End::kDone && !request.is_cancelled();
  if (resumed == ResumableResponse::Resumed::kDiffers) {
    RecordDivergence(request);
  } else if (resumed == ResumableResponse::Resumed::kWritten) {
    RecordWrittenEnd(request);
  } else {
    RecordRelayEnd(request, rest_missing ? Relay::End::kDone : end, rest_missing, worker_keeps, summary);
  }
  client.set_relay(nullptr);
  // What two workers made is no response to keep.
  const bool whole = end == Relay::End::kDone && !relay->client_left() && !was_resumed;
  std::vector<Task<void>> work = WorkAfter(request, whole);
  for (Task<void>& each : work) co_await std::move(each);
  co_return Verdict::kEnd;
}

// An error of the worker, or a response that is no event stream, for a client that has the head of a stream: read as a
// whole, and then sent as events.
Task<Verdict> RelayAsEvents(Request& request) {
  Attempts& attempts = *request.attempts;
  Downstream& client = request.client;
  const ResponseHead& response = attempts.response().head();
  const bool worker_keeps = response.keep_alive && response.framing != BodyFraming::kUntilClose;
  const bool is_readable = !FindHeader(response.fields, "content-encoding");
  const int status = response.status;
  BodyReader reader(response.framing, response.content_length, MessageKind::kResponse);
  DropHead(attempts.response());
  CapturedBody body(kDrainedResponseBytes);
  const Relay::Hooks hooks = HooksFor(request);
  Relay relay(
      request.thread.loop, attempts.response().socket(), body, request.settings.stream_idle_timeout_ms,
      hooks);
  const Relay::End end = co_await relay.Run(attempts.response().in(), reader);
  if (end == Relay::End::kDone) {
    attempts.ResponseEnded(ResponseEnd::kWhole);
    request.lease_reusable = worker_keeps && attempts.sent() && attempts.response().in().empty();
  } else if (!request.is_cancelled() || request.cancelled == CancelReason::kIdleTimeout) {
    request.worker_failed = true;
    attempts.ResponseEnded(ResponseEnd::kBrokeOff);
  }
  if (request.is_cancelled()) {
    co_await client.ReplyCancelled();
  } else if (end != Relay::End::kDone) {
    co_await client.ReplyError(
        end == Relay::End::kBadFraming ? HttpError::kWorkerBadResponse : HttpError::kWorkerClosed);
  } else {
    const std::string_view text = is_readable && body.whole() ? body.bytes() : std::string_view();
    std::string events;
    if (status == 200) events = WholeAsEvents(request.info.route, text);
    if (events.empty() && status >= 400) events = ErrorEvents(request.info.route, status, text);
    if (!events.empty()) {
      co_await client.EndStream(events);
    } else {
      co_await client.ReplyError(HttpError::kWorkerBadResponse, "The worker's response is no event stream.");
    }
  }
  std::vector<Task<void>> work = WorkAfter(request, /*whole=*/false);
  for (Task<void>& each : work) co_await std::move(each);
  co_return Verdict::kEnd;
}

// The worker has switched protocols, as requested. Bytes that the client sent behind its request belong
// to the new protocol.
Task<Verdict> RelayWebSocket(Request& request) {
  Attempts& attempts = *request.attempts;
  Connection& connection = request.connection;
  RequestInfo& info = request.info;
  const Settings& settings = request.settings;
  connection.keep = false;
  info.status = attempts.response().head().status;
  request.ArmTotalDeadline(settings.stream_total_timeout_ms);
  const std::string client_head = request.client.HeadFor(attempts.response().head(), BodyFraming::kNone);
  DropHead(attempts.response());
  request.client.watch().Stop();
  ForgetRequest(request);
  request.client.watch().ReturnPipelined();

  request.client.Begin();
  Tunnel tunnel(
      request.thread.loop, connection.socket, attempts.response().socket(),
      {.idle_ms = settings.stream_idle_timeout_ms,
       .client_write_ms = settings.client_write_timeout_ms,
       .worker_write_ms = settings.upstream_write_timeout_ms},
      {.idle = &CancelFor<CancelReason::kIdleTimeout>,
       .client_stalled = &CancelFor<CancelReason::kSlowClient>,
       .worker_stalled = &CancelFor<CancelReason::kSlowWorker>,
       .context = &request});
  request.relaying = true;
  const Tunnel::End end = co_await tunnel.Run(client_head, connection.in, attempts.response().in());
  request.relaying = false;
  request.deadline.Disarm();

  connection.in.Clear();
  request.tunnelled_in = tunnel.bytes_to_worker();
  info.bytes_out = tunnel.bytes_to_client();
  info.client_stalls = static_cast<uint32_t>(tunnel.client_stalls());
  info.worker_stalls += static_cast<uint32_t>(tunnel.worker_stalls());
  if (end == Tunnel::End::kClientGone) request.Cancel(CancelReason::kClientGone);
  if (end == Tunnel::End::kWorkerGone) {
    request.worker_failed = true;
    info.end = ExchangeEnd::kWorkerGone;
    info.error = "worker_closed";
  }
  // What the client sent may have made a worker break off, so only good ends reach the breaker.
  if (end == Tunnel::End::kDone) attempts.ResponseEnded(ResponseEnd::kWhole);
  co_return Verdict::kEnd;
}

// Which of the three.
Task<Verdict> RelayAny(Request& request) {
  Attempts& attempts = *request.attempts;
  RequestInfo& info = request.info;
  const ResponseHead& response = attempts.response().head();
  request.pipeline.OnResponse(request, response);
  if (response.status == 101) return RelayWebSocket(request);
  request.client.StopKeepalive();
  // The head of an earlier attempt, if that one's response is the best available.
  if (info.responded_ns < info.sent_ns) info.responded_ns = request.thread.clock.NowNanos();
  info.status = response.status;
  if (request.client.sent_head() && !IsPlainStream(response)) return RelayAsEvents(request);
  return RelayResponse(request);
}

}  // namespace

extern constexpr Step kRelayStep = {.name = "relay", .run = &RelayAny};

}  // namespace vllm_router
