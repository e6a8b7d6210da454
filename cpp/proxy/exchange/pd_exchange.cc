#include "proxy/exchange/pd_exchange.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "http/head_writer.h"
#include "net/event_loop.h"
#include "proxy/api/pd_settings.h"
#include "proxy/api/settings.h"
#include "proxy/telemetry/telemetry.h"
#include "proxy/thread/claim_keeper.h"
#include "proxy/thread/io_thread.h"
#include "proxy/thread/push_identities.h"
#include "routing/merged_response.h"
#include "routing/pair_id.h"
#include "routing/push_identity.h"
#include "routing/router.h"
#include "routing/sglang_connector.h"

namespace vllm_router {
namespace {

// A prefill worker that has just died fails transfers to all decode workers, so these are not to blame for a few.
constexpr uint32_t kPardoned = 4;           // in a row
constexpr int64_t kKeepCompleteMs = 1'000;  // behind a complete response

PairEnd EndOf(const Worker& worker) {
  PairEnd end{
      .host = worker.url.host,
      .port = worker.url.port,
      .rank = worker.url.rank,
      .bootstrap_port = worker.bootstrap_port};
  if (worker.peer) {
    end.zmq_address = worker.peer->zmq_address;
    end.tp_size = worker.peer->tp_size;
    end.dp_size = worker.peer->dp_size;
  }
  return end;
}

// That both registered; null if they did not, or each another one.
std::optional<MoriioMode> ModeOf(const Worker& prefill, const Worker& decode) {
  if (!prefill.peer || !decode.peer || prefill.peer->mode != decode.peer->mode) return std::nullopt;
  return prefill.peer->mode;
}

bool IsStream(const BodyMap& body) {
  const BodyMap::Member* const stream = body.Find("stream");
  return stream != nullptr && stream->type == BodyMap::Type::kTrue;
}

bool IsFailureOfPrefill(PdEventType type) {
  return type >= PdEventType::kPRejected && type <= PdEventType::kPTimeout;
}
bool IsFailureOfDecode(PdEventType type) {
  return (type >= PdEventType::kDRejected && type <= PdEventType::kDUnreached) ||
         (type >= PdEventType::kDStale && type <= PdEventType::kDTimeout);
}

}  // namespace

PdExchange::PdExchange(IoThread& thread, const Settings& settings, RequestInfo& info)
    : thread_(thread),
      settings_(settings),
      info_(info),
      pd_(*info.pd),
      machine_(settings.pd.cancel_prefill),
      prefill_(thread, settings),
      decode_(thread, settings),
      losses_(thread, settings) {}

PdExchange::~PdExchange() = default;

Task<PdExchange::End> PdExchange::Run(const Request& request) {
  if (!machine_.choosing()) co_return End::kCancelled;
  request_ = request;
  end_.reset();
  request_.choice.stage = Stage::kPrefill;
  prefill_.choice.Begin(request_.choice);
  prefill_.choice.set_probe(WorkerChoice::Probe::kLate);
  request_.choice.stage = Stage::kDecode;
  decode_.choice.Begin(request_.choice);
  decode_.choice.set_probe(WorkerChoice::Probe::kLate);
  if (!plan_) {  // kFull may have ended an earlier run
    thread_.retry_budget.CountRequest(info_.body_ns);
    plan_.emplace(settings_.retry, /*repeatable=*/true, !request.client_restricted);
  }
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
  const bool waits = leg.is_whole() && prefill_.leg != nullptr && prefill_.leg->runs();
  if (waits) {
    decode_waits_ = true;  // for the part of prefill's response that its own gets
    return Wake();
  }
  if (event.type == PdEventType::kPOverBudget) no_memory_ = true;
  if (IsFailureOfPrefill(event.type)) NoteFailure(leg, prefill_, event);
  if (IsFailureOfDecode(event.type)) NoteFailure(leg, decode_, event);
  Post(event);
  if (std::exchange(decode_waits_, false)) Post({.type = PdEventType::kDFirstByte});
}

void PdExchange::Do(PdAction action) {
  switch (action) {
    case PdAction::kPFailed:
    case PdAction::kPSucceeded:
      if (prefill_.leg == nullptr) return;
      prefill_.leg->request().RecordAttempt();
      if (prefill_.leg->broke_off()) prefill_.leg->request().RecordResponseEnd(ResponseEnd::kBrokeOff);
      return;
    case PdAction::kDFailed:
    case PdAction::kDSucceeded:
      if (relayed_ != nullptr || decode_.leg == nullptr) return;  // a relayed response's end tells
      decode_.leg->request().RecordAttempt();
      if (decode_.leg->error_event()) decode_.leg->request().RecordResponseEnd(ResponseEnd::kServerError);
      return;
    case PdAction::kCloseD:
      return CloseLeg(decode_);
    case PdAction::kKeepD:
      if (settings_.pd.grace_ms > 0 && decode_.leg != nullptr && decode_.leg->request().sent()) {
        grace_.Arm(thread_.loop.timers(), settings_.pd.grace_ms, &PdExchange::OnGraceOver, this);
      } else {
        Post({.type = PdEventType::kGraceOver});
      }
      return;
    case PdAction::kCloseP:
      return CloseLeg(prefill_);
    case PdAction::kKeepP: {
      if (prefill_.leg == nullptr || !prefill_.leg->runs()) return Post({.type = PdEventType::kKeepOver});
      const bool is_complete = machine_.client() == PdClient::kBegun;
      const int64_t most_ms = is_complete ? kKeepCompleteMs : settings_.pd.drain_ms;
      return keep_.Arm(thread_.loop.timers(), most_ms, &PdExchange::OnKeepOver, this);
    }
    case PdAction::kReleaseP:
      return Release(prefill_);
    case PdAction::kReleaseD:
      return Release(decode_);
    case PdAction::kMakeClaim: {
      source_ = prefill_.leg;
      const BodyMap::Member* const model = request_.body->Find("model");
      claim_ = KvClaim(
          *thread_.claims, thread_.clock,
          {.prefill = source_->worker(),
           .parameters = std::string(*source_->prefill().parameters),
           .model = std::string(model != nullptr ? model->value : std::string_view()),
           .made_ns = thread_.clock.NowNanos()});
      handoff_.Arm(thread_.loop.timers(), settings_.pd.handoff_limit_ms, &PdExchange::OnHandoffLate, this);
      return;
    }
    case PdAction::kRedeemClaim:
      if (decode_.leg != nullptr) decode_.leg->worker()->failed_transfers.store(0, std::memory_order_relaxed);
      return EndClaim(KvClaimEnd::kRedeemed);
    case PdAction::kRejectClaim: {
      const bool freed = decode_.leg != nullptr && decode_.leg->frees_prefill();
      return EndClaim(freed ? KvClaimEnd::kRejected : KvClaimEnd::kOrphaned);
    }
    case PdAction::kExpireClaim:
      return EndClaim(KvClaimEnd::kExpired);
    case PdAction::kOrphanClaim:
      return EndClaim(KvClaimEnd::kOrphaned);
    case PdAction::kReuseClaim:
      claim_ = claim_.Reuse();
      return;
    case PdAction::kOpenP:
      return OpenPrefill();
    case PdAction::kOpenDWith:
      return OpenDecode(/*with_parameters=*/true);
    case PdAction::kOpenDWithout:
      return OpenDecode(/*with_parameters=*/false);
    case PdAction::kCommit:
      return Commit();
    case PdAction::kRespondP:
      return RespondWith(prefill_);
    case PdAction::kRespondD:
      return RespondWith(decode_);
    case PdAction::kRespond502:
    case PdAction::kRespond504:
      return RespondWith(failure_error_);
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
      if (prefill_.leg != nullptr) LearnIdentity(prefill_.leg->prefill());
      return;
    case PdAction::kReopenP:  // an UpstreamRequest takes a fresh connection by itself
    case PdAction::kReopenD:
    case PdAction::kRelay:
    case PdAction::kComplete:
    case PdAction::kAbortClient:  // the exchange does, or finds the worker's connection closed
    case PdAction::kEnd:
      return;
  }
}

void PdExchange::LearnIdentity(const PrefillResponse& response) {
  if (!response.pushes || !response.parameters) return;
  std::optional<PushIdentity> identity = ReadPushIdentity(BodyMap::Read(*response.parameters));
  if (identity) thread_.push_identities.Learn(prefill_.worker->id, *std::move(identity));
}

void PdExchange::EndClaim(KvClaimEnd end) {
  handoff_.Disarm();
  pd_.claim = KvClaimEndName(end);
  switch (end) {
    case KvClaimEnd::kRedeemed:
      return claim_.Redeem();
    case KvClaimEnd::kRejected:
      return claim_.Reject();
    case KvClaimEnd::kExpired:
      return claim_.Expire();
    default:
      break;
  }
  // A decode worker that serves no request alone cannot be sent one that frees blocks, either.
  if (request_.connector->traits().decode_can_prefill) return claim_.Orphan(Freeing());
  pd_.claim = KvClaimEndName(KvClaimEnd::kExpired);
  claim_.Expire();
}

KvFreeing PdExchange::Freeing() const {
  KvFreeing freeing;
  freeing.authorization = ForwardedAuthorization(*request_.message.head, request_.message.client);
  // One that could not be reached, or had not been when the client left.
  const bool is_connecting = decode_.leg != nullptr && decode_.leg->request().first_sent_ns() == 0;
  if (is_connecting || (failed_ == &decode_ && failure_.how == AttemptFailure::kConnect))
    freeing.avoid = decode_.worker->id;
  if (settings_.pd.orphan != PdOrphan::kCollect) return freeing;
  // Prefill's copy, one token and no stream, with the parameters for decode.
  BodyPatch patch = PrefillPatch(request_.route, *request_.body, *request_.connector, PairOf());
  patch.InsertBytes("kv_transfer_params", claim_.blocks().parameters);
  freeing.path = request_.message.head->path;
  freeing.request = patch.Apply(*request_.body, request_.insertions).Joined();
  return freeing;
}

void PdExchange::SetEnd(End end) {
  if (!end_) end_ = end;
}

void PdExchange::Wake() {
  if (waiter_ && (end_ || (machine_.over() && tasks_ == 0)))
    thread_.loop.Resume(std::exchange(waiter_, nullptr));
}

// ---- choosing

// Decode alone by choice, since it has to compute little of the prompt.
bool PdExchange::ChooseBypass() {
  if (!request_.connector->traits().decode_can_prefill || !IsOfFleetsEngine()) return false;
  std::optional<WorkerChoice::Bypass> bypass = decode_.choice.SelectBypass();
  if (!bypass) return false;
  decode_.selected = std::move(bypass->selected);
  pd_.kind = "local";
  pd_.local = "bypass";
  pd_.uncached_tokens = bypass->uncached_tokens;
  pd_.saved_tokens = bypass->saved_tokens;
  return true;
}

void PdExchange::ChooseFirst() {
  if (ChooseBypass()) return Plan(PdAttemptKind::kBypass);
  if (Choose({.next = PdAttemptKind::kPair})) return Plan(PdAttemptKind::kPair);
  const bool is_alone = MayServeAlone() && prefill_.choice.Fleet()->in_rotation() == 0;
  if (is_alone && Choose({.next = PdAttemptKind::kLocal})) {
    pd_.local = "prefill_loss";
    return Plan(PdAttemptKind::kLocal);
  }
  if (all_full_) return SetEnd(End::kFull);
  Fail(HttpError::kNoWorkers, NoPairMessage(settings_.pd, *thread_.fleet.Get()));
  SetEnd(End::kFailed);
}

// Of --kv-connector auto: by now the fleet may be another engine's.
bool PdExchange::IsOfFleetsEngine() const {
  const EngineKind engine = thread_.fleet.Get()->stages()->engine;
  return ConnectorOf(settings_.pd.kv_connector, engine) == request_.connector;
}

// A pair of another kv_group comes before what is the last resort in one.
bool PdExchange::Choose(const PdRetry& retry) {
  return IsOfFleetsEngine() &&
         (ChooseWorkers(retry, /*last_resort=*/false) || ChooseWorkers(retry, /*last_resort=*/true));
}

bool PdExchange::ChooseWorkers(const PdRetry& retry, bool last_resort) {
  const bool needs_prefill = retry.next == PdAttemptKind::kPair;
  const bool needs_blocks = retry.next != PdAttemptKind::kLocal;
  const bool prefers = retry.prefer_p && prefill_.worker != nullptr;
  std::vector<std::string> in_vain;  // kv_groups in which no decode worker was chosen
  prefill_.selected.reset();
  decode_.selected.reset();
  all_full_ = false;
  for (;;) {
    if (needs_prefill) {
      prefill_.selected = prefill_.choice.Select(
          {.after_loss = prefill_.lost,
           .untried = retry.exclude_p,
           .preferred = prefers ? std::optional(prefill_.worker->id) : std::nullopt,
           .without_groups = in_vain,
           .last_resort = last_resort});
      if (!prefill_.selected) {
        all_full_ |= prefill_.choice.all_full();
        return false;
      }
    }
    const Worker* source = needs_blocks ? prefill_.worker.get() : nullptr;
    if (needs_prefill) source = &prefill_.selected->ticket.worker();
    decode_.selected = decode_.choice.Select(
        {.after_loss = decode_.lost,
         .untried = retry.exclude_d,
         .transferred = needs_blocks,
         .source = source,
         .last_resort = last_resort});
    if (decode_.selected) return true;
    all_full_ |= decode_.choice.all_full();
    std::string group = needs_prefill ? source->kv_group : std::string();
    prefill_.selected.reset();
    if (group.empty()) return false;
    in_vain.push_back(std::move(group));
  }
}

// Of prefill's group no decode worker is left to fetch its blocks. A pair of another one computes the prompt again.
bool PdExchange::ChooseOtherGroup(const PdRetry& retry) {
  return retry.next == PdAttemptKind::kDecodeOnly && !prefill_.worker->kv_group.empty() &&
         Choose({.next = PdAttemptKind::kPair, .exclude_d = retry.exclude_d});
}

void PdExchange::Plan(PdAttemptKind kind) {
  began_ = true;
  info_.chosen_ns = thread_.clock.NowNanos();
  if (prefill_.selected) {
    TakeSelected(prefill_);
    pd_.prefill = prefill_.worker;
  }
  TakeSelected(decode_);
  if (kind == PdAttemptKind::kPair) source_ = nullptr;
  if (kind != PdAttemptKind::kBypass && pd_.uncached_tokens != 0) {  // which has failed
    pd_.uncached_tokens = pd_.saved_tokens = 0;
    if (kind == PdAttemptKind::kPair) {
      pd_.kind = "two_stages";
      pd_.local = {};
    }
  }
  pair_id_.clear();
  const KvConnector::Traits& traits = request_.connector->traits();
  PdAttempt attempt{
      .kind = kind, .rebindable = traits.rebindable, .decode_can_prefill = traits.decode_can_prefill};
  if (kind == PdAttemptKind::kPair || kind == PdAttemptKind::kDecodeOnly) {
    NamePair();
    attempt.order = request_.connector->OrderOf(PairOf());
    order_ = attempt.order;
  }
  // With half of what they need, workers wait for each other.
  if (kind == PdAttemptKind::kPair && !request_.connector->Missing(PairOf()).empty()) {
    prefill_.selected.reset();
    pair_id_.clear();
    pd_.pair_id.clear();
    pd_.prefill = nullptr;
    if (!traits.decode_can_prefill) {
      decode_.selected.reset();
      return Post({.type = PdEventType::kNoRetry});
    }
    pd_.local = "not_registered";
    attempt = {.kind = PdAttemptKind::kLocal};
  }
  // No other request could probe the worker for as long as prefill computes.
  const bool waits = attempt.kind == PdAttemptKind::kPair && attempt.order == PdOrder::kSerial;
  if (waits && decode_.selected->pass->probe()) decode_.selected->pass.reset();
  Post({.type = PdEventType::kPlanned, .plan = attempt});
}

void PdExchange::TakeSelected(StageState& stage) {
  stage.worker = stage.selected->ticket.shared_worker();
  stage.leg = nullptr;
  thread_.telemetry.Decided(stage.worker, stage.selected->ticket.decision());
}

// Of a decode worker whose probe went back when it was chosen. If it admits none now, another worker that does gets the
// request where the blocks may go to any; else it is sent, as a prefill's work is lost without it.
void PdExchange::TakePassAgain() {
  decode_.selected->pass = decode_.worker->breaker.TryPass(settings_.breaker);
  if (decode_.selected->pass) return;
  if (request_.connector->traits().rebindable) {
    decode_.choice.SetAttempted(decode_.worker->id);
    std::optional<WorkerChoice::Selected> other;
    if (decode_.choice.AnyUntried()) {
      other = decode_.choice.Select(
          {.after_loss = decode_.lost,
           .untried = true,
           .transferred = true,
           .source = prefill_.worker.get(),
           .last_resort = false});
    }
    if (other) {
      decode_.selected = std::move(other);
      TakeSelected(decode_);
      return NamePair();
    }
  }
  decode_.selected->pass = decode_.worker->breaker.PassInPanic();
}

// What is new for each pair: its id, and where its workers meet.
void PdExchange::NamePair() {
  bits_ = {.high = thread_.ids.Next(), .low = thread_.ids.Next()};
  pair_id_ = NewPairId(
      *request_.connector, EndOf(*prefill_.worker), EndOf(*decode_.worker),
      request_.message.client.request_id, bits_, settings_.pd.request_id == PdRequestId::kPlain);
  pd_.pair_id = pair_id_;
  engine_id_ = request_.connector->traits().names_engine ? prefill_.worker->engine_id.Load() : nullptr;
  rooms_.clear();
  if (!request_.connector->traits().meets_in_rooms) return;
  const uint32_t rank = prefill_.worker->url.rank.value_or(0);
  const size_t count = request_.plan->listed_prompts.value_or(1);
  for (size_t i = 0; i < count; ++i) rooms_.push_back(DrawRoom(thread_.ids.Next(), rank, RanksOfPrefill()));
}

// Of a worker that has not registered.
uint32_t PdExchange::RanksOfPrefill() const {
  return std::max(thread_.router->ranks_of(Stage::kPrefill), prefill_.worker->url.rank.value_or(0) + 1);
}

PairAttempt PdExchange::PairOf() const {
  PairAttempt pair{
      .id = pair_id_,
      .prefill = EndOf(*prefill_.worker),
      .decode = EndOf(*decode_.worker),
      .bits = bits_,
      .moriio_mode = ModeOf(*prefill_.worker, *decode_.worker),
      .rooms = rooms_,
      .listed_prompts = request_.plan->listed_prompts,
      .rank_fields = settings_.pd.sglang_rank_fields};
  if (engine_id_ != nullptr) {
    pair.prefill.engine_id = *engine_id_;
    if (!pair.prefill.bootstrap_port) pair.prefill.bootstrap_port = settings_.pd.bootstrap_port;
  }
  if (!rooms_.empty() && pair.prefill.rank) pair.prefill.dp_size = RanksOfPrefill();
  pair.prefill.push = thread_.push_identities.Find(prefill_.worker->id);
  return pair;
}

// Of the attempt that has just failed.
void PdExchange::NoteFailure(const StageLeg& leg, StageState& stage, const PdEvent& event) {
  failed_ = &stage;
  if (&stage == &prefill_ && event.type != PdEventType::kPUnreached) prefill_was_reached_ = true;
  what_failed_ = &stage == &prefill_ ? "prefill" : "decode";
  thread_.telemetry.PairFailed(leg.worker());
  // Perhaps its engine has started anew.
  if (prefill_.worker != nullptr) thread_.push_identities.Forget(prefill_.worker->id);
  const bool is_rejected = event.type == PdEventType::kPRejected || event.type == PdEventType::kDRejected;
  const bool is_of_pair = &stage == &prefill_ || leg.has_parameters();
  if (engine_id_ != nullptr && is_of_pair && !is_rejected) thread_.health.transfer_failed(prefill_.worker);
  failure_.retry_after_ms = leg.retry_after_ms();
  if (failure_.first_sent_ns == 0) failure_.first_sent_ns = leg.request().first_sent_ns();
  const bool is_transfer =
      leg.has_parameters() && (event.type == PdEventType::kDError || event.type == PdEventType::kDErrorEvent);
  const bool is_late = leg.has_parameters() && event.type == PdEventType::kDTimeout;
  if (is_transfer || is_late) what_failed_ = "transfer";
  if (is_transfer && leg.worker()->failed_transfers.fetch_add(1, std::memory_order_relaxed) >= kPardoned) {
    stage.leg->request().RecordAttempt();  // not for want of a prefill worker
  }
  if (leg.request().drained()) {
    failure_.how = leg.request().failure();
    failure_.status = 0;
    failure_error_ = leg.request().error();
    return;
  }
  if (leg.status() != 0 && !leg.broke_off()) {
    failure_.how = AttemptFailure::kStatus;
    failure_.status = leg.error_event() ? 500 : leg.status();
    return;
  }
  failure_.how = leg.broke_off() ? AttemptFailure::kLost : leg.request().failure();
  failure_.status = 0;
  failure_error_ = leg.broke_off() ? HttpError::kWorkerClosed : leg.request().error();
  // The limit of a transfer says nothing against another attempt.
  if (is_late) {
    failure_.how = AttemptFailure::kStatus;
    failure_.status = 504;
  }
  const bool lost = failure_.how == AttemptFailure::kLost || failure_.how == AttemptFailure::kBroken;
  if (!lost) return;
  stage.lost = true;
  losses_.Report(request_.message, *leg.worker(), leg.request().first_sent_ns(), request_.id->id);
}

// One that no leg has reported.
void PdExchange::SetDecodeFailure(AttemptFailure how, int status, HttpError error, std::string_view what) {
  failed_ = &decode_;
  what_failed_ = what;
  thread_.telemetry.PairFailed(decode_.worker);
  failure_.how = how;
  failure_.status = status;
  failure_error_ = error;
}

bool PdExchange::MayRetry(const PdRetry& retry, int64_t* pause_ns) {
  *pause_ns = 0;
  // Another kind of attempt, since there was no other pair, is part of the retry that was permitted.
  if (std::exchange(no_other_pair_, false) || !retry.counted) return true;
  const int64_t now = thread_.clock.NowNanos();
  failure_.untried_left = failed_ == nullptr || failed_->choice.AnyUntried();
  const std::optional<int64_t> pause = plan_->Next(failure_, now, thread_.ids);
  info_.retries_exhausted = plan_->exhausted();
  if (!pause || losses_.IsSuspected()) return false;
  if (failure_.how != AttemptFailure::kConnect && !thread_.retry_budget.Take(now)) return false;
  *pause_ns = *pause;
  ++info_.retries;
  thread_.telemetry.PairRetried(what_failed_);
  if (failed_ == nullptr) return true;
  const bool is_drained = failure_error_ == HttpError::kWorkerDrained;
  thread_.telemetry.Retried(is_drained ? nullptr : failed_->worker, plan_->failures(), *pause);
  return true;
}

bool PdExchange::MayServeAlone() const {
  return settings_.pd.on_prefill_loss == PdOnPrefillLoss::kLocal &&
         request_.connector->traits().decode_can_prefill;
}

// The last attempt failed since its prefill worker could not be reached, as all that have failed at prefill.
bool PdExchange::IsPrefillUnreached() const { return failed_ == &prefill_ && !prefill_was_reached_; }

// What failed is excluded by its worker's id, for the rest of the request. Where decode may serve alone and no prefill
// worker was reached, it does so at once if there is no other, and instead of an error if there may be no retry.
Task<void> PdExchange::Retry() {
  co_await thread_.loop.Yield();
  bool may = false;
  const bool is_local = machine_.retry().next == PdAttemptKind::kLocal;
  const bool unreached = MayServeAlone() && IsPrefillUnreached();
  if (machine_.choosing()) {
    // A request that was local from the start has no prefill worker.
    if (machine_.retry().exclude_p && prefill_.worker != nullptr) {
      prefill_.choice.SetAttempted(prefill_.worker->id);
    }
    if (machine_.retry().exclude_d) decode_.choice.SetAttempted(decode_.worker->id);
    int64_t pause_ns = 0;
    const bool is_last = unreached && !is_local && !prefill_.choice.AnyUntried();
    may = !is_last && MayRetry(machine_.retry(), &pause_ns);
    if (may && pause_ns > 0) {
      Delay delay(thread_.loop);
      pause_ = &delay;
      co_await delay.For(pause_ns);
      pause_ = nullptr;
    }
  }
  --tasks_;
  if (!machine_.choosing()) {
    Wake();
  } else if (may && Choose(machine_.retry())) {
    if (is_local && unreached) {  // its record is as if none had been chosen
      pd_.local = "prefill_loss";
      pd_.prefill = nullptr;
      pd_.prefill_end_ns = 0;
      pd_.pair_id.clear();
    }
    Plan(machine_.retry().next);
  } else if (may && ChooseOtherGroup(machine_.retry())) {
    Plan(PdAttemptKind::kPair);
  } else if (may || (unreached && !is_local)) {
    no_other_pair_ = true;
    Post({.type = PdEventType::kNoOtherPair, .p_failed = unreached});
  } else {
    Post({.type = PdEventType::kNoRetry});
  }
}

// ---- legs

StageLeg& PdExchange::AddLeg(StageState& stage, RequestInfo& info, Stage which) {
  legs_.push_back(std::make_unique<StageLeg>(*this, thread_, info, which));
  stage.leg = legs_.back().get();
  ++tasks_;
  return *stage.leg;
}

StageLeg::Setup PdExchange::SetupFor(std::string id) const {
  return {
      .message = request_.message,
      .id = std::move(id),
      .body = request_.body,
      .connector = request_.connector,
      .insertions = request_.insertions,
      .most_bytes = settings_.pd.prefill_response_bytes,
      .must_hand_over = order_ == PdOrder::kSerial && request_.connector->traits().needs_parameters};
}

void PdExchange::OpenPrefill() {
  StageLeg& leg = AddLeg(prefill_, prefill_info_, Stage::kPrefill);
  StageLeg::Setup setup = SetupFor(pair_id_);
  setup.patch = PrefillPatch(request_.route, *request_.body, *request_.connector, PairOf());
  setup.message.pair = {
      .is_prefill = true, .identity = true, .first_byte_timeout_ms = settings_.pd.prefill_timeout_ms};
  setup.may_merge = MergesLogprobs();
  setup.keeps_usage = MergesUsage();
  leg.Start(settings_, prefill_.errors, std::move(setup), *std::move(prefill_.selected), prefill_.lost);
  prefill_.selected.reset();
}

void PdExchange::OpenDecode(bool with_parameters) {
  if (source_ != nullptr && with_parameters && !MayStillServe(*decode_.worker)) {
    return Post({.type = PdEventType::kDIneligible});
  }
  if (!decode_.selected->pass) TakePassAgain();
  StageLeg& leg = AddLeg(decode_, info_, Stage::kDecode);
  const bool is_pair = !pair_id_.empty();
  StageLeg::Setup setup = SetupFor(is_pair ? pair_id_ : std::string(request_.message.client.request_id));
  setup.has_parameters = with_parameters;
  const bool merges_usage = with_parameters && MergesUsage() && !IsStream(*request_.body);
  setup.may_merge = is_pair && (MergesLogprobs() || merges_usage);
  if (with_parameters) {
    std::optional<std::string_view> parameters;
    if (source_ != nullptr) parameters = source_->prefill().parameters;
    setup.patch = DecodePatch(request_.route, *request_.plan, *request_.connector, PairOf(), parameters);
  } else if (is_pair) {
    setup.patch = DecodePatchWithout(request_.route, *request_.plan, *request_.connector, PairOf());
  } else {
    setup.patch = request_.plan->plain;
  }
  // A response that is no stream begins when it is complete, and where both get their requests at once, the time
  // includes prefill's. There the health check of prefill tells that blocks will not come.
  const bool transfers = with_parameters && order_ == PdOrder::kSerial && IsStream(*request_.body);
  setup.message.pair = {.first_byte_timeout_ms = transfers ? settings_.pd.transfer_timeout_ms : 0};
  pd_.transferred = with_parameters;
  leg.Start(settings_, decode_.errors, std::move(setup), *std::move(decode_.selected), decode_.lost);
  decode_.selected.reset();
}

bool PdExchange::MergesLogprobs() const {
  return settings_.pd.logprobs == PdLogprobs::kMerge && WantsMerge(request_.route, *request_.body);
}

bool PdExchange::MergesUsage() const {
  return settings_.pd.usage == PdUsage::kMerge &&
         (request_.route == PdRoute::kCompletions || request_.route == PdRoute::kChat);
}

// Since it was chosen, a prefill has passed.
bool PdExchange::MayStillServe(const Worker& worker) const {
  const std::shared_ptr<const FleetView> fleet = decode_.choice.Fleet();
  const std::optional<uint32_t> position = fleet->Find(worker.id);
  return position && fleet->members()[*position].in_rotation();
}

void PdExchange::CloseLeg(StageState& stage) {
  if (stage.leg != nullptr) stage.leg->Close();
}

// The stage's load goes back: of the leg, or of a choice that was sent nothing.
void PdExchange::Release(StageState& stage) {
  stage.selected.reset();
  StageLeg* const leg = stage.leg;
  if (leg == nullptr || leg == relayed_ || leg->request().ticket().finished()) return;
  if (&stage == &prefill_) {
    pd_.prefill_status = leg->status();
    pd_.prefill_end_ns = thread_.clock.NowNanos();
    if (leg->status() != 0) pd_.prefill_ns = pd_.prefill_end_ns - prefill_info_.sent_ns;
  }
  if (std::string bytes = leg->TakeBytes(); !bytes.empty()) {
    stage.kept.emplace(std::move(bytes));
    stage.kept_worker = leg->worker();
  }
  Outcome outcome = leg->outcome();
  if (leg->request().first_sent_ns() == 0) outcome.end = Outcome::End::kNotSent;
  leg->request().ticket().Finish(outcome);
}

// ---- the client

void PdExchange::Commit() {
  relayed_ = decode_.leg;
  UpstreamRequest& request = relayed_->request();
  request.RecordAttempt();
  info_.worker = request.worker();
  info_.decision = request.ticket().decision();
  info_.policy = request.ticket().policy().name();
  if (!pair_id_.empty()) thread_.router->LearnTransferred(*request_.choice.key, *info_.worker);
  if (pd_.prefill_end_ns != 0) pd_.handoff_ns = thread_.clock.NowNanos() - pd_.prefill_end_ns;
  if (relayed_->is_whole()) UseMerged();
  SetEnd(End::kResponded);
}

// Decode's response with prefill's log probabilities of the prompt and its usage, or as it is where they do not fit.
void PdExchange::UseMerged() {
  std::string body = relayed_->body();
  const auto use = [&body](std::optional<std::string> merged) {
    if (merged) body = *std::move(merged);
  };
  if (prefill_.leg != nullptr && MergesLogprobs())
    use(MergeResponses(request_.route, prefill_.leg->body(), body));
  if (const std::string* const usage = prefill_usage(); usage != nullptr && !usage->empty())
    use(MergeUsage(*usage, body));
  std::string bytes;
  WriteWholeHead(relayed_->request().response(), body.size(), &bytes);
  bytes.append(body);
  decode_.kept.emplace(std::move(bytes));
  decode_.kept->Use(thread_, /*to_head=*/false);
  kept_ = &*decode_.kept;
}

// What decode says of a prompt that it has computed itself is right.
const std::string* PdExchange::prefill_usage() const {
  const bool merges = relayed_ != nullptr && relayed_->has_parameters() && prefill_.leg != nullptr;
  return merges && MergesUsage() ? &prefill_.leg->usage() : nullptr;
}

void PdExchange::RespondWith(StageState& stage) {
  if (!stage.kept && stage.leg != nullptr && stage.leg->withheld()) {
    return RespondWith(
        HttpError::kWorkerBadResponse,
        Concat(
            "The prefill worker's response names no KV blocks, or is longer than "
            "--pd-prefill-response-bytes; "
            "with --kv-connector ",
            request_.connector->traits().name, " no decode worker serves the request without them."));
  }
  if (!stage.kept) return RespondWith(failure_error_);
  stage.kept->Use(thread_, /*to_head=*/false);
  kept_ = &*stage.kept;
  info_.worker = stage.kept_worker;
  SetEnd(End::kResponded);
}

void PdExchange::RespondWith(HttpError error, std::string message) {
  if (failed_ != nullptr) info_.worker = failed_->worker;
  Fail(error, std::move(message));
  SetEnd(End::kFailed);
}

void PdExchange::Cancel() {
  if (pause_ != nullptr) pause_->Cancel();
  if (!machine_.responded() && machine_.client() != PdClient::kGone)
    thread_.telemetry.PairCancelled(UnderWay());
  SetEnd(End::kCancelled);
  const bool readable =
      prefill_.leg != nullptr && prefill_.leg->runs() && prefill_.leg->request().HasArrived();
  Post({.type = PdEventType::kClientGone, .p_readable = readable});
}

// When a request is cancelled.
std::string_view PdExchange::UnderWay() const {
  if (machine_.choosing()) return "choosing";
  if (machine_.client() == PdClient::kBegun) return "generating";
  if (decode_.leg != nullptr && decode_.leg->runs() && decode_.leg->request().first_sent_ns() != 0)
    return "decode";
  return machine_.holds_claim() ? "handover" : "prefill";
}

bool PdExchange::IsAt(const Worker& worker) const {
  for (const std::unique_ptr<StageLeg>& leg : legs_) {
    if ((leg->runs() || leg.get() == relayed_) && leg->worker().get() == &worker) return true;
  }
  return WaitsForBlocksOf(worker);
}

bool PdExchange::WaitsForBlocksOf(const Worker& worker) const {
  return relayed_ == nullptr && source_ != nullptr && source_->worker().get() == &worker &&
         decode_.leg != nullptr && decode_.leg->runs() && decode_.leg->has_parameters();
}

void PdExchange::WorkerDied(const Worker& worker) {
  for (const std::unique_ptr<StageLeg>& leg : legs_) {
    if (leg->runs() && leg->worker().get() == &worker) leg->request().WorkerDied();
  }
  if (!WaitsForBlocksOf(worker)) return;
  SetDecodeFailure(AttemptFailure::kStatus, 504, HttpError::kFirstByteTimeout, "transfer");
  Post({.type = PdEventType::kDTimeout, .early = true});
}

// Decode may still wait for blocks of a prefill worker that has nothing more to do for the request: that goes on.
bool PdExchange::WorkerDrained(const Worker& worker) {
  if (relayed_ != nullptr && relayed_->worker().get() == &worker) return false;
  for (const std::unique_ptr<StageLeg>& leg : legs_) {
    if (leg->runs() && leg->worker().get() == &worker) leg->request().WorkerDrained();
  }
  return true;
}

// Decode waits for prefill where both have the request at once, which says nothing of decode.
void PdExchange::AddWaits(
    const Worker& worker, size_t* reads_bodies, std::vector<HangDetector::Wait>* waits) {
  const bool prefills =
      prefill_.leg != nullptr && prefill_.leg->runs() && prefill_.leg->worker().get() != &worker;
  for (const std::unique_ptr<StageLeg>& leg : legs_) {
    const bool is_there = leg->runs() && leg->worker().get() == &worker;
    if (is_there && !prefills && leg->request().AwaitsFirstByte())
      AddWait(leg->request(), info_.route, reads_bodies, waits);
  }
}

void PdExchange::CountFirstByte() {
  if (relayed_ != nullptr) relayed_->request().CountFirstByte();
}

// ---- afterwards

const ResponseHead& PdExchange::response() const {
  return kept_ != nullptr ? kept_->head() : relayed_->request().response();
}

Buffer& PdExchange::in() { return kept_ != nullptr ? kept_->in() : relayed_->request().in(); }

Socket& PdExchange::worker() {
  const bool relays = relayed_ != nullptr && relayed_->request().has_connection();
  return relays ? relayed_->request().socket() : no_connection_;
}

// A leg that runs may have to send its request once more, on a fresh connection.
bool PdExchange::sent() const {
  for (const std::unique_ptr<StageLeg>& leg : legs_) {
    if (leg->runs()) return false;
  }
  return relayed_ == nullptr || relayed_->request().sent();
}

void PdExchange::ForgetResponseHead() {
  if (kept_ != nullptr) {
    kept_->ForgetHead(thread_);
  } else {
    relayed_->request().ForgetResponseHead();
  }
}

void PdExchange::ResponseEnded(ResponseEnd end) {
  if (relayed_ == nullptr) return;
  if (end == ResponseEnd::kWhole) losses_.ReportServed(*relayed_->worker(), request_.id->id);
  if (relayed_->closed()) return;  // because of prefill
  relayed_->request().RecordResponseEnd(end);
  if (end != ResponseEnd::kWhole) thread_.telemetry.PairBrokeOff(relayed_->worker());
  if (end == ResponseEnd::kBrokeOff) return Post({.type = PdEventType::kDLost});
  Post({.type = PdEventType::kDDone, .server_error = end != ResponseEnd::kWhole});
}

void PdExchange::RecordTimeout() {
  if (decode_.leg != nullptr) {
    decode_.leg->request().RecordTimeout();
  } else if (prefill_.leg != nullptr) {
    prefill_.leg->request().RecordTimeout();
  }
}

void PdExchange::SettleServerErrors() {
  prefill_.errors.Ended();
  decode_.errors.Ended();
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
  while (tasks_ != 0 || (began_ && !machine_.over())) co_await Wakeup{this};
  if (relayed_ != nullptr) co_await relayed_->request().StopSending();
}

void PdExchange::ReleaseConnection(bool reusable) {
  if (relayed_ != nullptr) relayed_->request().ReleaseConnection(reusable);
}

// ---- timers

void PdExchange::OnHandoffLate(void* exchange) {
  auto* self = static_cast<PdExchange*>(exchange);
  if (self->machine_.holds_claim() && !self->machine_.choosing()) {  // decode has not taken its request
    self->SetDecodeFailure(AttemptFailure::kConnect, 0, HttpError::kConnectTimeout, "decode");
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
