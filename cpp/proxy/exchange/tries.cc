#include "proxy/exchange/tries.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "base/check.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/text.h"
#include "http/dot_segments.h"
#include "http/unframe.h"
#include "proxy/client/tls_files.h"
#include "proxy/exchange/relay.h"
#include "proxy/exchange/upstream_parts.h"
#include "proxy/thread/breaker_transitions.h"
#include "proxy/thread/io_thread.h"
#include "proxy/thread/quarantine.h"

namespace vllm_router {
namespace {

constexpr int64_t kNanosPerMs = 1'000'000;

iovec Piece(std::string_view bytes) { return {const_cast<char*>(bytes.data()), bytes.size()}; }

// Empty if it is not there.
std::string_view FieldOf(const ResponseHead& head, std::string_view name) {
  for (const HeaderField& field : head.fields) {
    if (EqualsIgnoreCase(field.name, name)) return field.value;
  }
  return {};
}

// Whether a byte of the body, or its end, is behind the head. A chunk's size line alone is neither.
bool HasBodyByte(const ResponseHead& head, std::string_view received) {
  const std::string_view body = received.substr(head.size);
  if (head.framing != BodyFraming::kChunked) return !body.empty();
  const size_t line_end = body.find('\n');
  return line_end != std::string_view::npos && line_end + 1 < body.size();
}

// Of a connect that failed: errno values that say something of the other end, and not of this process.
bool IsWorkersFault(int error) {
  return error == ECONNREFUSED || error == ECONNRESET || error == EHOSTUNREACH || error == ENETUNREACH ||
         error == ETIMEDOUT;
}

// Whether asking two workers is no worse than asking one. Inference keeps nothing; of other requests the method tells.
bool MayBeRepeated(const RequestHead& head, Route route) {
  return RouteOf(route).repeatable || head.method == "GET" || head.method == "HEAD" ||
         head.method == "OPTIONS";
}

}  // namespace

Tries::Tries(Lane& lane, ExchangeRecord& record, const Hooks& hooks)
    : lane_(lane), record_(record), hooks_(hooks), server_errors_(lane) {}

Tries::~Tries() { lane_.response_parsers.Give(std::move(answer_parser_)); }

Task<Tries::End> Tries::Run(const Request& request) {
  request_ = request;
  // A body that cannot be sent twice must not meet a connection that its worker is just closing.
  replayable_ = !request_.stream_body || request_.body->keeps_pieces();
  if (!plan_) {  // kFull may have ended an earlier run
    lane_.retry_budget.CountRequest(record_.body_ns);
    plan_.emplace(
        lane_.options.retry, MayBeRepeated(*request_.head, record_.route), !request.client_restricted);
  }
  KeptAnswer failed_answer;
  while (Select()) {
    PutAnswerAside(std::move(failed_answer));
    if (lost_once_) endangers_.Begin(record_.worker);
    const bool answered = co_await AskOnce();
    endangers_.End();
    if (cancelled_) co_return End::kCancelled;
    JudgeTry(answered);
    std::optional<FailedTry> failed = Failure(answered);
    answered_ = answered;
    if (!failed) co_return End::kAnswered;

    tried_.push_back(ticket_.worker().id);
    failed->untried_left = !request_.pinned && AnyUntried();
    const int64_t now = lane_.clock.NowNanos();
    std::optional<int64_t> pause;
    if (replayable_) pause = plan_->Next(*failed, now, lane_.ids);
    if (failed->how == TryFailure::kLost || failed->how == TryFailure::kBroken) {
      lost_once_ = true;
      ReportLoss();
      if (pause && IsSuspected()) pause.reset();  // it may have ended two workers already
    }
    // What no worker has had makes no load when it is sent again, so the budget is not for it.
    const bool makes_load = failed->how != TryFailure::kConnect;
    if (pause && makes_load && !lane_.retry_budget.Take(now)) pause.reset();
    record_.retries_exhausted = plan_->exhausted();
    if (!pause) co_return answered || FallBackOnAnswer() ? End::kAnswered : End::kFailed;

    failed_answer = {.bytes = {}, .worker = record_.worker, .decision = record_.decision};
    ++record_.retries;
    lane_.recorder.Retried(ticket_.shared_worker(), plan_->failures(), *pause);
    ticket_.Finish({.end = Outcome::End::kWorkerFailed, .status = failed->status});
    const bool go_on = co_await WaitForNextTry(*pause);
    if (!go_on) co_return End::kCancelled;
    answered_ = false;
    request_.body->Rewind();
  }
  // Nobody may be chosen. What the last worker said is better than what we could say, if it is still at hand.
  answered_ = lease_ != nullptr;
  const bool at_hand = answered_ || FallBackOnAnswer();
  co_return at_hand ? End::kAnswered : all_full_ ? End::kFull : End::kFailed;
}

// What went wrong with the try that has just ended; nullopt when its answer is for the client.
std::optional<FailedTry> Tries::Failure(bool answered) const {
  FailedTry failed{.first_sent_ns = first_sent_ns_};
  if (!answered) {
    failed.how = had_request_ ? TryFailure::kLost
                 : error_ == HttpError::kConnectFailed || error_ == HttpError::kConnectTimeout
                     ? TryFailure::kConnect
                 : error_ == HttpError::kWorkerBadAnswer    ? TryFailure::kBadAnswer
                 : error_ == HttpError::kWorkerWriteTimeout ? TryFailure::kSendTimeout
                 : error_ == HttpError::kFirstByteTimeout   ? TryFailure::kFirstByteTimeout
                                                            : TryFailure::kBroken;
    return failed;
  }
  const ResponseHead& head = answer();
  if (!IsRetryableStatus(head.status)) return std::nullopt;
  failed.how = TryFailure::kStatus;
  failed.status = head.status;
  failed.retry_after_ms = ParseRetryAfter(FieldOf(head, "retry-after"));
  return failed;
}

// The answer stays at hand while we wait, for if nobody else may be chosen afterwards.
Task<bool> Tries::WaitForNextTry(int64_t pause_ns) {
  if (!request_sent_) {
    co_await StopSending();
    if (lease_ != nullptr)
      Fail(HttpError::kWorkerClosed);  // its answer is given up, the request being unfinished
    lease_.reset();
  }
  if (cancelled_) co_return false;
  Delay delay(lane_.loop);
  pause_ = &delay;
  co_await delay.For(pause_ns);
  pause_ = nullptr;
  co_return !cancelled_;
}

// Of the failed try. If all of it has come, its connection can serve again, and the client can have it in the end.
void Tries::PutAnswerAside(KeptAnswer kept) {
  if (lease_ == nullptr) return;
  const ResponseHead& head = answer();
  kept.bytes = answer_in_->view();
  bool worker_closed = false;
  std::array<char, 4096> more;
  while (kept.bytes.size() <= kDrainedAnswerBytes && !worker_closed) {
    const IoResult read = lease_->socket.TryRead(more);
    if (read.would_block()) break;
    worker_closed = !read.ok();
    if (read.ok()) kept.bytes.append(more.data(), static_cast<size_t>(read.bytes));
  }
  std::string body = kept.bytes.substr(head.size);
  BodyReader reader(head.framing, head.content_length, MessageKind::kResponse);
  const Unframed rest = Unframe(reader, body);
  const bool whole = kept.bytes.size() <= kDrainedAnswerBytes && head.framing != BodyFraming::kUntilClose &&
                     !rest.bad && reader.ended() && rest.used == body.size();
  GiveBack(whole && request_sent_ && head.keep_alive && !worker_closed);
  if (whole) kept_ = std::move(kept);
}

// What a worker said is better than what we could say.
bool Tries::FallBackOnAnswer() {
  if (!kept_) return false;
  if (!ticket_.finished()) ticket_.Finish({.end = Outcome::End::kWorkerFailed});
  if (answer_parser_ == nullptr) answer_parser_ = lane_.response_parsers.Take();
  answer_parser_->Reset(request_.head->method == "HEAD");
  answer_in_->Clear();
  answer_in_->Append(kept_->bytes);
  const ParseState parsed = answer_parser_->Feed(answer_in_->view());
  ROUTER_CHECK(parsed == ParseState::kDone, "an answer that was read before can be read again");
  record_.worker = std::move(kept_->worker);
  record_.decision = std::move(kept_->decision);
  kept_.reset();
  return true;
}

// One worker. If a connection to it that had been resting turns out closed, it is asked once more on a fresh one.
Task<bool> Tries::AskOnce() {
  bool fresh = !replayable_ || lost_once_;
  had_request_ = false;
  for (;;) {
    if (!fresh) lease_ = lane_.upstreams.Take(ticket_.worker().id);  // 7 LEASE
    if (lease_ == nullptr) {
      const bool connected = co_await Connect();
      if (cancelled_) co_return false;
      if (!connected) {
        Fail(connect_timed_out_ ? HttpError::kConnectTimeout : HttpError::kConnectFailed);
        co_return false;
      }
    }
    record_.connected_ns = lane_.clock.NowNanos();
    record_.reused = lease_->reused;
    WriteHead();
    co_await lane_.loop.TurnEnd();
    Send();                                        // 8 SEND
    const Awaited awaited = co_await AwaitHead();  // 9 AWAIT
    if (awaited == Awaited::kHead) {
      // That it could be connected to says nothing: a process that ends may close its listener after its connections.
      if (answer().status < 500) ReportWorkerUp(lane_, ticket_.worker().url, record_.sent_ns);
      co_return true;
    }
    if (cancelled_) co_return false;
    const bool stale =
        awaited == Awaited::kEnded && !given_up_ && lease_->reused && !worker_spoke_ && replayable_;
    const HttpError error = given_up_                  ? *given_up_
                            : awaited == Awaited::kBad ? HttpError::kWorkerBadAnswer
                                                       : HttpError::kWorkerClosed;
    had_request_ = error == HttpError::kWorkerClosed && (request_sent_ || worker_spoke_);
    co_await StopSending();
    lease_.reset();
    if (cancelled_) co_return false;
    if (!stale) {
      Fail(error);
      co_return false;
    }
    // The worker closed an idle connection while we wrote: not its failure, and not an attempt. Unless it cannot be
    // connected to: then it may as well have died of the request.
    fresh = true;
    request_.body->Rewind();
    record_.stale_retry = true;
  }
}

void Tries::Cancel() {
  cancelled_ = true;
  if (name_ != nullptr) Resolver::Waiter::Cancel(name_);
  if (connector_ != nullptr) connector_->Cancel();
  if (pause_ != nullptr) pause_->Cancel();
  if (lease_ != nullptr) lease_->socket.Close();
}

void Tries::WorkerDied() {
  const bool awaits_response = lease_ != nullptr && !answered_ && pause_ == nullptr;
  if (awaits_response) GiveUp(HttpError::kWorkerClosed);
}

void Tries::Fail(HttpError error, std::string message) {
  error_ = error;
  message_ = std::move(message);
}

bool Tries::timed_out() const {
  return error_ == HttpError::kFirstByteTimeout || error_ == HttpError::kWorkerWriteTimeout;
}

// ---- 6 SELECT

bool Tries::Select() {
  fleet_ = lane_.fleet.Get();
  if (!fleet_->steady()) {
    WorkersComeDue(lane_, *fleet_);
    fleet_ = lane_.fleet.Get();
  }
  pass_.reset();
  refused_.clear();
  for (;;) {
    StatusOr<Ticket> ticket = Choose();
    record_.chosen_ns = lane_.clock.NowNanos();
    if (!ticket.ok()) {
      if (!request_.pinned && SelectInPanic()) break;
      if (request_.pinned) {
        Fail(HttpError::kQueueFull, std::string(ticket.status().message()));
        return false;
      }
      all_full_ = lane_.router->options().max_worker_requests != 0 && fleet_->in_rotation() != 0;
      // After a try, that one's failure says more.
      if (tried_.empty()) Fail(HttpError::kNoWorkers, std::string(ticket.status().message()));
      return false;
    }
    ticket_ = *std::move(ticket);
    if (request_.pinned) {  // nobody else will do, so it is asked even where its circuit breaker is open
      if (!MayHavePath(ticket_.worker())) {
        Fail(HttpError::kPathOutsidePrefix);
        return false;
      }
      pass_ = ticket_.shared_worker()->breaker.TryPass(lane_.options.breaker);
      if (!pass_) pass_ = ticket_.shared_worker()->breaker.PassInPanic();
      break;
    }
    if (!MayHavePath(ticket_.worker())) {
      refused_.push_back(ticket_.worker().id);
      continue;
    }
    pass_ = ticket_.shared_worker()->breaker.TryPass(lane_.options.breaker);
    if (pass_) {
      if (lane_.gates.panicking.load(std::memory_order_relaxed) && !pass_->probe()) {
        EndPanic(lane_, ticket_.worker());
      }
      break;
    }
    refused_.push_back(ticket_.worker().id);  // another thread's request was the probe
  }
  judged_ = sound_ = false;
  record_.worker = ticket_.shared_worker();
  record_.decision = ticket_.decision();
  lane_.recorder.Decided(record_.worker, ticket_.decision());
  return true;
}

// Not a worker with a prefix, the first of which came while this request was on its way, so that nobody has looked at its
// path.
bool Tries::MayHavePath(const Worker& worker) const {
  return worker.url.prefix.empty() || ResolveDotSegments(request_.head->path) == DotSegments::kNone;
}

// Panic mode, after Envoy's: where no circuit breaker admits a request, a worker that failed a while ago is better than an
// error for certain. The one whose breaker opened first of those not tried yet.
bool Tries::SelectInPanic() {
  absl::InlinedVector<uint32_t, 16> positions;
  for (uint32_t position = 0; position < fleet_->members().size(); ++position) {
    if (!fleet_->members()[position].in_rotation()) continue;
    const Worker& worker = fleet_->worker(position);
    if (!MayHavePath(worker)) continue;
    // So it may be chosen, and has no room under --max-worker-requests.
    if (worker.breaker.Admits() && std::ranges::find(refused_, worker.id) == refused_.end()) return false;
    positions.push_back(position);
  }
  const auto order = [this](uint32_t position) {
    const Worker& worker = fleet_->worker(position);
    const auto tried = std::ranges::find(tried_, worker.id);
    return std::pair(tried == tried_.end() ? 0 : tried - tried_.begin() + 1, worker.breaker.opened_ns());
  };
  while (!positions.empty()) {
    const auto first = std::ranges::min_element(positions, {}, order);
    StatusOr<Ticket> ticket = lane_.router->Select(*request_.key, fleet_->Only(*first));
    if (ticket.ok()) {
      ticket_ = *std::move(ticket);
      pass_ = ticket_.shared_worker()->breaker.PassInPanic();
      BeginPanic(lane_, *fleet_);
      return true;
    }
    positions.erase(first);
  }
  return false;
}

// Usually among all that the snapshot says. Under --max-worker-requests, one who has room and was tried, or rests, is
// better than others who have none.
StatusOr<Ticket> Tries::Choose() {
  if (request_.pinned) {
    if (const std::optional<uint32_t> position = fleet_->Find(*request_.pinned)) {
      return lane_.router->SelectPinned(*request_.key, *fleet_, *position, request_.pinned_work);
    }
    request_.pinned.reset();  // it has left the fleet
  }
  if (fleet_->steady() && tried_.empty() && refused_.empty())
    return lane_.router->Select(*request_.key, *fleet_);
  StatusOr<Ticket> ticket = lane_.router->Select(*request_.key, Eligible());
  if (ticket.ok() || lane_.router->options().max_worker_requests == 0) return ticket;
  return lane_.router->Select(*request_.key, Without({}, PassOver::kNobody));
}

// The fleet as this request may see it. The tried workers are left out while there are others, and of these the ones that
// rest, likewise. The tried are told by their ids, so one that joined meanwhile counts as untried. Of the requests that one
// worker was lost with, one may end the next worker as well, so they are kept apart as far as there are workers.
FleetView Tries::Eligible() {
  FleetView rest = Without(tried_, lost_once_ ? PassOver::kRestingAndEndangered : PassOver::kResting);
  if (rest.eligible().empty() && lost_once_) rest = Without(tried_, PassOver::kResting);
  if (rest.eligible().empty()) rest = Without(tried_, PassOver::kNobody);
  if (!rest.eligible().empty() || tried_.empty()) return rest;
  // All were tried: they begin anew, without the one that failed last if it is not alone.
  tried_.erase(tried_.begin(), tried_.end() - 1);
  rest = Without(tried_, PassOver::kNobody);
  if (rest.eligible().empty()) rest = Without({}, PassOver::kNobody);
  return rest;
}

// Those whose breakers admit nobody are always left out.
FleetView Tries::Without(std::span<const WorkerId> tried, PassOver who) const {
  absl::InlinedVector<uint32_t, 16> positions;
  for (const uint32_t position : fleet_->eligible()) {
    const Worker& worker = fleet_->worker(position);
    const bool left_out = !worker.breaker.Admits() ||
                          (who >= PassOver::kResting && worker.cool_down.resting()) ||
                          (who == PassOver::kRestingAndEndangered &&
                           worker.lost_elsewhere.load(std::memory_order_relaxed) != 0) ||
                          std::ranges::find(refused_, worker.id) != refused_.end() ||
                          std::ranges::find(tried, worker.id) != tried.end();
    if (left_out) positions.push_back(position);
  }
  return fleet_->Without(positions);
}

bool Tries::AnyUntried() const {
  const std::shared_ptr<const FleetView>& fleet = lane_.fleet.Get();
  return std::ranges::any_of(fleet->eligible(), [this, &fleet](uint32_t position) {
    const Worker& worker = fleet->worker(position);
    return worker.breaker.Admits() && std::ranges::find(tried_, worker.id) == tried_.end();
  });
}

// ---- what the worker's breaker hears

// `verdict` is on the response's status.
void Tries::Judge(BreakerVerdict verdict) {
  if (!pass_ || std::exchange(judged_, true)) return;
  const std::shared_ptr<Worker>& worker = record_.worker;
  if (verdict == BreakerVerdict::kServerError) {
    server_errors_.Hold(worker, *std::move(pass_));
    pass_.reset();
    return;
  }
  lane_.recorder.Judged(worker, verdict);
  const BreakerOptions& options = lane_.options.breaker;
  const int64_t now = lane_.clock.NowNanos();
  sound_ = verdict == BreakerVerdict::kSuccess;
  if (sound_) {
    worker->responses.CountSuccess(options.window_ms * kNanosPerMs, now);
    server_errors_.ServedBy(*worker);
  }
  const std::optional<BreakerChange> change = pass_->Settle(options, verdict, now);
  if (!change) return;
  const bool panicked = change->from == BreakerState::kOpen;
  BreakerMoved(lane_, worker, *change, panicked ? "it served in panic mode" : std::string_view());
}

// The request may be the reason for what befell it once it was sent, but not for a worker that cannot be reached.
void Tries::JudgeFailure(bool reached, std::string_view why) {
  if (!pass_ || std::exchange(judged_, true)) return;
  const std::shared_ptr<Worker>& worker = record_.worker;
  lane_.recorder.Judged(worker, BreakerVerdict::kFailure);
  if (reached) {
    SettleFailure(lane_, worker, *pass_, FailedAt::kHead, why);
    return;
  }
  const std::optional<BreakerChange> change =
      pass_->Settle(lane_.options.breaker, BreakerVerdict::kFailure, lane_.clock.NowNanos());
  if (change) BreakerMoved(lane_, worker, *change, why);
}

// Of the try that has just ended. Only what the worker did counts: a client that leaves never gets here.
void Tries::JudgeTry(bool answered) {
  if (answered) {
    const ResponseHead& head = answer();
    const std::string_view retry_after = FieldOf(head, "retry-after");
    if (head.status == 429 || head.status == 503) LetRest(ParseRetryAfter(retry_after).value_or(0));
    Judge(VerdictOf(head.status, !retry_after.empty()));
    return;
  }
  const bool unreached = error_ == HttpError::kConnectFailed || error_ == HttpError::kConnectTimeout;
  if (unreached) record_.worker->breaker.NotReached();
  JudgeFailure(!unreached, ErrorOf(error_).code);
  if (unreached || error_ == HttpError::kWorkerClosed) lane_.health.suspect(record_.worker);
}

// Others are asked first for a while.
void Tries::LetRest(int64_t retry_after_ms) {
  Worker& worker = *record_.worker;
  if (retry_after_ms <= 0 || !worker.cool_down.Begin(lane_.clock.NowNanos(), retry_after_ms * kNanosPerMs)) {
    return;
  }
  lane_.router->RefreshFleet();
  Log(LogLevel::kDebug,
      "worker " + worker.url.url + " asks for a rest of " + std::to_string(retry_after_ms / 1000) + " s");
}

void Tries::BlameWorker() { JudgeFailure(/*reached=*/true, "the request's time is over"); }

void Tries::ForgetRequest() {
  // Should it be served to its end, the quarantine is told.
  if (lane_.gates.quarantine.MayForget(request_.body->bytes())) FindDigest();
  std::string().swap(head_for_worker_);
  kept_.reset();
}

void Tries::AnswerEnded(ResponseEnd end) {
  const bool served = record_.status / 100 == 2 || record_.status == 101;
  if (end == ResponseEnd::kWhole && digest_ && served) {
    ReportServed(lane_, record_.worker->url, *digest_, request_.id->id);
  }
  if (!pass_ || !sound_) return;
  if (end == ResponseEnd::kServerError) {
    server_errors_.EndedInError(record_.worker, *pass_);
  } else if (end == ResponseEnd::kBrokeOff) {
    lane_.recorder.Judged(record_.worker, BreakerVerdict::kFailure);
    SettleFailure(lane_, record_.worker, *pass_, FailedAt::kEnd, "its responses break off");
  } else {
    pass_->SettleEnd(lane_.options.breaker, /*broke_off=*/false, lane_.clock.NowNanos());
  }
  if (end != ResponseEnd::kWhole) lane_.health.suspect(record_.worker);
}

// ---- 7 LEASE

Task<bool> Tries::Connect() {
  const WorkerUrl& url = ticket_.worker().url;
  connect_timed_out_ = false;
  deadline_.Arm(lane_.loop.timers(), lane_.options.connect_timeout_ms, &Tries::OnConnectTimeout, this);
  name_ = std::make_shared<Resolver::Waiter>(lane_.loop);
  StatusOr<std::vector<Address>> addresses = co_await lane_.resolver.Resolve(url.host, name_);
  name_ = nullptr;
  const std::shared_ptr<const TlsContext> tls = url.tls ? lane_.tls.workers() : nullptr;
  int error = 0;
  if (addresses.ok() && (tls != nullptr || !url.tls)) {
    for (const Address& address : *addresses) {
      if (cancelled_ || connect_timed_out_) break;
      Connector connector(lane_.loop, tls, url.host);
      connector_ = &connector;
      error = co_await connector.Connect(address, url.port);
      connector_ = nullptr;
      if (error == 0 && !cancelled_) {
        deadline_.Disarm();
        lane_.recorder.connects_ok.fetch_add(1, std::memory_order_relaxed);
        lease_ = lane_.upstreams.Adopt(connector.TakeSocket(), ticket_.worker().id);
        co_return true;
      }
    }
  }
  deadline_.Disarm();
  if (cancelled_) co_return false;
  lane_.recorder.connects_failed.fetch_add(1, std::memory_order_relaxed);
  lane_.resolver.Doubt(url.host);
  if (connect_timed_out_ || IsWorkersFault(error)) ReportWorkerDown(lane_, url);
  co_return false;
}

void Tries::OnConnectTimeout(void* context) {
  auto* tries = static_cast<Tries*>(context);
  tries->connect_timed_out_ = true;
  if (tries->name_ != nullptr) Resolver::Waiter::Cancel(tries->name_);
  if (tries->connector_ != nullptr) tries->connector_->Cancel();
}

// A body that was streamed and not kept is not here any more; nor is it sent to a second worker.
void Tries::FindDigest() {
  const bool has_body = !request_.stream_body || (request_.body->keeps_pieces() && request_.body->complete());
  if (!has_body || digest_) return;
  digest_ = DigestOf(lane_, *request_.head, request_.body->held(), request_.client.address);
}

void Tries::ReportLoss() {
  FindDigest();
  if (!digest_) return;
  lane_.gates.quarantine.ReportLoss(
      {.digest = *digest_,
       .bytes = request_.body->bytes(),
       .host = HostNumber(ticket_.worker().url),
       .client = ClientNumber(lane_, *request_.head, request_.client.address),
       .request_id = request_.id->id},
      lane_.clock.NowNanos());
}

bool Tries::IsSuspected() {
  return digest_.has_value() && lane_.gates.quarantine.IsSuspected(*digest_, lane_.clock.NowNanos());
}

// ---- 8 SEND

void Tries::WriteHead() {
  const RequestHead& head = *request_.head;
  const WorkerUrl& url = ticket_.worker().url;
  const bool has_body = head.framing != BodyFraming::kNone;
  const bool chunked = has_body && request_.stream_body && head.framing == BodyFraming::kChunked;
  UpstreamHeadParts parts = PartsFor(lane_, url, request_.client);
  parts.data_parallel_rank = url.rank;
  parts.websocket = head.websocket;
  parts.framing = !has_body ? BodyFraming::kNone : chunked ? BodyFraming::kChunked : BodyFraming::kLength;
  parts.content_length = request_.stream_body ? head.content_length : request_.body->held().size();
  head_for_worker_.clear();
  WriteUpstreamHead(head, parts, &head_for_worker_);
}

// The whole request in one write if the socket takes it; what it does not take, and a streamed body, is the sender's.
void Tries::Send() {
  ++record_.attempts;
  request_sent_ = false;
  record_.sent_ns = lane_.clock.NowNanos();
  if (first_sent_ns_ == 0) first_sent_ns_ = record_.sent_ns;

  const std::string_view body = request_.stream_body ? std::string_view() : request_.body->held();
  std::array<iovec, 2> pieces = {Piece(head_for_worker_), Piece(body)};
  const IoResult write = lease_->socket.TryWrite(pieces);
  if (write.error != 0 && !write.would_block()) return;  // AWAIT finds out, and may still find an answer
  const size_t written = static_cast<size_t>(write.bytes);
  if (!request_.stream_body && written == head_for_worker_.size() + body.size()) {
    request_sent_ = true;
    return;
  }
  sending_ = true;
  Spawn(SendRest(written));
}

// Runs beside AWAIT and RELAY.
Task<void> Tries::SendRest(size_t written) {
  const std::string_view body = request_.stream_body ? std::string_view() : request_.body->held();
  std::array<iovec, 3> pieces = {Piece(head_for_worker_), Piece(body)};
  bool sent = co_await SendPieces(SkipWritten({pieces.data(), 2}, written));
  if (request_.stream_body) {
    const bool chunked = request_.head->framing == BodyFraming::kChunked;
    std::string size_line;
    while (sent) {
      const RequestBody::End end = co_await request_.body->Next();
      if (end != RequestBody::End::kOk) {
        sent = false;
        if (end != RequestBody::End::kStopped) hooks_.body_failed(hooks_.context, end);
        break;
      }
      const std::string_view piece = request_.body->piece();
      if (!piece.empty()) {
        size_t count = 0;
        if (chunked) {
          size_line.clear();
          WriteChunkSize(piece.size(), &size_line);
          pieces[count++] = Piece(size_line);
        }
        pieces[count++] = Piece(piece);
        if (chunked) pieces[count++] = Piece("\r\n");
        sent = co_await SendPieces({pieces.data(), count});
      }
      if (piece.empty() || (!chunked && request_.body->complete())) {
        if (chunked) {
          pieces[0] = Piece("0\r\n\r\n");
          sent = co_await SendPieces({pieces.data(), 1});
        }
        break;
      }
    }
    if (sent) hooks_.body_sent(hooks_.context);
  }
  request_sent_ = sent;
  sending_ = false;
  sender_done_.Notify();
}

Task<bool> Tries::SendPieces(std::span<iovec> pieces) {
  Socket& socket = lease_->socket;
  while (!pieces.empty()) {
    const IoResult write = socket.TryWrite(pieces);
    if (write.would_block()) {
      ++record_.worker_stalls;
      send_deadline_.Arm(
          lane_.loop.timers(), lane_.options.upstream_write_timeout_ms, &Tries::OnSendStalled, this);
      const bool writable = co_await socket.Writable();
      send_deadline_.Disarm();
      if (!writable) co_return false;
      continue;
    }
    if (write.error != 0) co_return false;
    pieces = SkipWritten(pieces, static_cast<size_t>(write.bytes));
  }
  co_return true;
}

void Tries::OnSendStalled(void* context) {
  auto* tries = static_cast<Tries*>(context);
  // A worker that has begun to answer need not read the rest of the request.
  if (!tries->answered_) tries->GiveUp(HttpError::kWorkerWriteTimeout);
}

Task<void> Tries::StopSending() {
  if (!sending_) co_return;
  lease_->socket.Close();
  request_.body->Stop();
  while (sending_) co_await sender_done_;
}

// ---- 9 AWAIT

Task<Tries::Awaited> Tries::AwaitHead() {
  if (answer_parser_ == nullptr) answer_parser_ = lane_.response_parsers.Take();
  const bool to_head = request_.head->method == "HEAD";
  const bool to_upgrade = request_.head->websocket;
  answer_parser_->Reset(to_head, to_upgrade);
  if (!answer_in_.has_value()) answer_in_.emplace(lane_.buffers);
  answer_in_->Clear();
  worker_spoke_ = false;
  given_up_.reset();
  const ServerOptions& options = lane_.options;
  deadline_.Arm(
      lane_.loop.timers(),
      options.first_byte_timeout_ms != 0 ? options.first_byte_timeout_ms : options.request_timeout_ms,
      &Tries::OnFirstByteTimeout, this);
  Socket& socket = lease_->socket;
  int informational = 0;
  bool holding = false;  // a whole head, until a byte of its body comes
  for (;;) {
    const bool readable = co_await socket.Readable();
    if (!readable) {  // cancelled, or given up
      deadline_.Disarm();
      co_return Awaited::kEnded;
    }
    answer_in_->Reserve(answer_in_->empty() ? BufferPool::kSmallest : answer_in_->size());
    const IoResult read = socket.TryRead(answer_in_->room());
    if (read.would_block()) continue;
    if (!read.ok()) {
      deadline_.Disarm();
      co_return Awaited::kEnded;
    }
    answer_in_->Commit(static_cast<size_t>(read.bytes));
    worker_spoke_ = true;
    if (holding) {
      answer_parser_->Reset(to_head, to_upgrade);
      answer_parser_->Feed(answer_in_->view());  // the buffer may have moved
    }
    while (!answer_in_->empty() && !holding) {
      const ParseState state = answer_parser_->Feed(answer_in_->view());
      if (state == ParseState::kNeedMore) break;
      const int status = state == ParseState::kDone ? answer_parser_->head().status : 0;
      const bool informational_head = state == ParseState::kDone && status < 200 && status != 101;
      if (!informational_head || ++informational > kMaxInformationalHeads) {
        record_.answered_ns = lane_.clock.NowNanos();
        holding = state == ParseState::kDone && HoldsHead(answer_parser_->head());
        if (holding) break;
        deadline_.Disarm();
        if (status == 101 && !request_sent_) co_return Awaited::kBad;
        co_return state == ParseState::kDone && !informational_head ? Awaited::kHead : Awaited::kBad;
      }
      answer_in_->Consume(answer_parser_->head().size);
      answer_parser_->Reset(to_head, to_upgrade);
    }
    if (holding && HasBodyByte(answer_parser_->head(), answer_in_->view())) {
      deadline_.Disarm();
      co_return Awaited::kHead;
    }
  }
}

// vLLM sends the 200 of a stream before it has queued the request, so that head promises nothing yet: until a byte of
// the body comes, another worker may be tried, and the client may still get a true status.
bool Tries::HoldsHead(const ResponseHead& head) const {
  return lane_.options.hold_stream_head && head.status == 200 && head.event_stream &&
         (head.framing == BodyFraming::kChunked || head.framing == BodyFraming::kUntilClose ||
          (head.framing == BodyFraming::kLength && head.content_length != 0));
}

void Tries::OnFirstByteTimeout(void* context) {
  static_cast<Tries*>(context)->GiveUp(HttpError::kFirstByteTimeout);
}

void Tries::GiveUp(HttpError why) {
  if (!given_up_) given_up_ = why;
  lease_->socket.Close();
}

// ---- afterwards

void Tries::ForgetAnswerHead() { lane_.response_parsers.Give(std::move(answer_parser_)); }

void Tries::GiveBack(bool reusable) {
  if (lease_ != nullptr && reusable) lane_.upstreams.Give(std::move(lease_));
  lease_.reset();
}

}  // namespace vllm_router
