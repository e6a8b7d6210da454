#include "proxy/disaggregation/stage_leg.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/limits.h"
#include "disaggregation/merged_response.h"
#include "http/dechunk.h"
#include "http/stream_tail.h"
#include "proxy/api/settings.h"
#include "proxy/disaggregation/pd_exchange.h"
#include "proxy/telemetry/stage_telemetry.h"
#include "proxy/telemetry/telemetry.h"
#include "proxy/thread/io_thread.h"
#include "proxy/thread/server_limits.h"

namespace vllm_router {
namespace {

constexpr size_t kErrorBytes = 1 << 20;  // of a response that the client may get at the end
constexpr size_t kMergedBytes = 8 << 20;
constexpr int64_t kErrorTimeoutMs = 5'000;  // for the rest of such a response
constexpr int64_t kEventTimeoutMs = 1'000;  // for the rest of a stream's first event
constexpr int64_t kPrefillRestMs = 30'000;  // for the rest of the prefill worker's response

// What vLLM's API server says once its engine has died.
constexpr std::string_view kEngineDied = "EngineCore encountered an issue";

// The types of errors behind which vLLM's connector tells prefill to free the blocks. What its API rejects before (a
// member of a wrong type) has the phrase of the status as its type, and something in front of it anything else.
constexpr std::array<std::string_view, 3> kEngineErrors = {
    "\"BadRequestError\"", "\"NotFoundError\"", "\"UnprocessableEntityError\""};

std::string_view Trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  return first == std::string_view::npos ? std::string_view() : text.substr(first);
}

enum class FirstEvent : uint8_t { kNoError, kUnfinished, kError };

bool MayBegin(std::string_view text, std::string_view whole) {
  return text.size() < whole.size() ? whole.starts_with(text) : text.starts_with(whole);
}

// What a stream begins with: whether its first event is an error of the server. Lines before its data are skipped.
FirstEvent FirstEventOf(std::string_view body) {
  constexpr std::string_view kData = "data:";
  constexpr std::string_view kEvent = "event:";
  bool is_named_error = false;
  std::string_view rest = body;
  while (!rest.starts_with(kData)) {
    const size_t line_end = rest.find('\n');
    if (line_end == std::string_view::npos) return FirstEvent::kUnfinished;
    const std::string_view line = rest.substr(0, line_end);
    if (line.starts_with(kEvent)) {
      is_named_error = Trimmed(line.substr(kEvent.size())).starts_with("error");
      if (!is_named_error) return FirstEvent::kNoError;
    } else if (!line.empty() && line != "\r" && !line.starts_with(":")) {
      return FirstEvent::kNoError;
    }
    rest.remove_prefix(line_end + 1);
  }
  constexpr std::string_view kError = "\"error\"";
  std::string_view data = Trimmed(rest.substr(kData.size()));
  if (data.empty()) return FirstEvent::kUnfinished;
  if (data.front() != '{') return FirstEvent::kNoError;
  data = Trimmed(data.substr(1));
  if (!is_named_error && !MayBegin(data, kError)) return FirstEvent::kNoError;
  const size_t end = std::min(rest.find("\n\n"), rest.find("\r\n\r\n"));
  if (end == std::string_view::npos) return FirstEvent::kUnfinished;
  StreamTail tail;
  tail.Add(rest.substr(0, end));
  tail.Add("\n\n");
  return tail.Summarize().server_error ? FirstEvent::kError : FirstEvent::kNoError;
}

// Its worker was taken out of the fleet. That says nothing against it or the prefill worker, as if it were busy.
constexpr PdEvent kDrainedDecode{.type = PdEventType::kDBusy};

}  // namespace

StageLeg::StageLeg(PdExchange& owner, IoThread& thread, RequestInfo& info, Stage stage)
    : owner_(owner),
      thread_(thread),
      info_(info),
      stage_(stage),
      memory_(thread.limits.body_memory, thread.loop) {}

void StageLeg::Start(
    const Settings& settings, ServerErrors& errors, Setup setup, WorkerChoice::Selected selected,
    bool fresh) {
  setup_ = std::move(setup);
  copy_ = setup_.patch.Apply(*setup_.body, setup_.insertions);
  setup_.message.copy = &copy_;
  setup_.message.client.request_id = setup_.id;
  const UpstreamRequest::Hooks hooks{
      .body_failed = nullptr, .body_sent = nullptr, .context = this, .sending = &StageLeg::OnSending};
  request_.emplace(
      thread_, settings, info_, errors, setup_.message, hooks, std::move(selected.ticket),
      std::move(selected.pass));
  runs_ = true;
  Spawn(Run(fresh));
}

void StageLeg::OnSending(void* context) {
  auto* leg = static_cast<StageLeg*>(context);
  if (!std::exchange(leg->counted_, true)) leg->thread_.telemetry.stages().PairSent(leg->worker());
  if (leg->stage_ == Stage::kDecode && !leg->closed_) leg->owner_.Post({.type = PdEventType::kDSent});
}

