#include "proxy/admission/class_dispatch.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/time_units.h"
#include "proxy/api/settings.h"
#include "proxy/exchange/downstream.h"
#include "proxy/exchange/request.h"
#include "proxy/thread/io_thread.h"
#include "routing/prompt_holders.h"
#include "worker/fleet_view.h"

namespace vllm_router {
namespace {

void PumpNow(ClassPool& pool, const ClassPools& pools, const AdmissionSettings& settings, IoThread& thread) {
  const std::shared_ptr<const FleetView> fleet = pool.ViewIn(thread.fleet.Get());
  pool.Pump(*fleet, LimitsOf(pools, settings, thread), thread.clock.NowNanos());
}

double RandomShare(IoThread& thread) {
  constexpr uint64_t kSteps = 1 << 20;
  return static_cast<double>(thread.ids.Below(kSteps)) / kSteps;
}

}  // namespace

ClassDispatch::ClassDispatch(
    Request& request, ThreadClasses& thread, std::shared_ptr<const AdmissionSettings> settings,
    const Claim& claim)
    : request_(request),
      thread_(thread),
      settings_(std::move(settings)),
      claim_(claim),
      past_prompt_(request, thread.pools.whole(), claim.is_whole, &ClassDispatch::OnPastPrompt, this) {
  place_.owner = this;
  place_.tell = &ClassDispatch::OnTold;
  place_.of_class = claim.of_class;
  place_.tenant = claim.tenant;
  place_.weight = claim.weight;
  place_.cost = CostOf(claim.prompt, claim.output);
}

bool ClassDispatch::TryPass() {
  IoThread& thread = request_.thread;
  const std::shared_ptr<const FleetView> fleet = FindPool();
  const int64_t now = thread.clock.NowNanos();
  const ClassGate gate = settings_->of(place_.of_class).room.gate;
  if (gate != ClassGate::kIdleOnly) pool_->HigherCame(now);
  const RoomLimits limits = LimitsOf(thread_.pools, *settings_, thread);
  if (!pool_->TryPass(place_.of_class, *fleet, limits, now)) return false;
  place_.kind = DispatchKind::kDirect;
  place_.idle_only = gate == ClassGate::kIdleOnly;
  Dispatched();
  return true;
}

// The pool counts it already.
void ClassDispatch::Dispatched() {
  state_ = State::kChoosing;
  prefills_ = place_.idle_only;
  charged_ = place_.kind != DispatchKind::kDirect;
  if (!std::exchange(counted_, true))
    thread_.dispatched[static_cast<size_t>(place_.of_class)][static_cast<size_t>(place_.kind)].Add();
  if (request_.info.identity != nullptr) request_.info.identity->dispatch = DispatchKindName(place_.kind);
  if (request_.workers.gate == nullptr) request_.workers.gate = this;  // else it is in front of another
}

// ---- the wait

Task<Verdict> ClassDispatch::Run() {
  IoThread& thread = request_.thread;
  if (thread.draining) {
    std::string message;
    co_await request_.client.ReplyError(HttpError::kShuttingDown, std::move(message));
    co_return Verdict::kEnd;
  }
  FindHolders();
  const WaitEnd end = co_await WaitOn(/*is_queued=*/false);
  const Verdict verdict = co_await Settled(end);
  co_return verdict;
}

std::shared_ptr<const FleetView> ClassDispatch::FindPool() {
  IoThread& thread = request_.thread;
  std::shared_ptr<const FleetView> fleet = request_.workers.Now(thread);
  pool_ = thread_.PoolOf(*fleet, *thread.fleet.Get(), request_.workers.model.get(), settings_);
  return fleet;
}

// Of one that stepped back only a later event finds a place: its own would be the one that it just did not get.
Task<WaitEnd> ClassDispatch::WaitOn(bool is_queued) {
  IoThread& thread = request_.thread;
  bool stepped_back = is_queued;
  for (;;) {
    while (!is_queued) {
      const ClassPool::Entered entered =
          pool_->Enqueue(&place_, RandomShare(thread), thread.clock.NowNanos());
      is_queued = entered.queued;
      if (entered.queued) break;
      place_.retry_after_ns = entered.retry_after_ns;
      if (!entered.retired) co_return WaitEnd::kFull;
      FindPool();
    }
    const WaitEnd end = co_await Wait(/*pumps=*/!std::exchange(stepped_back, false));
    if (end != WaitEnd::kMoved) co_return end;
    is_queued = false;
    FindPool();
  }
}

// A client that leaves gives up its place. If its body has not been read, only the end of its connection can be watched
// for.
Task<WaitEnd> ClassDispatch::Wait(bool pumps) {
  IoThread& thread = request_.thread;
  OnCancel leave(request_.scope, [this] { Leave(WaitEnd::kLeft); });
  if (request_.stream_body) request_.client.watch().BeginEnd();
  const int64_t began_ns = thread.clock.NowNanos();
  if (deadline_ns_ == 0)
    deadline_ns_ = began_ns + settings_->of(place_.of_class).queue_timeout_ms * kNanosPerMs;
  state_ = State::kWaiting;
  request_.scope.set_long();  // a stopping server does not wait for queues
  timer_.Arm(
      thread.loop.timers(), std::max<int64_t>(1, (deadline_ns_ - began_ns) / kNanosPerMs),
      &ClassDispatch::OnTimeout, this);
  ArmHoldersTimer();
  // Room that appeared before it was in the queue was announced to no waiter.
  if (pumps) Pump();
  if (request_.is_cancelled()) Leave(WaitEnd::kLeft);
  co_await ended_;
  timer_.Disarm();
  holders_timer_.Disarm();
  request_.scope.set_long(false);
  state_ = State::kNew;
  if (end_ == WaitEnd::kDispatched) Dispatched();
  const int64_t waited_ns = thread.clock.NowNanos() - began_ns;
  thread_.waits[static_cast<size_t>(place_.of_class)].Add(waited_ns);
  request_.info.queue_ns += waited_ns;
  request_.client.watch().StopEnd();
  co_return end_;
}

Task<Verdict> ClassDispatch::Settled(WaitEnd end) {
  if (end == WaitEnd::kDispatched || request_.is_cancelled()) co_return Verdict::kNext;
  auto& rejected = thread_.rejected[static_cast<size_t>(place_.of_class)];
  HttpError error = HttpError::kQueueFull;
  if (end == WaitEnd::kTimeout && place_.in_front) {
    rejected[ThreadClasses::kTimeout].Add();
    error = HttpError::kEvicted;
    place_.retry_after_ns = 0;  // its error's own: it was about to be served
  } else if (end == WaitEnd::kTimeout) {
    rejected[ThreadClasses::kTimeout].Add();
    error = HttpError::kQueueTimeout;
  } else if (end == WaitEnd::kDisplaced) {
    rejected[ThreadClasses::kDisplaced].Add();
    error = HttpError::kDisplaced;
  } else {
    rejected[ThreadClasses::kFull].Add();
  }
  co_await request_.client.Reject(error, place_.retry_after_ns);
  co_return Verdict::kEnd;
}

void ClassDispatch::Leave(WaitEnd why) {
  IoThread& thread = request_.thread;
  if (state_ != State::kWaiting || !pool_->Leave(&place_, RandomShare(thread), thread.clock.NowNanos()))
    return;
  state_ = State::kNew;
  OnTold(&place_, why);
}

// Posted, not called: the resumed coroutine may end the exchange, and the caller is in the middle of its work.
// On any thread. The wait is not over before the loop has run this.
void ClassDispatch::OnTold(ClassPool::Waiter* waiter, WaitEnd end) {
  ClassDispatch* const self = static_cast<Place*>(waiter)->owner;
  self->request_.thread.loop.Post([self, end] {
    self->end_ = end;
    self->ended_.Notify();
  });
}

void ClassDispatch::OnTimeout(void* dispatch) {
  static_cast<ClassDispatch*>(dispatch)->Leave(WaitEnd::kTimeout);
}

// ---- where its prompt is cached

// Before it is queued, or of its copy in the queue. What is cached of the prompt costs nothing.
void ClassDispatch::FindHolders() {
  IoThread& thread = request_.thread;
  const std::shared_ptr<const FleetView> fleet = request_.workers.Now(thread);
  const PromptHolders held = vllm_router::FindHolders(*thread.router, &request_.key, *fleet);
  ClassPool::Holders holders;
  for (size_t i = 0; i < held.size(); ++i)
    holders[i] = {.worker = static_cast<uint32_t>(held[i].worker), .share = held[i].share};
  if (state_ == State::kWaiting) return pool_->SetHolders(&place_, holders);
  place_.holders = holders;
  const auto cached = static_cast<uint64_t>(static_cast<double>(claim_.prompt) * double{holders[0].share});
  place_.cost = CostOf(claim_.prompt - cached, claim_.output);
}

void ClassDispatch::ArmHoldersTimer() {
  constexpr int64_t kIntervalMs = 500;
  holders_timer_.Arm(request_.thread.loop.timers(), kIntervalMs, &ClassDispatch::OnHoldersTimer, this);
}

void ClassDispatch::OnHoldersTimer(void* dispatch) {
  auto* const self = static_cast<ClassDispatch*>(dispatch);
  if (self->state_ != State::kWaiting) return;
  if (self->pool_->IsSearched(self->place_)) self->FindHolders();
  self->ArmHoldersTimer();
}

// ---- the first attempt

WorkerGate::Positions ClassDispatch::Closed(const FleetView& fleet) const {
  const ClassGate gate = settings_->of(place_.of_class).room.gate;
  const RoomLimits limits = LimitsOf(thread_.pools, *settings_, request_.thread);
  if (gate == ClassGate::kOpen && limits.max_worker_requests == 0) return {};
  const int64_t now = request_.thread.clock.NowNanos();
  PoolRoom pool = pool_->RoomNow(fleet, limits, now);
  pool.idle_only_prefills = 0;  // it is one of them
  return ClosedFor(fleet, place_.of_class, limits, pool, now);
}

void ClassDispatch::Chosen(const Ticket* /*ticket*/) {
  if (state_ != State::kChoosing) return;
  Left();
  past_prompt_.Begin();
  Pump();
}

Task<Verdict> ClassDispatch::WaitAgain() {
  past_prompt_.End();
  EndPrefill();
  if (thread_.rules.Get()->settings == nullptr) {  // there are no classes any more
    End(0);
    co_return Verdict::kNext;
  }
  IoThread& thread = request_.thread;
  // In the queue before it is no request under way, so that its pool is in use.
  const bool is_queued = std::exchange(charged_, false) && pool_->Requeue(&place_, thread.clock.NowNanos());
  Left();
  if (pool_->retired()) FindPool();
  if (!is_queued) FindHolders();
  const WaitEnd end = co_await WaitOn(is_queued);
  const Verdict verdict = co_await Settled(end);
  co_return verdict;
}

// What it was charged is given back, and charged again when it is dispatched. It keeps its permit, as those who were
// dispatched before it do.
Task<Verdict> ClassDispatch::WaitInFront() {
  past_prompt_.End();
  EndPrefill();
  if (std::exchange(charged_, false)) pool_->Settle(place_, 0);
  if (thread_.rules.Get()->settings == nullptr) {  // there are no classes any more
    End();
    co_return Verdict::kNext;
  }
  place_.in_front = true;
  if (place_.queued_ns == 0) place_.queued_ns = request_.info.body_ns;
  deadline_ns_ = 0;
  FindHolders();
  const WaitEnd end = co_await WaitOn(/*is_queued=*/false);
  const Verdict verdict = co_await Settled(end);
  co_return verdict;
}

// It is under way to its choice no more.
void ClassDispatch::Left() {
  if (state_ == State::kChoosing) pool_->Chosen();
  state_ = State::kChosen;
}

// By the rules of now: the request may have come when there were others.
const AdmissionSettings& ClassDispatch::Rules() {
  const std::shared_ptr<const AdmissionSettings>& now = thread_.rules.Get()->settings;
  return now != nullptr ? *now : *settings_;
}

void ClassDispatch::Pump() {
  if (pool_->any_waiting()) PumpNow(*pool_, thread_.pools, Rules(), request_.thread);
}

// ---- its prompt, and the end

void ClassDispatch::OnPastPrompt(void* dispatch) {
  auto* const self = static_cast<ClassDispatch*>(dispatch);
  self->EndPrefill();
  self->Pump();
}

void ClassDispatch::EndPrefill() {
  if (std::exchange(prefills_, false)) pool_->EndPrefill();
}

void ClassDispatch::Responded() {
  if (pool_ == nullptr || state_ != State::kChosen || std::exchange(responded_, true)) return;
  past_prompt_.Stop();
  if (request_.info.stream) past_prompt_.End();  // else its ticket counts it as waiting to the end
  EndPrefill();
  PumpSoon();
}

// When a response is seen its ticket has not yet, though it does in this turn of the loop.
void ClassDispatch::PumpSoon() {
  if (!pool_->any_waiting()) return;
  IoThread& thread = request_.thread;
  thread.loop.Post([&thread, &classes = thread_, pool = pool_] {
    const std::shared_ptr<const AdmissionSettings> rules = classes.rules.Get()->settings;
    if (rules != nullptr) PumpNow(*pool, classes.pools, *rules, thread);
  });
}

void ClassDispatch::End(std::optional<uint64_t> actual) {
  if (pool_ == nullptr) return;
  timer_.Disarm();
  holders_timer_.Disarm();
  past_prompt_.End();
  EndPrefill();
  if (state_ == State::kChoosing) pool_->Chosen();
  state_ = State::kNew;
  if (std::exchange(charged_, false)) pool_->Settle(place_, actual.value_or(place_.cost));
  Pump();
  request_.workers.gate = nullptr;
  pool_ = nullptr;
}

}  // namespace vllm_router
