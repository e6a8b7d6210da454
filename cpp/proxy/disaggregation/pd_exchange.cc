#include "proxy/disaggregation/pd_exchange.h"

#include <utility>

#include "base/text.h"
#include "disaggregation/merged_response.h"
#include "disaggregation/push_identity.h"
#include "http/head_writer.h"
#include "net/event_loop.h"
#include "proxy/api/pd_settings.h"
#include "proxy/api/settings.h"
#include "proxy/disaggregation/push_identities.h"
#include "proxy/telemetry/telemetry.h"
#include "proxy/thread/io_thread.h"
#include "routing/router.h"
#include "worker/fleet_view.h"

namespace vllm_router {
namespace {

constexpr int64_t kKeepCompleteMs = 1'000;  // how long prefill is kept behind a complete response

}  // namespace

PdExchange::PdExchange(IoThread& thread, const Settings& settings, const PdRequest& plan, RequestInfo& info)
    : Attempts(thread),
      thread_(thread),
      settings_(settings),
      info_(info),
      pd_(*info.pd),
      request_{.route = plan.route, .body = &plan.body, .plan = &plan.plan, .connector = plan.connector},
      machine_(settings.pd.cancel_prefill),
      choice_(thread, settings, *info.pd),
      at_prefill_{.errors = {thread, settings.breaker}, .kept = {}},
      at_decode_{.errors = {thread, settings.breaker}, .kept = {}},
      retries_(thread, settings, info),
      failure_(thread, choice_, retries_),
      claim_(thread, settings, *info.pd) {}

Task<PdExchange::End> PdExchange::Run(const Call& call) {
  if (!machine_.choosing()) co_return End::kCancelled;
  request_.message = call.message;
  request_.choice = call.choice;
  request_.choice.pinned.reset();  // the response that a request names is no pair's
  request_.id = call.id;
  request_.client_restricted = call.client_restricted;
  request_.insertions = call.insertions;
  end_.reset();
  choice_.Begin(request_.choice, *request_.connector);
  retries_.Begin(
      {.message = &request_.message,
       .id = request_.id->id,
       .repeatable = true,
       .client_restricted = request_.client_restricted});
  ChooseFirst();
  while (!end_) co_await Wakeup{this};
  co_return *end_;
}

// ---- events and actions

void PdExchange::Post(const PdEvent& event) {
  events_.push_back(event);
  if (stepping_) return;
  stepping_ = true;
  for (size_t i = 0; i < events_.size(); ++i) {
    const PdEvent next = events_[i];
    for (const PdAction action : machine_.Step(next)) Do(action);
  }
  events_.clear();
  stepping_ = false;
  Wake();
}

void PdExchange::LegEnded(StageLeg& leg, const PdEvent& event) {
  --tasks_;
  if (leg.closed()) return Wake();
  const bool waits = leg.is_whole() && prefill() != nullptr && prefill()->runs();
  if (waits) {
    decode_waits_ = true;  // for the part of prefill's response that its own gets
    return Wake();
  }
  if (event.type == PdEventType::kPOverBudget) no_memory_ = true;
  if (PairFailure::IsFailure(event.type)) failure_.Note(leg, event, pairs_.last()->names_engine());
  Post(event);
  if (std::exchange(decode_waits_, false)) Post({.type = PdEventType::kDFirstByte});
}

void PdExchange::Do(PdAction action) {
  switch (action) {
    case PdAction::kPFailed:
    case PdAction::kPSucceeded:
      if (prefill() == nullptr) return;
      prefill()->request().RecordAttempt();
      if (prefill()->broke_off()) prefill()->request().RecordResponseEnd(ResponseEnd::kBrokeOff);
      return;
    case PdAction::kDFailed:
    case PdAction::kDSucceeded:
      if (relayed_ != nullptr || decode() == nullptr)
        return;  // ResponseEnded() records a response that is relayed
      decode()->request().RecordAttempt();
      if (decode()->error_event()) decode()->request().RecordResponseEnd(ResponseEnd::kServerError);
      return;
    case PdAction::kCloseD:
      if (decode() != nullptr) decode()->Close();
      return;
    case PdAction::kKeepD:
      if (settings_.pd.grace_ms > 0 && decode() != nullptr && decode()->request().sent()) {
        grace_.Arm(thread_.loop.timers(), settings_.pd.grace_ms, &PdExchange::OnGraceOver, this);
      } else {
        Post({.type = PdEventType::kGraceOver});
      }
      return;
    case PdAction::kCloseP:
      if (prefill() != nullptr) prefill()->Close();
      return;
    case PdAction::kKeepP: {
      if (prefill() == nullptr || !prefill()->runs()) return Post({.type = PdEventType::kKeepOver});
      const bool is_complete = machine_.client() == PdClient::kBegun;
      const int64_t limit_ms = is_complete ? kKeepCompleteMs : settings_.pd.drain_ms;
      return keep_.Arm(thread_.loop.timers(), limit_ms, &PdExchange::OnKeepOver, this);
    }
    case PdAction::kReleaseP:
      return Release(Stage::kPrefill);
    case PdAction::kReleaseD:
      return Release(Stage::kDecode);
    case PdAction::kMakeClaim:
      pairs_.last()->HandOver();
      return claim_.Make(request_, *prefill(), &PdExchange::OnHandoffLate, this);
    case PdAction::kRedeemClaim:
      if (decode() != nullptr) decode()->worker()->failed_transfers.store(0, std::memory_order_relaxed);
      return EndClaim(KvClaimEnd::kRedeemed);
    case PdAction::kRejectClaim: {
      const bool freed = decode() != nullptr && decode()->frees_prefill();
      return EndClaim(freed ? KvClaimEnd::kRejected : KvClaimEnd::kOrphaned);
    }
    case PdAction::kExpireClaim:
      return EndClaim(KvClaimEnd::kExpired);
    case PdAction::kOrphanClaim:
      return EndClaim(KvClaimEnd::kOrphaned);
    case PdAction::kReuseClaim:
      return claim_.Reuse();
    case PdAction::kOpenP:
      ++tasks_;
      return pairs_.last()->OpenPrefill(at_prefill_.errors);
    case PdAction::kOpenDWith:
      return OpenDecode(/*with_parameters=*/true);
    case PdAction::kOpenDWithout:
      return OpenDecode(/*with_parameters=*/false);
    case PdAction::kCommit:
      return Commit();
    case PdAction::kRespondP:
      return RespondWith(Stage::kPrefill);
    case PdAction::kRespondD:
      return RespondWith(Stage::kDecode);
    case PdAction::kRespond502:
    case PdAction::kRespond504:
      return RespondWith(failure_.error());
    case PdAction::kRespond503:
      if (end_) return;
      if (no_memory_) {
        info_.refusal = ErrorOf(HttpError::kNoBodyMemory).code;
        return RespondWith(HttpError::kNoBodyMemory);
      }
      return RespondWith(HttpError::kNoWorkers, NoPairMessage(settings_.pd, *thread_.fleet.Get()));
    case PdAction::kRetry:
      ++tasks_;
      return Spawn(Retry());
    case PdAction::kLearnIdentity:
      return LearnIdentity();
  }
}

// Time has passed since decode was chosen where prefill has handed over.
void PdExchange::OpenDecode(bool with_parameters) {
  if (pairs_.last()->source() != nullptr && with_parameters && !choice_.MayDecodeStill()) {
    return Post({.type = PdEventType::kDIneligible});
  }
  if (!choice_.decode().selected->pass && choice_.TakePassAgain()) pairs_.last()->Name();
  ++tasks_;
  pairs_.last()->OpenDecode(at_decode_.errors, with_parameters);
}

void PdExchange::LearnIdentity() {
  if (prefill() == nullptr) return;
  const PrefillResponse& response = prefill()->prefill();
  if (!response.pushes || !response.parameters) return;
  std::optional<PushIdentity> identity = ReadPushIdentity(BodyMap::Read(*response.parameters));
  if (identity)
    thread_.features.Find<PushIdentities>()->Learn(choice_.prefill().worker->id, *std::move(identity));
}

// The load of the leg goes back, or of a choice that was sent nothing.
void PdExchange::Release(Stage stage) {
  const bool is_prefill = stage == Stage::kPrefill;
  (is_prefill ? choice_.prefill() : choice_.decode()).selected.reset();
  StageLeg* const leg = is_prefill ? prefill() : decode();
  if (leg == nullptr || leg == relayed_ || leg->request().ticket().finished()) return;
  if (is_prefill) {
    pd_.prefill_status = leg->status();
    pd_.prefill_end_ns = thread_.clock.NowNanos();
    if (leg->status() != 0) pd_.prefill_ns = pd_.prefill_end_ns - leg->info().sent_ns;
  }
  if (std::string bytes = leg->TakeBytes(); !bytes.empty()) {
    at(stage).kept.emplace(std::move(bytes), leg->worker());
  }
  leg->request().AddTo(&info_, leg->closed() ? "cancelled" : std::string_view());
  Outcome outcome = leg->outcome();
  if (leg->request().first_sent_ns() == 0) outcome.end = Outcome::End::kNotSent;
  leg->request().ticket().Finish(outcome);
}

void PdExchange::EndClaim(KvClaimEnd end) {
  // A decode worker that could not be reached, or had not been when the client left.
  const bool is_connecting = decode() != nullptr && decode()->request().first_sent_ns() == 0;
  const bool is_unreached = failure_.is_of_decode() && retries_.failure().how == AttemptFailure::kConnect;
  std::optional<WorkerId> avoid;
  if (is_connecting || is_unreached) avoid = choice_.decode().worker->id;
  claim_.End(end, request_, *pairs_.last(), avoid);
}

// ---- attempts

void PdExchange::ChooseFirst() {
  if (choice_.ChooseBypass()) return Plan(PdAttemptKind::kBypass);
  if (choice_.Choose({.next = PdAttemptKind::kPair})) return Plan(PdAttemptKind::kPair);
  const bool is_alone = choice_.MayServeAlone() && choice_.prefill().choice.Fleet()->in_rotation() == 0;
  if (is_alone && choice_.Choose({.next = PdAttemptKind::kLocal})) {
    pd_.local = "prefill_loss";
    return Plan(PdAttemptKind::kLocal);
  }
  if (choice_.all_full()) return SetEnd(End::kFull);
  Fail(HttpError::kNoWorkers, NoPairMessage(settings_.pd, *thread_.fleet.Get()));
  SetEnd(End::kFailed);
}

void PdExchange::Plan(PdAttemptKind kind) {
  info_.chosen_ns = thread_.clock.NowNanos();
  choice_.Take();
  UpstreamPair& pair = pairs_.Add(*this, thread_, settings_, info_, request_, choice_);
  if (kind != PdAttemptKind::kBypass && pd_.uncached_tokens != 0) {  // which has failed
    pd_.uncached_tokens = pd_.saved_tokens = 0;
    if (kind == PdAttemptKind::kPair) {
      pd_.kind = "two_stages";
      pd_.local = {};
    }
  }
  const KvConnector::Traits& traits = request_.connector->traits();
  PdAttempt attempt{
      .kind = kind, .rebindable = traits.rebindable, .decode_can_prefill = traits.decode_can_prefill};
  if (kind == PdAttemptKind::kPair || kind == PdAttemptKind::kDecodeOnly) {
    pair.Name();
    attempt.order = pair.DecideOrder();
  }
  // With half of what they need, workers wait for each other.
  if (kind == PdAttemptKind::kPair && !request_.connector->Missing(pair.Attempt()).empty()) {
    choice_.prefill().selected.reset();
    pair.Unname();
    if (!traits.decode_can_prefill) {
      choice_.decode().selected.reset();
      return Post({.type = PdEventType::kNoRetry});
    }
    pd_.local = "not_registered";
    attempt = {.kind = PdAttemptKind::kLocal};
  }
  // No other request could probe the worker for as long as prefill computes.
  const bool waits = attempt.kind == PdAttemptKind::kPair && attempt.order == PdOrder::kSerial;
  std::optional<BreakerPass>& pass = choice_.decode().selected->pass;
  if (waits && pass->probe()) pass.reset();
  Post({.type = PdEventType::kPlanned, .plan = attempt});
}

// What failed is excluded by its worker's id, for the rest of the request. Where decode may serve alone and no prefill
// worker was reached, it does so at once if there is no other, and instead of an error if there may be no retry.
Task<void> PdExchange::Retry() {
  co_await thread_.loop.Yield();
  const bool is_local = machine_.retry().next == PdAttemptKind::kLocal;
  const bool unreached = choice_.MayServeAlone() && failure_.IsPrefillUnreached();
  std::optional<int64_t> pause;
  if (machine_.choosing()) {
    choice_.Exclude(machine_.retry());
    const bool is_last = unreached && !is_local && !choice_.prefill().choice.AnyUntried();
    if (!is_last) pause = PauseBefore(machine_.retry());
    if (pause && *pause > 0) {
      Delay delay(thread_.loop);
      pause_ = &delay;
      co_await delay.For(*pause);
      pause_ = nullptr;
    }
  }
  --tasks_;
  if (!machine_.choosing()) {
    Wake();
  } else if (pause && choice_.Choose(machine_.retry())) {
    if (is_local && unreached) {  // its record is as if none had been chosen
      pd_.local = "prefill_loss";
      pd_.prefill = nullptr;
      pd_.prefill_end_ns = 0;
      pd_.pair_id.clear();
    }
    Plan(machine_.retry().next);
  } else if (pause && choice_.ChooseOtherGroup(machine_.retry())) {
    Plan(PdAttemptKind::kPair);
  } else if (pause || (unreached && !is_local)) {
    no_other_pair_ = true;
    Post({.type = PdEventType::kNoOtherPair, .p_unreached = unreached});
  } else {
    Post({.type = PdEventType::kNoRetry});
  }
}

// Another kind of attempt, since there was no other pair, is part of the retry that was granted.
std::optional<int64_t> PdExchange::PauseBefore(const PdRetry& retry) {
  if (std::exchange(no_other_pair_, false) || !retry.counted) return 0;
  const std::optional<int64_t> pause =
      retries_.Next(failure_.side() == nullptr || failure_.side()->choice.AnyUntried());
  if (pause) thread_.telemetry.PairRetried(failure_.what());
  return pause;
}

// ---- the client

void PdExchange::SetEnd(End end) {
  if (!end_) end_ = end;
}

void PdExchange::Wake() {
  if (waiter_ && (end_ || (machine_.over() && tasks_ == 0)))
    thread_.loop.Resume(std::exchange(waiter_, nullptr));
}

void PdExchange::Commit() {
  relayed_ = decode();
  UpstreamRequest& request = relayed_->request();
  response_.Begin(request);
  request.RecordAttempt();
  info_.worker = request.worker();
  info_.decision = request.ticket().decision();
  info_.policy = request.ticket().policy().name();
  if (pairs_.last()->is_pair()) thread_.router->LearnTransferred(*request_.choice.key, *info_.worker);
  if (pd_.prefill_end_ns != 0) pd_.handoff_ns = thread_.clock.NowNanos() - pd_.prefill_end_ns;
  if (relayed_->is_whole()) UseMerged();
  SetEnd(End::kResponded);
}

// Decode's response, which was read whole, with a part of prefill's.
void PdExchange::UseMerged() {
  const std::string body = pairs_.last()->MergedBody();
  std::string bytes;
  WriteWholeHead(relayed_->request().response(), body.size(), &bytes);
  bytes.append(body);
  relayed_->request().CountFirstByte();
  response_.Use(at_decode_.kept.emplace(std::move(bytes), relayed_->worker()), /*to_head=*/false);
}

const std::string* PdExchange::prefill_usage() const {
  return relayed_ != nullptr ? pairs_.last()->usage_for_decode() : nullptr;
}

void PdExchange::RespondWith(Stage stage) {
  std::optional<KeptResponse>& kept = at(stage).kept;
  const StageLeg* const leg = stage == Stage::kPrefill ? prefill() : decode();
  if (!kept && leg != nullptr && leg->withheld()) {
    return RespondWith(
        HttpError::kWorkerBadResponse,
        Concat(
            "The prefill worker's response names no KV blocks, or is longer than "
            "--pd-prefill-response-bytes; "
            "with --kv-connector ",
            request_.connector->traits().name, " no decode worker serves the request without them."));
  }
  if (!kept) return RespondWith(failure_.error());
  response_.Use(*kept, /*to_head=*/false);
  info_.worker = kept->worker();
  SetEnd(End::kResponded);
}

void PdExchange::RespondWith(HttpError error, std::string message) {
  if (failure_.side() != nullptr) info_.worker = failure_.side()->worker;
  Fail(error, std::move(message));
  SetEnd(End::kFailed);
}

void PdExchange::Cancel() {
  if (pause_ != nullptr) pause_->Cancel();
  if (!machine_.responded() && machine_.client() != PdClient::kGone)
    thread_.telemetry.PairCancelled(UnderWay());
  SetEnd(End::kCancelled);
  const bool readable = prefill() != nullptr && prefill()->runs() && prefill()->request().HasArrived();
  Post({.type = PdEventType::kClientGone, .p_readable = readable});
}

// The step in which a request is cancelled.
std::string_view PdExchange::UnderWay() const {
  if (machine_.choosing()) return "choosing";
  if (machine_.client() == PdClient::kBegun) return "generating";
  const bool decodes = decode() != nullptr && decode()->runs() && decode()->request().first_sent_ns() != 0;
  if (decodes) return "decode";
  return machine_.holds_claim() ? "handover" : "prefill";
}

// ---- workers

bool PdExchange::IsAt(const Worker& worker) const {
  if (relayed_ == nullptr) return pairs_.IsAt(worker) || pairs_.WaitForBlocksOf(worker);
  return pairs_.IsAt(worker) || relayed_->worker().get() == &worker;
}

void PdExchange::WorkerDied(const Worker& worker) {
  pairs_.ForLegsAt(worker, [](StageLeg& leg) { leg.request().WorkerDied(); });
  if (relayed_ != nullptr || !pairs_.WaitForBlocksOf(worker)) return;
  failure_.NoteDecode(AttemptFailure::kStatus, 504, HttpError::kFirstByteTimeout, "transfer");
  Post({.type = PdEventType::kDTimeout});
}

// Decode may still wait for blocks of a prefill worker that has nothing more to do for the request: that goes on.
bool PdExchange::WorkerDrained(const Worker& worker) {
  if (relayed_ != nullptr && relayed_->worker().get() == &worker) return false;
  pairs_.ForLegsAt(worker, [](StageLeg& leg) { leg.request().WorkerDrained(); });
  return true;
}

// Decode waits for prefill where both have the request at once, which says nothing of decode.
void PdExchange::AddWaits(
    const Worker& worker, size_t* reads_bodies, std::vector<HangDetector::Wait>* waits) {
  const bool prefills = prefill() != nullptr && prefill()->runs() && prefill()->worker().get() != &worker;
  if (prefills) return;
  pairs_.ForLegsAt(worker, [&](StageLeg& leg) {
    if (leg.request().AwaitsFirstByte()) AddWait(leg.request(), info_.route, reads_bodies, waits);
  });
}

// ---- afterwards

// A leg that runs may have to send its request once more, on a fresh connection.
bool PdExchange::sent() const {
  return !pairs_.AnyRuns() && (relayed_ == nullptr || relayed_->request().sent());
}

void PdExchange::ResponseEnded(ResponseEnd end) {
  if (relayed_ == nullptr) return;
  if (end == ResponseEnd::kWhole) retries_.ReportServed(*relayed_->worker());
  if (relayed_->closed()) return;  // because of prefill
  relayed_->request().RecordResponseEnd(end);
  if (end != ResponseEnd::kWhole) thread_.telemetry.PairBrokeOff(relayed_->worker());
  if (end == ResponseEnd::kBrokeOff) return Post({.type = PdEventType::kDLost});
  Post({.type = PdEventType::kDDone, .server_error = end != ResponseEnd::kWhole});
}

void PdExchange::RecordTimeout() {
  StageLeg* const leg = decode() != nullptr ? decode() : prefill();
  if (leg != nullptr) leg->request().RecordTimeout();
}

void PdExchange::SettleServerErrors() {
  at_prefill_.errors.Ended();
  at_decode_.errors.Ended();
}

Task<void> PdExchange::Finished() {
  if (!machine_.responded()) Post({.type = PdEventType::kClientGone});
  if (relayed_ != nullptr && relayed_->closed()) {  // prefill may run on, and decode is free
    UpstreamRequest& request = relayed_->request();
    co_await request.StopSending();
    request.ReleaseConnection(/*reusable=*/false);
    if (!request.ticket().finished()) {
      request.ticket().Finish({.end = Outcome::End::kClientGone, .status = relayed_->status()});
    }
  }
  while (tasks_ != 0 || (pairs_.last() != nullptr && !machine_.over())) co_await Wakeup{this};
  if (relayed_ != nullptr) co_await relayed_->request().StopSending();
}

// ---- timers

void PdExchange::OnHandoffLate(void* exchange) {
  auto* self = static_cast<PdExchange*>(exchange);
  if (self->machine_.holds_claim() && !self->machine_.choosing()) {  // decode has not taken its request
    self->failure_.NoteDecode(AttemptFailure::kConnect, 0, HttpError::kConnectTimeout, "decode");
  }
  self->Post({.type = PdEventType::kHandoffLate});
}

void PdExchange::OnGraceOver(void* exchange) {
  static_cast<PdExchange*>(exchange)->Post({.type = PdEventType::kGraceOver});
}

void PdExchange::OnKeepOver(void* exchange) {
  static_cast<PdExchange*>(exchange)->Post({.type = PdEventType::kKeepOver});
}

}  // namespace vllm_router
