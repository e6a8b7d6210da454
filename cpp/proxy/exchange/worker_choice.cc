#include "proxy/exchange/worker_choice.h"

#include <algorithm>
#include <utility>

#include "http/dot_segments.h"
#include "proxy/api/settings.h"
#include "proxy/exchange/requested_model.h"
#include "proxy/exchange/worker_gate.h"
#include "proxy/thread/breaker_transitions.h"
#include "proxy/thread/io_thread.h"
#include "proxy/thread/server_limits.h"
#include "routing/router.h"

namespace vllm_router {

namespace {

bool Narrows(const WorkerChoice::How& how) {
  return (how.source != nullptr && !how.source->kv_group.empty()) || !how.without_groups.empty();
}

bool FitsGroups(const Worker& worker, const WorkerChoice::How& how) {
  if (how.source != nullptr && !MayPair(how.source->kv_group, worker.kv_group)) return false;
  return std::ranges::find(how.without_groups, worker.kv_group) == how.without_groups.end();
}

}  // namespace

std::shared_ptr<const FleetView> FleetFor(IoThread& thread, const RequestedModel* model, Stage stage) {
  const std::shared_ptr<const FleetView>& whole = thread.fleet.Get();
  const std::shared_ptr<const FleetView> fleet = model != nullptr ? model->FleetIn(whole) : whole;
  const StageViews* const stages = fleet->stages();
  return stages != nullptr ? stages->of(stage) : fleet;
}

std::optional<WorkerChoice::Selected> WorkerChoice::Select(const How& how) {
  fleet_ = Fleet();
  if (!fleet_->all_admitting()) {
    AdmitHalfOpen(thread_, *fleet_);
    fleet_ = Fleet();
    if (std::optional<Selected> probe = SelectInDoubt(how)) return probe;
  }
  refused_.clear();
  all_full_ = false;
  for (;;) {
    StatusOr<Ticket> ticket = Choose(how);
    if (request_.pinned) {
      if (ticket.ok()) return SelectPinned(*std::move(ticket));
      return Fail(HttpError::kQueueFull, std::string(ticket.status().message()));
    }
    if (!ticket.ok()) {
      std::optional<Selected> selected = how.last_resort ? SelectInPanic(how) : std::nullopt;
      if (selected) return selected;
      all_full_ = thread_.router->options().max_worker_requests != 0 && fleet_->in_rotation() != 0;
      return Fail(HttpError::kNoWorkers, std::string(ticket.status().message()));
    }
    const Worker& worker = ticket->worker();
    if (MayHavePath(worker)) {
      std::optional<BreakerPass> pass = ticket->shared_worker()->breaker.TryPass(settings_.breaker);
      if (pass) {
        if (thread_.limits.panicking.load(std::memory_order_relaxed) && !pass->probe()) {
          EndPanic(thread_, worker);
        }
        return Selected{*std::move(ticket), std::move(pass)};
      }
    }
    refused_.push_back(worker.id);  // another thread's request got the probe
  }
}

// A worker that other requests pass over is left out here too. In panic mode two stages are chosen for.
std::optional<WorkerChoice::Bypass> WorkerChoice::SelectBypass() {
  Router& router = *thread_.router;
  if (!router.may_bypass() || request_.pinned) return std::nullopt;
  fleet_ = Fleet();
  if (!fleet_->all_admitting()) {
    AdmitHalfOpen(thread_, *fleet_);
    fleet_ = Fleet();
  }
  refused_.clear();
  std::optional<Router::Bypass> chosen =
      fleet_->all_admitting() ? router.SelectBypass(*request_.key, *fleet_)
                              : router.SelectBypass(*request_.key, Without({}, {}, PassOver::kBackoff));
  if (!chosen || !MayHavePath(chosen->ticket.worker())) return std::nullopt;
  std::optional<BreakerPass> pass = chosen->ticket.shared_worker()->breaker.TryPass(settings_.breaker);
  if (!pass) return std::nullopt;
  return Bypass{
      .selected = {std::move(chosen->ticket), std::move(pass)},
      .uncached_tokens = chosen->uncached_tokens,
      .saved_tokens = chosen->saved_tokens};
}

std::nullopt_t WorkerChoice::Fail(HttpError error, std::string message) {
  error_ = error;
  message_ = std::move(message);
  return std::nullopt;
}

// No other worker will do, so the request goes to this one even if its circuit breaker is open.
std::optional<WorkerChoice::Selected> WorkerChoice::SelectPinned(Ticket ticket) {
  if (!MayHavePath(ticket.worker())) return Fail(HttpError::kPathOutsidePrefix);
  CircuitBreaker& breaker = ticket.shared_worker()->breaker;
  std::optional<BreakerPass> pass = breaker.TryPass(settings_.breaker);
  if (!pass) pass.emplace(breaker.PassInPanic());
  return Selected{std::move(ticket), std::move(pass)};
}

// False for a worker with a prefix if the fleet had none when this request arrived, so that its path has
// not been checked.
bool WorkerChoice::MayHavePath(const Worker& worker) const {
  return worker.url.prefix.empty() || ResolveDotSegments(request_.path) == DotSegments::kNone;
}

bool WorkerChoice::IsFull(const Worker& worker) const {
  const uint32_t most = thread_.router->options().max_worker_requests;
  return most != 0 && worker.load.open_requests() >= int64_t{most};
}

// The one request that finds out whether a worker in doubt serves again.
std::optional<WorkerChoice::Selected> WorkerChoice::SelectInDoubt(const How& how) {
  if (!fleet_->any_in_doubt() || probe_ == Probe::kNever || request_.pinned || !attempted_.empty())
    return std::nullopt;
  const ProbeDue least = probe_ == Probe::kEarly ? ProbeDue::kOfMovable : ProbeDue::kOfAny;
  for (uint32_t position = 0; position < fleet_->members().size(); ++position) {
    const FleetView::Member& member = fleet_->members()[position];
    Worker& worker = *member.worker;
    if (!member.in_doubt || !member.in_rotation()) continue;
    if (worker.probe_due.load(std::memory_order_relaxed) < least) continue;
    if (!Passes(worker) || !MayHavePath(worker) || !FitsGroups(worker, how) || !worker.breaker.Admits())
      continue;
    if (worker.probe_due.exchange(ProbeDue::kNone, std::memory_order_relaxed) == ProbeDue::kNone)
      continue;  // another thread was faster
    StatusOr<Ticket> ticket = thread_.router->Select(*request_.key, fleet_->Only(position), how.transferred);
    if (!ticket.ok()) continue;
    std::optional<BreakerPass> pass = ticket->shared_worker()->breaker.TryPass(settings_.breaker);
    if (pass) return Selected{*std::move(ticket), std::move(pass)};
  }
  return std::nullopt;
}

// Panic mode, after Envoy's. If no circuit breaker admits a request, a worker that failed a while ago is
// better than a certain error. Among those not attempted yet, and not in doubt, chooses the one whose breaker
// opened first.
std::optional<WorkerChoice::Selected> WorkerChoice::SelectInPanic(const How& how) {
  absl::InlinedVector<uint32_t, 16> positions;
  for (uint32_t position = 0; position < fleet_->members().size(); ++position) {
    if (!fleet_->members()[position].in_rotation()) continue;
    const Worker& worker = fleet_->worker(position);
    if (!Passes(worker) || !MayHavePath(worker)) continue;
    if (how.untried && std::ranges::find(attempted_, worker.id) != attempted_.end()) continue;
    const bool fits = FitsGroups(worker, how);
    // So it may be chosen, and is at --max-worker-requests.
    const bool admits = !fleet_->members()[position].in_doubt && worker.breaker.Admits() &&
                        std::ranges::find(refused_, worker.id) == refused_.end();
    if (admits && (fits || IsFull(worker))) return std::nullopt;
    if (!fits) continue;
    positions.push_back(position);
  }
  const auto order = [this](uint32_t position) {
    const Worker& worker = fleet_->worker(position);
    const auto attempted = std::ranges::find(attempted_, worker.id);
    return std::tuple(
        attempted == attempted_.end() ? 0 : attempted - attempted_.begin() + 1,
        fleet_->members()[position].in_doubt, worker.breaker.opened_ns());
  };
  while (!positions.empty()) {
    const auto first = std::ranges::min_element(positions, {}, order);
    StatusOr<Ticket> ticket = thread_.router->Select(*request_.key, fleet_->Only(*first), how.transferred);
    if (ticket.ok()) {
      BeginPanic(thread_, *fleet_);
      BreakerPass pass = ticket->shared_worker()->breaker.PassInPanic();
      return Selected{*std::move(ticket), std::move(pass)};
    }
    positions.erase(first);
  }
  return std::nullopt;
}

// Usually chooses among all workers of the snapshot. Under --max-worker-requests, a worker with room
// that was attempted, or is in back-off, is better than others without room.
StatusOr<Ticket> WorkerChoice::Choose(const How& how) {
  if (request_.pinned) {
    if (const std::optional<uint32_t> position = fleet_->Find(*request_.pinned)) {
      return thread_.router->SelectPinned(*request_.key, *fleet_, *position, request_.pinned_work);
    }
    request_.pinned.reset();  // it has left the fleet
  }
  const auto select = [&](const FleetView& fleet) {
    return thread_.router->Select(*request_.key, fleet, how.transferred);
  };
  if (request_.gate != nullptr && attempted_.empty()) {
    StatusOr<Ticket> ticket = ChooseOpen(how);
    if (ticket.ok()) return ticket;
  }
  const bool is_whole = attempted_.empty() && refused_.empty() && !Narrows(how) && request_.only == nullptr;
  if (is_whole && fleet_->all_admitting()) return select(*fleet_);
  const FleetView rest = Eligible(how);
  if (how.preferred) {
    const std::optional<uint32_t> position = rest.Find(*how.preferred);
    if (position && rest.IsEligible(*position)) {
      StatusOr<Ticket> ticket = select(rest.Only(*position));
      if (ticket.ok()) return ticket;
    }
  }
  StatusOr<Ticket> ticket = select(rest);
  if (ticket.ok() || how.untried || thread_.router->options().max_worker_requests == 0) return ticket;
  return select(Without(how, {}, PassOver::kNone));
}

// Chooses for the first attempt, without the workers that the gate closes. Not OK: it closes none, or no other may be chosen.
StatusOr<Ticket> WorkerChoice::ChooseOpen(const How& how) {
  const WorkerGate::Positions closed = request_.gate->Closed(*fleet_);
  if (closed.empty()) return absl::NotFoundError("");
  const bool is_whole =
      refused_.empty() && !Narrows(how) && request_.only == nullptr && fleet_->all_admitting();
  const FleetView open = is_whole ? fleet_->Without(closed) : Eligible(how).Without(closed);
  if (open.eligible().empty()) return absl::NotFoundError("");
  return thread_.router->Select(*request_.key, open, how.transferred);
}

// The part of the fleet that this request may use. Attempted workers are left out while there are
// others, and of these likewise the ones in back-off. Attempted workers are identified by ID, so one
// that joined meanwhile counts as not attempted. Requests that were in flight at a lost worker may cause
// the next one to fail as well, so they are spread out as far as there are workers.
FleetView WorkerChoice::Eligible(const How& how) {
  FleetView rest =
      Without(how, attempted_, how.after_loss ? PassOver::kBackoffAndEndangered : PassOver::kBackoff);
  if (rest.eligible().empty() && how.after_loss) rest = Without(how, attempted_, PassOver::kBackoff);
  if (rest.eligible().empty()) rest = Without(how, attempted_, PassOver::kNone);
  const bool stays = how.untried || (Narrows(how) && !how.last_resort);
  if (!rest.eligible().empty() || attempted_.empty() || stays) return rest;
  // All were attempted: start over, without the one that failed last if it is not alone.
  attempted_.erase(attempted_.begin(), attempted_.end() - 1);
  rest = Without(how, attempted_, PassOver::kNone);
  if (rest.eligible().empty()) rest = Without(how, {}, PassOver::kNone);
  return rest;
}

// Workers whose breakers admit no request are always left out, as are those whose kv_group does not fit, and those that the
// request may not go to.
FleetView WorkerChoice::Without(const How& how, std::span<const WorkerId> attempted, PassOver which) const {
  absl::InlinedVector<uint32_t, 16> positions;
  for (const uint32_t position : fleet_->eligible()) {
    const Worker& worker = fleet_->worker(position);
    const bool left_out = !Passes(worker) || !worker.breaker.Admits() || !FitsGroups(worker, how) ||
                          (which >= PassOver::kBackoff && worker.backoff.active()) ||
                          (which == PassOver::kBackoffAndEndangered &&
                           worker.lost_elsewhere.load(std::memory_order_relaxed) != 0) ||
                          std::ranges::find(refused_, worker.id) != refused_.end() ||
                          std::ranges::find(attempted, worker.id) != attempted.end();
    if (left_out) positions.push_back(position);
  }
  return fleet_->Without(positions);
}

bool WorkerChoice::AnyUntried(bool with_room) const {
  const std::shared_ptr<const FleetView> fleet = Fleet();
  return std::ranges::any_of(fleet->eligible(), [this, with_room, &fleet](uint32_t position) {
    const Worker& worker = fleet->worker(position);
    if (!Passes(worker) || (with_room && (IsFull(worker) || !MayHavePath(worker)))) return false;
    return worker.breaker.Admits() && std::ranges::find(attempted_, worker.id) == attempted_.end();
  });
}

}  // namespace vllm_router
