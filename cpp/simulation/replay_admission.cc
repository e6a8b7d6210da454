#include "simulation/replay_admission.h"

#include <algorithm>
#include <limits>

#include "base/check.h"
#include "base/time_units.h"
#include "worker/fleet_view.h"

namespace vllm_router {
namespace {

ClassPool::Holders HoldersOf(const PromptHolders& held) {
  ClassPool::Holders holders;
  for (size_t i = 0; i < held.size(); ++i)
    holders[i] = {.worker = static_cast<uint32_t>(held[i].worker), .share = held[i].share};
  return holders;
}

}  // namespace

ReplayAdmission::ReplayAdmission(
    std::shared_ptr<const AdmissionSettings> settings, uint32_t max_worker_requests)
    : settings_(std::move(settings)), max_worker_requests_(max_worker_requests), pool_("", settings_) {}

RoomLimits ReplayAdmission::Limits() const {
  return {
      .settings = *settings_,
      .whole = whole_,
      .max_worker_requests = max_worker_requests_,
      .free_permits = std::numeric_limits<uint64_t>::max()};
}

// ---- into the queue

bool ReplayAdmission::TryPass(uint32_t row, const Claim& claim, const FleetView& fleet, int64_t now_ns) {
  auto& place = places_[row];
  ROUTER_CHECK(place == nullptr, "a row arrives once");
  place = std::make_unique<Place>();
  place->owner = this;
  place->row = row;
  place->tell = &ReplayAdmission::OnTold;
  place->of_class = claim.of_class;
  place->tenant = claim.tenant;
  place->weight = claim.weight;
  place->prompt_tokens = claim.prompt_tokens;
  place->output_tokens = claim.output_tokens;
  place->cost = CostOf(claim.prompt_tokens, claim.output_tokens);
  const ClassGate gate = settings_->of(claim.of_class).room.gate;
  if (gate != ClassGate::kIdleOnly) pool_.HigherCame(now_ns);
  if (!pool_.TryPass(claim.of_class, fleet, Limits(), now_ns)) return false;
  place->kind = DispatchKind::kDirect;
  place->idle_only = gate == ClassGate::kIdleOnly;
  Dispatched(place.get());
  return true;
}

// What is cached of its prompt costs nothing.
bool ReplayAdmission::Enqueue(uint32_t row, const PromptHolders& held, int64_t now_ns) {
  Place* const place = places_.at(row).get();
  place->holders = HoldersOf(held);
  const double share = std::clamp<double>(place->holders[0].share, 0, 1);
  const auto cached = static_cast<uint64_t>(static_cast<double>(place->prompt_tokens) * share);
  place->cost = CostOf(place->prompt_tokens - cached, place->output_tokens);
  if (!pool_.Enqueue(place, /*random=*/0, now_ns).queued) {
    places_.erase(row);
    return false;
  }
  Queued(place, now_ns);
  return true;
}

void ReplayAdmission::Queued(Place* place, int64_t now_ns) {
  const auto of_class = static_cast<size_t>(place->of_class);
  place->state = State::kWaiting;
  waiting_.insert(place->row);
  deadlines_[of_class].emplace_back(
      now_ns + settings_->classes[of_class].queue_timeout_ms * kNanosPerMs, place->row);
}

// ---- out of the queue

void ReplayAdmission::OnTold(ClassPool::Waiter* waiter, WaitEnd end) {
  auto* const place = static_cast<Place*>(waiter);
  ReplayAdmission* const self = place->owner;
  self->waiting_.erase(place->row);
  if (end == WaitEnd::kDispatched) self->Dispatched(place);
  self->ended_.push_back({place->row, end});
}

// The pool counts it already.
void ReplayAdmission::Dispatched(Place* place) {
  place->state = State::kChoosing;
  place->prefills = place->idle_only;
  place->charged = place->kind != DispatchKind::kDirect;
}

std::vector<ReplayAdmission::Ended> ReplayAdmission::TakeEnded() {
  for (const Ended& ended : ended_) {
    if (ended.end != WaitEnd::kDispatched) places_.erase(ended.row);
  }
  return std::exchange(ended_, {});
}

void ReplayAdmission::EndDue(int64_t now_ns) {
  for (auto& deadlines : deadlines_) {
    while (!deadlines.empty() && deadlines.front().first <= now_ns) {
      const uint32_t row = deadlines.front().second;
      deadlines.pop_front();
      if (!waiting_.contains(row)) continue;
      Place* const place = places_.at(row).get();
      if (pool_.Leave(place, /*random=*/0, now_ns)) OnTold(place, WaitEnd::kTimeout);
    }
  }
}

void ReplayAdmission::Tick(const Find& find, int64_t now_ns) {
  EndDue(now_ns);
  if (ticks_++ % kTicksPerSearch != 0) return;
  for (const uint32_t row : waiting_) {
    Place* const place = places_.at(row).get();
    if (pool_.IsSearched(*place)) pool_.SetHolders(place, HoldersOf(find(row)));
  }
}

// ---- dispatched

WorkerPositions ReplayAdmission::Closed(uint32_t row, const FleetView& fleet, int64_t now_ns) const {
  const Place& place = *places_.at(row);
  if (place.state != State::kChoosing) return {};
  const RoomLimits limits = Limits();
  if (settings_->of(place.of_class).room.gate == ClassGate::kOpen && max_worker_requests_ == 0) return {};
  PoolRoom pool = pool_.RoomNow(fleet, limits, now_ns);
  pool.idle_only_prefills = 0;  // it is one of them
  return ClosedFor(fleet, place.of_class, limits, pool, now_ns);
}

void ReplayAdmission::Chosen(uint32_t row) {
  Place& place = *places_.at(row);
  if (place.state == State::kChoosing) pool_.Chosen();
  place.state = State::kChosen;
}

bool ReplayAdmission::WaitAgain(uint32_t row, int64_t now_ns) {
  Place* const place = places_.at(row).get();
  EndPrefill(place);
  const bool was_queued = std::exchange(place->charged, false);
  if (was_queued) pool_.Requeue(place, now_ns);
  Chosen(row);
  if (!was_queued) return Enqueue(row, {}, now_ns);
  place->state = State::kWaiting;
  waiting_.insert(row);
  return true;
}

void ReplayAdmission::FirstToken(uint32_t row) { EndPrefill(places_.at(row).get()); }

void ReplayAdmission::EndPrefill(Place* place) {
  if (std::exchange(place->prefills, false)) pool_.EndPrefill();
}

void ReplayAdmission::End(uint32_t row, std::optional<uint64_t> actual) {
  Place* const place = places_.at(row).get();
  EndPrefill(place);
  if (place->state == State::kChoosing) pool_.Chosen();
  if (place->charged) pool_.Settle(*place, actual.value_or(place->cost));
  places_.erase(row);
}

}  // namespace vllm_router
