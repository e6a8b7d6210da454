#include "proxy/disaggregation/pd_exchange.h"

#include <utility>

#include "base/text.h"
#include "net/event_loop.h"
#include "proxy/api/pd_settings.h"
#include "proxy/api/settings.h"
#include "proxy/telemetry/stage_telemetry.h"
#include "proxy/telemetry/telemetry.h"
#include "proxy/thread/io_thread.h"
#include "worker/fleet_view.h"

namespace vllm_router {
namespace {

// The step in which a request is cancelled; decode's leg may be null.
std::string_view UnderWay(const PdMachine& machine, const StageLeg* decode) {
  if (machine.choosing()) return "choosing";
  if (machine.client() == PdClient::kBegun) return "generating";
  const bool decodes = decode != nullptr && decode->runs() && decode->request().record().first_sent_ns() != 0;
  if (decodes) return "decode";
  return machine.holds_claim() ? "handover" : "prefill";
}

std::string WithheldMessage(const KvConnector& connector) {
  return Concat(
      "The prefill worker's response names no KV blocks, or is longer than --pd-prefill-response-bytes; with "
      "--kv-connector ",
      connector.traits().name, " no decode worker serves the request without them.");
}

}  // namespace

PdExchange::PdExchange(IoThread& thread, const Settings& settings, const PdRequest& plan, RequestInfo& info)
    : Attempts(thread),
      thread_(thread),
      settings_(settings),
      info_(info),
      request_{.route = plan.route, .body = &plan.body, .plan = &plan.plan, .connector = plan.connector},
      events_(settings.pd.cancel_prefill),
      choice_(thread, settings, *info.pd),
      retry_(thread, settings, info, choice_),
      claim_(thread, settings, *info.pd),
      served_(thread, settings, info, response_),
      kept_(*this, thread, settings.pd) {}

Task<PdExchange::End> PdExchange::Run(const Call& call) {
  if (!machine().choosing()) co_return End::kCancelled;
  request_.message = call.message;
  request_.choice = call.choice;
  request_.choice.pinned.reset();  // the response that a request names is no pair's
  request_.id = call.id;
  request_.client_restricted = call.client_restricted;
  request_.insertions = call.insertions;
  end_.reset();
  choice_.Begin(request_.choice, *request_.connector);
  retry_.Begin(
      {.message = &request_.message,
       .id = request_.id->id,
       .repeatable = true,
       .client_restricted = request_.client_restricted});
  if (const std::optional<PdAttemptKind> kind = choice_.ChooseFirst()) {
    Plan(*kind);
  } else if (choice_.all_full()) {
    SetEnd(End::kFull);
  } else {
    Fail(HttpError::kNoWorkers, NoPairMessage(settings_.pd, *thread_.fleet.Get()));
    SetEnd(End::kFailed);
  }
  while (!end_) co_await Wakeup{this};
  co_return *end_;
}

// ---- events and actions

void PdExchange::Post(const PdEvent& event) {
  const bool is_done = events_.Post(event, [this](PdAction action) { Do(action); });
  if (is_done) Wake();
}

void PdExchange::LegEnded(StageLeg& leg, const PdEvent& event) {
  --tasks_;
  if (leg.closed()) return Wake();
  const bool waits = leg.result().is_whole && pairs_.prefill() != nullptr && pairs_.prefill()->runs();
  if (waits) {
    decode_waits_ = true;  // for the part of prefill's response that its own gets
    return Wake();
  }
  retry_.failure().Note(leg, event, pairs_.last()->names_engine());
  Post(event);
  if (std::exchange(decode_waits_, false)) Post({.type = PdEventType::kDFirstByte});
}

void PdExchange::Do(PdAction action) {
  StageLeg* const prefill = pairs_.prefill();
  StageLeg* const decode = pairs_.decode();
  switch (action) {
    case PdAction::kPFailed:
    case PdAction::kPSucceeded:
      if (prefill == nullptr) return;
      prefill->request().outcome().RecordAttempt();
      if (prefill->result().broke_off) prefill->request().outcome().RecordResponseEnd(ResponseEnd::kBrokeOff);
      return;
    case PdAction::kDFailed:
    case PdAction::kDSucceeded:
      if (served_.relayed() != nullptr || decode == nullptr)
        return;  // ResponseEnded() records a response that is relayed
      decode->request().outcome().RecordAttempt();
      if (decode->result().error_event)
        decode->request().outcome().RecordResponseEnd(ResponseEnd::kServerError);
      return;
    case PdAction::kCloseD:
      if (decode != nullptr) decode->Close();
      return;
    case PdAction::kKeepD:
      return kept_.KeepDecode(decode);
    case PdAction::kCloseP:
      if (prefill != nullptr) prefill->Close();
      return;
    case PdAction::kKeepP:
      return kept_.KeepPrefill(prefill, machine().client() == PdClient::kBegun);
    case PdAction::kReleaseP:
      return Release(Stage::kPrefill);
    case PdAction::kReleaseD:
      return Release(Stage::kDecode);
    case PdAction::kMakeClaim:
      pairs_.last()->HandOver();
      return claim_.Make(request_, *prefill, &PdExchange::OnHandoffLate, this);
    case PdAction::kRedeemClaim:
      if (decode != nullptr) decode->worker()->failed_transfers.store(0, std::memory_order_relaxed);
      return EndClaim(KvClaimEnd::kRedeemed);
    case PdAction::kRejectClaim: {
      const bool freed = decode != nullptr && decode->result().frees_prefill;
      return EndClaim(freed ? KvClaimEnd::kRejected : KvClaimEnd::kOrphaned);
    }
    case PdAction::kExpireClaim:
      return EndClaim(KvClaimEnd::kExpired);
    case PdAction::kOrphanClaim:
      return EndClaim(KvClaimEnd::kOrphaned);
    case PdAction::kReuseClaim:
      return claim_.Reuse();
    case PdAction::kLearnIdentity:
      return pairs_.last()->LearnIdentity();
    case PdAction::kOpenP:
      ++tasks_;
      return pairs_.last()->OpenPrefill(served_.errors(Stage::kPrefill));
    case PdAction::kOpenDWith:
      return OpenDecode(/*with_parameters=*/true);
    case PdAction::kOpenDWithout:
      return OpenDecode(/*with_parameters=*/false);
    case PdAction::kCommit:
      served_.Relay(*pairs_.last(), *request_.choice.key);
      return SetEnd(End::kResponded);
    case PdAction::kRespondP:
      return RespondWith(Stage::kPrefill);
    case PdAction::kRespondD:
      return RespondWith(Stage::kDecode);
    case PdAction::kRespond502:
    case PdAction::kRespond504:
      return FailWith(retry_.failure().error());
    case PdAction::kRespond503:
      if (end_) return;
      if (retry_.failure().lacks_memory()) {
        info_.refusal = ErrorOf(HttpError::kNoBodyMemory).code;
        return FailWith(HttpError::kNoBodyMemory);
      }
      return FailWith(HttpError::kNoWorkers, NoPairMessage(settings_.pd, *thread_.fleet.Get()));
    case PdAction::kRetry:
      ++tasks_;
      return Spawn(Retry());
  }
}

void PdExchange::Plan(PdAttemptKind kind) {
  info_.chosen_ns = thread_.clock.NowNanos();
  choice_.Take(kind);
  UpstreamPair& pair = pairs_.Add(*this, thread_, settings_, info_, request_, choice_);
  const std::optional<PdAttempt> attempt = pair.Plan(kind);
  if (!attempt) return Post({.type = PdEventType::kNoRetry});
  Post({.type = PdEventType::kPlanned, .plan = *attempt});
}

// Time has passed since decode was chosen where prefill has handed over.
void PdExchange::OpenDecode(bool with_parameters) {
  UpstreamPair& pair = *pairs_.last();
  if (pair.source() != nullptr && with_parameters && !choice_.MayDecodeStill()) {
    return Post({.type = PdEventType::kDIneligible});
  }
  if (!choice_.decode().selected->pass && choice_.TakePassAgain()) pair.Name();
  ++tasks_;
  pair.OpenDecode(served_.errors(Stage::kDecode), with_parameters);
}

// The load of the leg goes back, or of a choice that was sent nothing.
void PdExchange::Release(Stage stage) {
  choice_.at(stage).selected.reset();
  StageLeg* const leg = pairs_.leg(stage);
  if (leg == nullptr || leg == served_.relayed() || leg->request().ticket().finished()) return;
  if (stage == Stage::kPrefill) {
    PdInfo& pd = *info_.pd;
    pd.prefill_status = leg->result().status;
    pd.prefill_end_ns = thread_.clock.NowNanos();
    if (pd.prefill_status != 0) pd.prefill_ns = pd.prefill_end_ns - leg->info().sent_ns;
  }
  served_.Keep(*leg);
  leg->request().record().AddTo(
      &info_, thread_.clock.NowNanos(), leg->closed() ? "cancelled" : std::string_view());
  leg->ReturnLoad();
}

void PdExchange::EndClaim(KvClaimEnd end) {
  // A decode worker that could not be reached, or had not been when the client left.
  const StageLeg* const decode = pairs_.decode();
  const bool is_connecting = decode != nullptr && decode->request().record().first_sent_ns() == 0;
  std::optional<WorkerId> avoid;
  if (is_connecting || retry_.IsDecodeUnreached()) avoid = choice_.decode().worker->id;
  claim_.End(end, request_, *pairs_.last(), avoid);
}

Task<void> PdExchange::Retry() {
  co_await thread_.loop.Yield();
  const std::optional<PairRetry::Step> next = co_await retry_.Next(machine());
  --tasks_;
  if (!next) {
    Wake();
  } else if (next->attempt) {
    Plan(*next->attempt);
  } else {
    Post(next->event);
  }
}

// ---- the client

void PdExchange::SetEnd(End end) {
  if (!end_) end_ = end;
}

void PdExchange::Wake() {
  if (waiter_ && (end_ || (machine().over() && tasks_ == 0)))
    thread_.loop.Resume(std::exchange(waiter_, nullptr));
}

void PdExchange::RespondWith(Stage stage) {
  if (served_.Use(stage)) return SetEnd(End::kResponded);
  const StageLeg* const leg = pairs_.leg(stage);
  if (leg == nullptr || !leg->result().withheld) return FailWith(retry_.failure().error());
  FailWith(HttpError::kWorkerBadResponse, WithheldMessage(*request_.connector));
}

void PdExchange::FailWith(HttpError error, std::string message) {
  if (const PairChoice::Side* const side = retry_.failure().side()) info_.worker = side->worker;
  Fail(error, std::move(message));
  SetEnd(End::kFailed);
}

void PdExchange::Cancel() {
  retry_.Cancel();
  const StageLeg* const prefill = pairs_.prefill();
  if (!machine().responded() && machine().client() != PdClient::kGone)
    thread_.telemetry.stages().PairCancelled(UnderWay(machine(), pairs_.decode()));
  SetEnd(End::kCancelled);
  const bool readable = prefill != nullptr && prefill->runs() && prefill->request().response().HasArrived();
  Post({.type = PdEventType::kClientGone, .p_readable = readable});
}

const std::string* PdExchange::prefill_usage() const {
  return served_.relayed() != nullptr ? pairs_.last()->usage_for_decode() : nullptr;
}

// ---- workers

bool PdExchange::IsAt(const Worker& worker) const {
  const StageLeg* const relayed = served_.relayed();
  if (relayed == nullptr) return pairs_.IsAt(worker) || pairs_.WaitForBlocksOf(worker);
  return pairs_.IsAt(worker) || relayed->worker().get() == &worker;
}

void PdExchange::WorkerDied(const Worker& worker) {
  pairs_.ForLegsAt(worker, [](StageLeg& leg) { leg.request().WorkerDied(); });
  if (served_.relayed() != nullptr || !pairs_.WaitForBlocksOf(worker)) return;
  retry_.failure().NoteDecode(AttemptFailure::kStatus, 504, HttpError::kFirstByteTimeout, "transfer");
  Post({.type = PdEventType::kDTimeout});
}

// Decode may still wait for blocks of a prefill worker that has nothing more to do for the request: that goes on.
bool PdExchange::WorkerDrained(const Worker& worker) {
  const StageLeg* const relayed = served_.relayed();
  if (relayed != nullptr && relayed->worker().get() == &worker) return false;
  pairs_.ForLegsAt(worker, [](StageLeg& leg) { leg.request().WorkerDrained(); });
  return true;
}

// Decode waits for prefill where both have the request at once, which says nothing of decode.
void PdExchange::AddWaits(
    const Worker& worker, size_t* reads_bodies, std::vector<HangDetector::Wait>* waits) {
  const StageLeg* const prefill = pairs_.prefill();
  const bool prefills = prefill != nullptr && prefill->runs() && prefill->worker().get() != &worker;
  if (prefills) return;
  pairs_.ForLegsAt(worker, [&](StageLeg& leg) {
    if (leg.request().AwaitsFirstByte()) AddWait(leg.request(), info_.route, reads_bodies, waits);
  });
}

// ---- afterwards

// A leg that runs may have to send its request once more, on a fresh connection.
bool PdExchange::sent() const {
  const StageLeg* const relayed = served_.relayed();
  return !pairs_.AnyRuns() && (relayed == nullptr || relayed->request().sender().sent());
}

void PdExchange::ResponseEnded(ResponseEnd end) {
  StageLeg* const relayed = served_.relayed();
  if (relayed == nullptr) return;
  if (end == ResponseEnd::kWhole) retry_.ReportServed(*relayed->worker());
  if (relayed->closed()) return;  // because of prefill
  relayed->request().outcome().RecordResponseEnd(end);
  if (end != ResponseEnd::kWhole) thread_.telemetry.stages().PairBrokeOff(relayed->worker());
  if (end == ResponseEnd::kBrokeOff) return Post({.type = PdEventType::kDLost});
  Post({.type = PdEventType::kDDone, .server_error = end != ResponseEnd::kWhole});
}

void PdExchange::RecordTimeout() {
  StageLeg* const leg = pairs_.decode() != nullptr ? pairs_.decode() : pairs_.prefill();
  if (leg != nullptr) leg->request().outcome().RecordTimeout();
}

Task<void> PdExchange::Finished() {
  if (!machine().responded()) Post({.type = PdEventType::kClientGone});
  StageLeg* const relayed = served_.relayed();
  if (relayed != nullptr && relayed->closed()) co_await served_.Drop();  // prefill may run on
  while (tasks_ != 0 || (pairs_.last() != nullptr && !machine().over())) co_await Wakeup{this};
  if (relayed != nullptr) co_await relayed->request().sender().Stop();
}

void PdExchange::OnHandoffLate(void* exchange) {
  auto* self = static_cast<PdExchange*>(exchange);
  if (self->machine().holds_claim() && !self->machine().choosing()) {  // decode has not taken its request
    self->retry_.failure().NoteDecode(AttemptFailure::kConnect, 0, HttpError::kConnectTimeout, "decode");
  }
  self->Post({.type = PdEventType::kHandoffLate});
}

}  // namespace vllm_router