void StageLeg::ReturnLoad() {
  Outcome outcome = result_.outcome;
  if (request_->record().first_sent_ns() == 0) outcome.end = Outcome::End::kNotSent;
  request_->ticket().Finish(outcome);
}

void StageLeg::Close() {
  closed_ = true;
  request_->Cancel();
}

Task<void> StageLeg::Run(bool fresh) {
  co_await thread_.loop.Yield();  // not within the step that opens it
  PdEvent event{};
  if (!closed_ && stage_ == Stage::kPrefill) event = co_await RunPrefill(fresh);
  if (!closed_ && stage_ == Stage::kDecode) event = co_await RunDecode(fresh);
  if (closed_) co_await request_->sender().Stop();
  runs_ = false;
  owner_.LegEnded(*this, event);
}

// ---- prefill

Task<PdEvent> StageLeg::RunPrefill(bool fresh) {
  const UpstreamRequest::End end = co_await request_->Run(fresh);
  if (end != UpstreamRequest::End::kResponded) co_return FailedPrefill();
  const bool is_error = request_->response().head().status / 100 != 2;
  const size_t max_bytes = is_error ? kErrorBytes : setup_.max_bytes;
  BodyClaim* const memory = is_error ? nullptr : &memory_;
  const UpstreamResponse::Rest rest =
      co_await request_->response().ReadWhole(max_bytes, kPrefillRestMs, is_error, &whole_, memory);
  co_return OnPrefillResponse(rest);
}

PdEvent StageLeg::FailedPrefill() const {
  switch (request_->outcome().failure()) {
    case AttemptFailure::kConnect:
      return {
          .type = PdEventType::kPUnreached,
          .timed_out = request_->outcome().error() == HttpError::kConnectTimeout};
    case AttemptFailure::kFirstByteTimeout:
    case AttemptFailure::kSendTimeout:
      return {.type = PdEventType::kPTimeout};
    default:
      return {.type = PdEventType::kPLost};
  }
}

PdEvent StageLeg::OnPrefillResponse(UpstreamResponse::Rest rest) {
  result_.status = request_->response().head().status;
  result_.outcome.status = result_.status;
  if (result_.status / 100 == 2) return OnPrefillSuccess(rest);
  switch (OnError(rest)) {
    case PdResponseClass::kBusy:
      return {.type = PdEventType::kPBusy};
    case PdResponseClass::kError:
      return {.type = PdEventType::kPError};
    default:
      return {.type = PdEventType::kPRejected};
  }
}

PdEvent StageLeg::OnPrefillSuccess(UpstreamResponse::Rest rest) {
  using Rest = UpstreamResponse::Rest;
  result_.outcome.end = rest == Rest::kWhole ? Outcome::End::kFinished : Outcome::End::kWorkerFailed;
  if (rest == Rest::kTooLong) {
    return setup_.must_hand_over ? OnWithheld() : PdEvent{.type = PdEventType::kPTooLarge};
  }
  if (rest == Rest::kNoMemory) {
    result_.outcome.end = Outcome::End::kFinished;  // as far as the worker is concerned
    UpstreamResponse::Whole().body.swap(whole_.body);
    memory_.Return();
    return {.type = PdEventType::kPOverBudget};
  }
  result_.broke_off = rest != Rest::kWhole;
  if (result_.broke_off) return {.type = PdEventType::kPLost};
  StreamTail tail;
  tail.Add(whole_.body);
  const StreamSummary summary = tail.Summarize();
  result_.outcome.prompt_tokens = summary.prompt_tokens;
  result_.outcome.cached_tokens = summary.cached_tokens;
  result_.prefill = ReadPrefillResponse(whole_.body, *setup_.connector);
  if (setup_.must_hand_over && result_.prefill.hand_over != HandOver::kWhole) return OnWithheld();
  if (setup_.keeps_usage) result_.usage = UsageOf(whole_.body);
  if (!setup_.may_merge) KeepParameters();
  const bool is_whole = result_.prefill.hand_over == HandOver::kWhole;
  return {.type = is_whole ? PdEventType::kPOkWhole : PdEventType::kPOkWithout};
}

// Its status says nothing against the worker; another one may hand over.
PdEvent StageLeg::OnWithheld() {
  result_.withheld = true;
  result_.status = 502;
  return {.type = PdEventType::kPError};
}

// A response with another status than 2xx, which has been read.
PdResponseClass StageLeg::OnError(UpstreamResponse::Rest rest) {
  result_.outcome.status = result_.status;
  if (rest != UpstreamResponse::Rest::kWhole) whole_.bytes.clear();
  const std::optional<std::string_view> retry_after =
      FindHeader(request_->response().head().fields, "retry-after");
  result_.retry_after_ms = ParseRetryAfter(retry_after.value_or(""));
  const PdResponseClass kind = PdResponseClassOf(result_.status, retry_after.has_value());
  result_.outcome.end =
      kind == PdResponseClass::kRejected ? Outcome::End::kFinished : Outcome::End::kWorkerFailed;
  if (kind == PdResponseClass::kBusy)
    request_->outcome().RecordAttempt();  // no verdict, but the beginning of a back-off
  return kind;
}

