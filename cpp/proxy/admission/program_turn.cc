#include "proxy/admission/program_turn.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <string>
#include <utility>

#include "base/time_units.h"
#include "proxy/exchange/downstream.h"
#include "proxy/exchange/request.h"
#include "proxy/thread/breaker_transitions.h"
#include "proxy/thread/io_thread.h"
#include "worker/fleet_view.h"

namespace vllm_router {
namespace {

constexpr int64_t kLookNs = 200 * kNanosPerMs;
constexpr int64_t kRetryAfterNs = 30 * kNanosPerSecond;

}  // namespace

ProgramTurn::ProgramTurn(Request& request, ThreadPrograms& thread, const Claim& claim)
    : request_(request), thread_(thread) {
  place_.owner = this;
  place_.tell = &ProgramTurn::OnTold;
  place_.who = claim.who;
  place_.prompt = claim.prompt;
  place_.output = claim.output;
}

// Those that may be chosen now.
ProgramWorkers ProgramTurn::Workers() const {
  return ProgramWorkersOf(*request_.workers.Now(request_.thread), settings());
}

bool ProgramTurn::TryPass() {
  has_ended_ = false;
  const ProgramQueue::Began began = queue().Begin(&place_, Workers(), request_.thread.clock.NowNanos());
  return began != ProgramQueue::Began::kWaits;
}

// ---- the wait

Task<Verdict> ProgramTurn::Run() {
  if (request_.thread.draining) {
    if (!queue().Leave(&place_, request_.thread.clock.NowNanos())) co_await told_;
    std::string message;
    co_await request_.client.ReplyError(HttpError::kShuttingDown, std::move(message));
    co_return Verdict::kEnd;
  }
  const WaitEnd end = co_await Wait();
  if (end != WaitEnd::kTimeout || request_.is_cancelled()) co_return Verdict::kNext;
  constexpr uint64_t kSteps = 1 << 10;
  const auto more = static_cast<int64_t>(request_.thread.ids.Below(kSteps)) * kRetryAfterNs / 4 / kSteps;
  co_await request_.client.Reject(HttpError::kProgramTimeout, kRetryAfterNs + more);
  co_return Verdict::kEnd;
}

// A client that leaves gives up its place. If its body has not been read, only the end of its connection can be watched
// for.
Task<ProgramTurn::WaitEnd> ProgramTurn::Wait() {
  IoThread& thread = request_.thread;
  OnCancel leave(request_.scope, [this] { Leave(WaitEnd::kLeft); });
  if (request_.stream_body) request_.client.watch().BeginEnd();
  began_ns_ = thread.clock.NowNanos();
  is_waiting_ = true;
  request_.scope.set_long();  // a stopping server does not wait for queues
  ArmLook(began_ns_);
  if (request_.is_cancelled()) Leave(WaitEnd::kLeft);
  co_await told_;
  is_waiting_ = false;
  timer_.Disarm();
  request_.scope.set_long(false);
  const int64_t waited_ns = thread.clock.NowNanos() - began_ns_;
  thread_.waits.Add(waited_ns);
  request_.info.queue_ns += waited_ns;
  if (request_.info.session != nullptr) request_.info.session->program_wait_ns = waited_ns;
  request_.client.watch().StopEnd();
  co_return wait_end_;
}

void ProgramTurn::Leave(WaitEnd why) {
  if (!is_waiting_ || !queue().Leave(&place_, request_.thread.clock.NowNanos())) return;
  wait_end_ = why;
  OnTold(&place_);
}

// Posted, not called: the resumed coroutine may end the exchange, and the caller is in the middle of its work.
// On any thread. The wait is not over before the loop has run this.
void ProgramTurn::OnTold(ProgramQueue::Turn* turn) {
  ProgramTurn* const self = static_cast<Place*>(turn)->owner;
  self->request_.thread.loop.Post([self] { self->told_.Notify(); });
}

int64_t ProgramTurn::DeadlineNs() const {
  const ProgramSettings& now = settings();
  return began_ns_ + (Rejects(now) ? now.reject_after_ms : now.max_wait_ms) * kNanosPerMs;
}

void ProgramTurn::ArmLook(int64_t now_ns) {
  const int64_t wait_ns = std::min(kLookNs, DeadlineNs() - now_ns);
  timer_.Arm(
      request_.thread.loop.timers(), std::max<int64_t>(1, wait_ns / kNanosPerMs), &ProgramTurn::OnLook, this);
}

// While no circuit breaker admits, those that wait stay, since all would pass at once; without workers in rotation they pass.
void ProgramTurn::AskForRoom(int64_t now_ns) {
  std::shared_ptr<const FleetView> fleet = request_.workers.Now(request_.thread);
  if (!fleet->all_admitting()) {
    AdmitHalfOpen(request_.thread, *fleet);
    fleet = request_.workers.Now(request_.thread);
  }
  const ProgramWorkers workers = ProgramWorkersOf(*fleet, settings());
  if (workers.empty() && fleet->in_rotation() != 0) return;
  queue().Pump(place_.who.pool, workers, now_ns);
}

void ProgramTurn::OnLook(void* turn) {
  auto* const self = static_cast<ProgramTurn*>(turn);
  if (!self->is_waiting_) return;
  const int64_t now_ns = self->request_.thread.clock.NowNanos();
  if (now_ns < self->DeadlineNs()) {
    self->AskForRoom(now_ns);
    self->ArmLook(now_ns);
  } else if (Rejects(self->settings())) {
    self->Leave(WaitEnd::kTimeout);
  } else {
    self->queue().Force(&self->place_, self->Workers(), now_ns);
  }
}

// ---- the first attempt

void ProgramTurn::TakeGate() {
  if (settings().mode != ProgramMode::kOn || has_ended_) return;
  inner_ = std::exchange(request_.workers.gate, this);
  has_gate_ = true;
}

// Where no worker is open to both, the program counts: its prompt is there.
WorkerGate::Positions ProgramTurn::Closed(const FleetView& fleet) const {
  Positions own;
  const ProgramWorkers workers = ProgramWorkersOf(fleet, settings());
  for (size_t i = 0; i < workers.size(); ++i) {
    const bool is_open =
        place_.is_placed ? workers[i].id == place_.worker : queue().HasRoom(place_, workers[i]);
    if (!is_open) own.push_back(fleet.eligible()[i]);
  }
  if (inner_ == nullptr) return own;
  const Positions of_class = inner_->Closed(fleet);
  Positions both;
  std::ranges::set_union(own, of_class, std::back_inserter(both));
  return both.size() < workers.size() ? both : own;
}

// Without classes it is the gate of this attempt alone: where all workers are full, the queue of permits is where it waits.
void ProgramTurn::Chosen(const Ticket* ticket) {
  if (inner_ == nullptr) return DropGate();
  inner_->Chosen(ticket);
}

void ProgramTurn::DropGate() {
  if (std::exchange(has_gate_, false) && request_.workers.gate == this) request_.workers.gate = nullptr;
}

Task<Verdict> ProgramTurn::WaitAgain() {
  const Verdict verdict = co_await inner_->WaitAgain();
  co_return verdict;
}

// ---- the end

void ProgramTurn::Responded() {
  if (has_ended_ || request_.info.worker == nullptr) return;
  queue().Bind(&place_, request_.info.worker->id);
}

void ProgramTurn::End(const std::optional<ProgramTable::Use>& use, bool final) {
  DropGate();
  if (std::exchange(has_ended_, true)) return;
  queue().End(&place_, use, final, Workers(), request_.thread.clock.NowNanos());
}

}  // namespace vllm_router