// The rest of the response is of no use, and a stream behind it may last for minutes.
void StageLeg::KeepParameters() {
  std::string parameters(result_.prefill.parameters.value_or(std::string_view()));
  whole_.body.swap(parameters);
  whole_.body.shrink_to_fit();
  if (result_.prefill.parameters) result_.prefill.parameters = whole_.body;
  memory_.Complete(whole_.body.size());
}

// ---- decode

Task<PdEvent> StageLeg::RunDecode(bool fresh) {
  const UpstreamRequest::End end = co_await request_->Run(fresh);
  if (end != UpstreamRequest::End::kResponded) co_return FailedDecode();
  result_.status = request_->response().head().status;
  if (result_.status / 100 != 2) {
    const PdEvent event = co_await ReadDecodeError();
    co_return event;
  }
  if (!closed_) owner_.Post({.type = PdEventType::kDHead});
  if (closed_) co_return PdEvent{};
  if (request_->response().head().event_stream) {
    result_.error_event = co_await BeginsWithError();
    if (closed_) co_return PdEvent{};
    if (request_->outcome().drained()) co_return kDrainedDecode;
  }
  if (IsToBeMerged()) {
    const UpstreamResponse::Rest rest =
        co_await request_->response().ReadWhole(kMergedBytes, kPrefillRestMs, /*keep_bytes=*/false, &whole_);
    result_.is_whole = rest == UpstreamResponse::Rest::kWhole;
    if (request_->outcome().drained()) co_return kDrainedDecode;
    if (!result_.is_whole) co_return PdEvent{.type = PdEventType::kDLost};
  }
  if (!result_.error_event) co_return PdEvent{.type = PdEventType::kDFirstByte};
  result_.outcome.end = Outcome::End::kWorkerFailed;
  const UpstreamResponse::Rest rest =
      co_await request_->response().ReadWhole(kErrorBytes, kErrorTimeoutMs, /*keep_bytes=*/true, &whole_);
  if (rest != UpstreamResponse::Rest::kWhole) whole_.bytes.clear();
  co_return PdEvent{.type = PdEventType::kDErrorEvent};
}

// A response whose length is known and not too large for the memory, and that is not compressed.
bool StageLeg::IsToBeMerged() {
  const ResponseHead& head = request_->response().head();
  const bool may = setup_.may_merge && !head.event_stream && head.framing == BodyFraming::kLength &&
                   head.content_length <= kMergedBytes && !FindHeader(head.fields, "content-encoding");
  return may && (head.content_length <= kSmallBodyBytes || memory_.TryKeep(head.content_length));
}

PdEvent StageLeg::FailedDecode() const {
  switch (request_->outcome().failure()) {
    case AttemptFailure::kDrained:
      return kDrainedDecode;
    case AttemptFailure::kConnect:
      return {
          .type = PdEventType::kDUnreached,
          .timed_out = request_->outcome().error() == HttpError::kConnectTimeout};
    case AttemptFailure::kFirstByteTimeout:
    case AttemptFailure::kSendTimeout:
      return {.type = PdEventType::kDTimeout};
    default:
      return {.type = PdEventType::kDLost};
  }
}

Task<PdEvent> StageLeg::ReadDecodeError() {
  const UpstreamResponse::Rest rest =
      co_await request_->response().ReadWhole(kErrorBytes, kErrorTimeoutMs, /*keep_bytes=*/true, &whole_);
  PdEvent event{.type = PdEventType::kDRejected};
  result_.frees_prefill = std::ranges::any_of(
      kEngineErrors, [this](std::string_view type) { return whole_.body.find(type) != std::string::npos; });
  const PdResponseClass kind = OnError(rest);
  if (kind == PdResponseClass::kBusy) event.type = PdEventType::kDBusy;
  if (kind == PdResponseClass::kError) {
    const bool died = whole_.body.find(kEngineDied) != std::string::npos;
    event.type = died ? PdEventType::kDEngineDead : PdEventType::kDError;
  }
  co_return event;
}

// A failed transfer is an error in a stream whose head was good.
Task<bool> StageLeg::BeginsWithError() {
  for (;;) {
    const ResponseHead& head = request_->response().head();
    BodyReader reader(head.framing, head.content_length, MessageKind::kResponse);
    std::string body(request_->response().in().view().substr(head.size));
    const Dechunked part = Dechunk(reader, body);
    const FirstEvent first = FirstEventOf(part.data);
    if (first != FirstEvent::kUnfinished || part.bad || reader.ended() || body.size() > kErrorBytes) {
      co_return first == FirstEvent::kError;
    }
    const bool more = co_await request_->response().ReadMore(kEventTimeoutMs);
    if (!more) co_return false;  // the relay finds the end
  }
}

}  // namespace vllm_router
