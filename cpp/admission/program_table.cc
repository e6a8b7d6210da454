#include "admission/program_table.h"

#include <algorithm>
#include <utility>

#include "base/time_units.h"

namespace vllm_router {
namespace {

uint64_t Less(uint64_t from, uint64_t what) { return from > what ? from - what : 0; }

const ProgramTable::Worker* FindIn(ProgramTable::Workers workers, WorkerId id) {
  const auto found = std::ranges::find(workers, id, &ProgramTable::Worker::id);
  return found != workers.end() ? &*found : nullptr;
}

}  // namespace

// ---- programs and groups

ProgramTable::Program* ProgramTable::FindOrAdd(const Who& who, int64_t now_ns) {
  if (const auto found = programs_.find(who.name); found != programs_.end()) {
    FollowClass(found->second.get(), who);
    return found->second.get();
  }
  if (programs_.size() >= max_programs_ && !MakeRoomInTable()) return nullptr;
  auto made = std::make_unique<Program>();
  Program* const program = made.get();
  program->who = who;
  program->start = ++started_;
  programs_.emplace(who.name, std::move(made));
  JoinGroup(program);
  SetPaused(program, now_ns);
  return program;
}

// Of those that wait the class stays.
void ProgramTable::FollowClass(Program* program, const Who& who) {
  if (!program->waiting.empty() || program->who.of_class == who.of_class) {
    if (program->group->waiting.empty()) program->group->weight = who.weight;
    return;
  }
  LeaveGroup(program);
  program->who.of_class = who.of_class;
  program->who.weight = who.weight;
  JoinGroup(program);
}

void ProgramTable::JoinGroup(Program* program) {
  const Who& who = program->who;
  Group& group = groups_[{who.pool, who.of_class, who.tenant}];
  if (group.programs++ == 0) {
    group.pool = who.pool;
    group.of_class = who.of_class;
    group.tenant = who.tenant;
  }
  if (group.waiting.empty()) group.weight = who.weight;
  program->group = &group;
  if (program->is_active) ChangeGroupTokens(&group, static_cast<int64_t>(program->held()));
}

void ProgramTable::LeaveGroup(Program* program) {
  Group* const group = std::exchange(program->group, nullptr);
  if (program->is_active) ChangeGroupTokens(group, -static_cast<int64_t>(program->held()));
  if (--group->programs == 0) groups_.erase({group->pool, group->of_class, group->tenant});
}

void ProgramTable::ChangeGroupTokens(Group* group, int64_t change) {
  Order* order = nullptr;
  if (!group->waiting.empty()) {
    order = &orders_[{group->pool, group->of_class}];
    order->erase({group->share(), group->tenant});
  }
  group->tokens += static_cast<uint64_t>(change);
  if (order != nullptr) order->insert({group->share(), group->tenant});
}

bool ProgramTable::MakeRoomInTable() {
  if (!paused_.empty()) {
    ++forgotten_;
    Forget(paused_.front());
    return true;
  }
  const AtWorker* oldest = nullptr;
  for (const auto& [id, at] : workers_) {
    if (at.acting_since.empty()) continue;
    if (oldest == nullptr || *at.acting_since.begin() < *oldest->acting_since.begin()) oldest = &at;
  }
  if (oldest == nullptr) return false;
  ++forgotten_;
  Forget(std::get<2>(*oldest->acting_since.begin()));
  return true;
}

// REQUIRES: it has no turn.
void ProgramTable::Forget(Program* program) {
  if (program->is_active) Pause(program, 0);
  paused_.erase(program->place);
  LeaveGroup(program);
  programs_.erase(Hash128(program->who.name));
}

void ProgramTable::SetPaused(Program* program, int64_t now_ns) {
  program->used_ns = now_ns;
  program->place = paused_.insert(paused_.end(), program);
}

// ---- room

uint64_t ProgramTable::NeedOf(const Program& program, const Turn& turn) const {
  return std::max(program.tokens, Less(turn.prompt, program.shared) + turn.output);
}

// With all turns that wait.
uint64_t ProgramTable::NeedOf(const Program& program) const {
  uint64_t need = program.tokens;
  for (const Turn* const turn : program.waiting) need += NeedOf(program, *turn) - program.tokens;
  return need;
}

uint64_t ProgramTable::LimitOf(const Worker& worker) const {
  return static_cast<uint64_t>(settings_.fill * static_cast<double>(worker.capacity));
}

uint64_t ProgramTable::OthersAt(const Worker& worker) const {
  const auto found = workers_.find(worker.id);
  return Less(worker.context, found != workers_.end() ? found->second.prompts : 0);
}

bool ProgramTable::Fits(const Program& program, uint64_t need, const Worker& worker) const {
  uint64_t tokens = 0;
  uint64_t active = 0;
  if (const auto found = workers_.find(worker.id); found != workers_.end()) {
    const bool is_there = program.is_active && program.worker == worker.id;
    tokens = found->second.tokens - (is_there ? program.held() : 0);
    active = found->second.active - (is_there ? 1 : 0);
  }
  if (active == 0) return true;
  if (settings_.max_active_per_worker != 0 && active >= settings_.max_active_per_worker) return false;
  return worker.capacity == 0 || tokens + OthersAt(worker) + need <= LimitOf(worker);
}

// However empty these are.
bool ProgramTable::FitsNowhere(const Program& program, Workers workers) const {
  const uint64_t need = NeedOf(program);
  return std::ranges::all_of(
      workers, [&](const Worker& worker) { return worker.capacity != 0 && need > LimitOf(worker); });
}

bool ProgramTable::HasRoom(const Turn& turn, const Worker& worker) const {
  if (!turn.is_counted()) return true;
  return Fits(*turn.program, turn.program->held(), worker);
}

// Where it was last, if there is room: some of its prompt may be there. Else where the most is left.
const ProgramTable::Worker* ProgramTable::BestFor(
    const Program& program, Workers workers, bool forced) const {
  constexpr int64_t kUnknown = int64_t{1} << 50;
  const uint64_t need = NeedOf(program);
  if (program.has_worker) {
    const Worker* const last = FindIn(workers, program.worker);
    if (last != nullptr && Fits(program, need, *last)) return last;
  }
  const Worker* best = nullptr;
  std::pair<bool, int64_t> most;
  for (const Worker& worker : workers) {
    const bool fits = Fits(program, need, worker);
    if (!fits && !forced) continue;
    const auto found = workers_.find(worker.id);
    const uint64_t used = (found != workers_.end() ? found->second.tokens : 0) + OthersAt(worker);
    const int64_t limit = worker.capacity != 0 ? static_cast<int64_t>(LimitOf(worker)) : kUnknown;
    const std::pair<bool, int64_t> left{fits, limit - static_cast<int64_t>(used)};
    if (best != nullptr && left <= most) continue;
    best = &worker;
    most = left;
  }
  return best;
}

bool ProgramTable::IsTenantFull(const Program& program) const {
  if (settings_.max_active_per_tenant == 0) return false;
  const auto found = active_of_tenant_.find(program.who.tenant);
  return found != active_of_tenant_.end() && found->second >= settings_.max_active_per_tenant;
}

// ---- active programs

void ProgramTable::Hold(Program* program, int64_t change) {
  workers_[program->worker].tokens += static_cast<uint64_t>(change);
  ChangeGroupTokens(program->group, change);
}

// With all turns that wait. REQUIRES: it waits.
void ProgramTable::Resume(Program* program, WorkerId worker, Went went, Resumed* resumed) {
  TakeFromWaiting(program);
  program->is_active = true;
  program->worker = worker;
  program->has_worker = true;
  ++workers_[worker].active;
  ++active_of_tenant_[program->who.tenant];
  Hold(program, static_cast<int64_t>(program->tokens));
  const auto waiting = std::move(program->waiting);
  program->waiting.clear();
  for (Turn* const turn : waiting) {
    turn->waits = false;
    StartTurn(program, turn);
    ++went_[went];
    resumed->push_back(turn);
  }
}

void ProgramTable::StartTurn(Program* program, Turn* turn) {
  if (program->open == 0) EndActing(program);
  turn->program = program;
  turn->worker = program->worker;
  turn->claim = NeedOf(*program, *turn) - program->tokens;
  program->overlaps = program->overlaps || program->open > 0;
  ++program->open;
  program->claims += turn->claim;
  workers_[program->worker].prompts += turn->prompt;
  Hold(program, static_cast<int64_t>(turn->claim));
}

void ProgramTable::SetActing(Program* program) {
  AtWorker& at = workers_[program->worker];
  at.acting.insert({program->start, program});
  at.acting_since.insert({program->used_ns, program->start, program});
}

void ProgramTable::EndActing(Program* program) {
  AtWorker& at = workers_[program->worker];
  at.acting.erase({program->start, program});
  at.acting_since.erase({program->used_ns, program->start, program});
}

// REQUIRES: it is acting.
void ProgramTable::Pause(Program* program, int64_t now_ns) {
  EndActing(program);
  Hold(program, -static_cast<int64_t>(program->held()));
  --workers_[program->worker].active;
  Tidy(program->worker);
  const auto active = active_of_tenant_.find(program->who.tenant);
  if (--active->second == 0) active_of_tenant_.erase(active);
  program->is_active = false;
  SetPaused(program, now_ns);
}

void ProgramTable::PauseCounted(Program* program, PausedBy why, int64_t now_ns) {
  ++paused_by_[why];
  Pause(program, now_ns);
}

void ProgramTable::Tidy(WorkerId worker) {
  const auto found = workers_.find(worker);
  if (found != workers_.end() && found->second.active == 0 && found->second.prompts == 0)
    workers_.erase(found);
}

// The one that began last goes first.
void ProgramTable::Relieve(const Worker& worker, int64_t now_ns) {
  if (worker.capacity == 0) return;
  for (;;) {
    const auto found = workers_.find(worker.id);
    if (found == workers_.end() || found->second.tokens <= LimitOf(worker) || found->second.acting.empty())
      return;
    PauseCounted(found->second.acting.rbegin()->second, kFull, now_ns);
  }
}

void ProgramTable::EndTtl(Workers workers, int64_t now_ns) {
  for (const Worker& worker : workers) {
    const auto ttl = ttls_ns_.find(worker.id);
    const int64_t ttl_ns = ttl != ttls_ns_.end() ? ttl->second : settings_.TtlNs(0, 0);
    for (;;) {
      const auto found = workers_.find(worker.id);
      if (found == workers_.end() || found->second.acting_since.empty()) break;
      const auto& [since_ns, start, program] = *found->second.acting_since.begin();
      if (now_ns - since_ns <= ttl_ns) break;
      PauseCounted(program, kTtl, now_ns);
    }
  }
}

// ---- those that wait

void ProgramTable::Wait(Program* program, Turn* turn) {
  if (program->waiting.empty()) {
    paused_.erase(program->place);
    ++waiting_;
    Group* const group = program->group;
    if (group->waiting.empty())
      orders_[{group->pool, group->of_class}].insert({group->share(), group->tenant});
    group->waiting.insert({program->start, program});
  }
  turn->program = program;
  turn->waits = true;
  program->waiting.push_back(turn);
}

void ProgramTable::TakeFromWaiting(Program* program) {
  --waiting_;
  Group* const group = program->group;
  group->waiting.erase({program->start, program});
  if (!group->waiting.empty()) return;
  const auto order = orders_.find({group->pool, group->of_class});
  order->second.erase({group->share(), group->tenant});
  if (order->second.empty()) orders_.erase(order);
}

bool ProgramTable::WaitsIn(uint64_t pool) const {
  const auto first = orders_.lower_bound({pool, PriorityClass{}});
  return first != orders_.end() && first->first.first == pool;
}

ProgramTable::Program* ProgramTable::NextOf(uint64_t pool) {
  for (int i = 0; i < kPriorityClasses; ++i) {
    const auto of_class = static_cast<PriorityClass>(i);
    const auto order = orders_.find({pool, of_class});
    if (order == orders_.end()) continue;
    for (const auto& [share, tenant] : order->second) {
      Program* const first = groups_.at({pool, of_class, tenant}).waiting.begin()->second;
      if (!IsTenantFull(*first)) return first;
    }
  }
  return nullptr;
}

// Its turns are no program's.
void ProgramTable::Pass(Program* program, int64_t now_ns, Resumed* resumed) {
  TakeFromWaiting(program);
  const auto waiting = std::move(program->waiting);
  program->waiting.clear();
  for (Turn* const turn : waiting) {
    turn->waits = false;
    turn->program = nullptr;
    ++went_[kWentPassed];
    resumed->push_back(turn);
  }
  SetPaused(program, now_ns);
  if (!program->has_run) Forget(program);
}

void ProgramTable::Pump(uint64_t pool, Workers workers, int64_t now_ns, Resumed* resumed) {
  if (waiting_ == 0) return;
  if (workers.empty()) {
    for (int i = 0; i < kPriorityClasses; ++i) {
      const OrderName name{pool, static_cast<PriorityClass>(i)};
      for (auto order = orders_.find(name); order != orders_.end(); order = orders_.find(name)) {
        const uint64_t tenant = order->second.begin()->second;
        Pass(groups_.at({pool, name.second, tenant}).waiting.begin()->second, now_ns, resumed);
      }
    }
    return;
  }
  bool has_ended_ttl = false;
  while (WaitsIn(pool)) {
    Program* const program = NextOf(pool);
    const Worker* const worker = program != nullptr ? BestFor(*program, workers, /*forced=*/false) : nullptr;
    if (worker != nullptr) {
      Resume(program, worker->id, kWentWaited, resumed);
    } else if (program != nullptr && FitsNowhere(*program, workers)) {
      Pass(program, now_ns, resumed);
    } else {
      if (std::exchange(has_ended_ttl, true)) return;
      EndTtl(workers, now_ns);
    }
  }
}

void ProgramTable::PassAll(int64_t now_ns, Resumed* resumed) {
  while (!orders_.empty()) {
    const auto& [name, order] = *orders_.begin();
    const auto& [pool, of_class] = name;
    Pass(groups_.at({pool, of_class, order.begin()->second}).waiting.begin()->second, now_ns, resumed);
  }
}

// ---- turns

ProgramTable::Began ProgramTable::Begin(Turn* turn, Workers workers, int64_t now_ns, Resumed* resumed) {
  Program* const program = settings_.is_on() && !workers.empty() ? FindOrAdd(turn->who, now_ns) : nullptr;
  if (program == nullptr) {
    ++went_[kWentPassed];
    return Began::kPassed;
  }
  if (program->is_active) {
    const bool is_there = FindIn(workers, program->worker) != nullptr;
    if (is_there || program->open > 0) {
      turn->is_placed = is_there && program->open == 0;
      StartTurn(program, turn);
      ++went_[kWentActive];
      return Began::kActive;
    }
    PauseCounted(program, kWorkerGone, now_ns);
  }
  Wait(program, turn);
  Resumed now;
  Pump(turn->who.pool, workers, now_ns, &now);
  if (turn->waits && FitsNowhere(*program, workers)) {
    Pass(program, now_ns, &now);
  } else if (turn->waits && settings_.mode == ProgramMode::kObserve) {
    Resume(program, BestFor(*program, workers, /*forced=*/true)->id, kWouldWait, &now);
  } else if (turn->is_counted()) {
    --went_[kWentWaited];
    ++went_[kWentResumed];
  }
  for (Turn* const other : now) {
    if (other != turn) resumed->push_back(other);
  }
  if (turn->waits) return Began::kWaits;
  return turn->is_counted() ? Began::kResumed : Began::kPassed;
}

void ProgramTable::Bind(Turn* turn, WorkerId worker) {
  if (!turn->is_counted()) return;
  Program* const program = turn->program;
  if (turn->worker != worker) {
    const WorkerId before = std::exchange(turn->worker, worker);
    workers_[before].prompts -= turn->prompt;
    workers_[worker].prompts += turn->prompt;
    Tidy(before);
  }
  if (program->worker == worker || program->open > 1) return;
  const WorkerId before = std::exchange(program->worker, worker);
  AtWorker& from = workers_[before];
  from.tokens -= program->held();
  --from.active;
  Tidy(before);
  AtWorker& to = workers_[worker];
  to.tokens += program->held();
  ++to.active;
}

void ProgramTable::End(
    Turn* turn, const std::optional<Use>& use, bool final, Workers workers, int64_t now_ns,
    Resumed* resumed) {
  if (!turn->is_counted()) return;
  Program* const program = std::exchange(turn->program, nullptr);
  workers_[turn->worker].prompts -= turn->prompt;
  const uint64_t before = program->held();
  program->claims -= turn->claim;
  --program->open;
  program->is_final = program->is_final || final;
  if (use) {
    if (!std::exchange(program->has_run, true)) program->shared = std::min(use->cached, use->prompt);
    const uint64_t tokens = Less(use->prompt, program->shared) + use->output;
    program->tokens = program->overlaps ? std::max(program->tokens, tokens) : tokens;
  }
  Hold(program, static_cast<int64_t>(program->held()) - static_cast<int64_t>(before));
  if (turn->worker != program->worker) Tidy(turn->worker);
  const WorkerId worker = program->worker;
  if (program->open == 0) {
    program->overlaps = false;
    program->used_ns = now_ns;
    SetActing(program);
    if (program->is_final || !program->has_run) Forget(program);
  }
  if (const Worker* const there = FindIn(workers, worker)) Relieve(*there, now_ns);
  if (!workers.empty()) Pump(turn->who.pool, workers, now_ns, resumed);
}

bool ProgramTable::Leave(Turn* turn, int64_t now_ns) {
  if (!turn->waits) return false;
  Program* const program = std::exchange(turn->program, nullptr);
  turn->waits = false;
  const auto place = std::ranges::find(program->waiting, turn);
  if (program->waiting.size() > 1) {
    program->waiting.erase(place);
    return true;
  }
  TakeFromWaiting(program);
  program->waiting.clear();
  SetPaused(program, now_ns);
  if (!program->has_run) Forget(program);
  return true;
}

bool ProgramTable::Force(Turn* turn, Workers workers, int64_t now_ns, Resumed* resumed) {
  if (!turn->waits) return false;
  const Worker* const worker = BestFor(*turn->program, workers, /*forced=*/true);
  if (worker == nullptr) {
    Pass(turn->program, now_ns, resumed);
  } else {
    Resume(turn->program, worker->id, kWentForced, resumed);
  }
  return true;
}

// ---- the fleet

void ProgramTable::FollowFleet(Workers all, int64_t now_ns) {
  ttls_ns_.clear();
  for (const Worker& worker : all)
    ttls_ns_.emplace(worker.id, settings_.TtlNs(worker.capacity, worker.prefill_rate));
  std::vector<Program*> gone;
  for (const auto& [id, at] : workers_) {
    if (ttls_ns_.contains(id)) continue;
    for (const auto& [start, program] : at.acting) gone.push_back(program);
  }
  for (Program* const program : gone) PauseCounted(program, kWorkerGone, now_ns);
  const int64_t forget_ns = settings_.forget_ms * kNanosPerMs;
  while (!paused_.empty() && now_ns - paused_.front()->used_ns >= forget_ns) {
    ++forgotten_;
    Forget(paused_.front());
  }
  std::vector<Program*> hung;
  for (const auto& [id, at] : workers_) {
    for (const auto& [since_ns, start, program] : at.acting_since) {
      if (now_ns - since_ns < forget_ns) break;
      hung.push_back(program);
    }
  }
  for (Program* const program : hung) {
    ++forgotten_;
    Forget(program);
  }
}

ProgramTable::Report ProgramTable::Read() const {
  Report report{.waiting = waiting_, .paused = paused_.size(), .paused_by = paused_by_, .went = went_};
  report.forgotten = forgotten_;
  for (const auto& [id, at] : workers_) {
    report.workers.push_back(
        {.id = id, .tokens = at.tokens, .active = at.active, .acting = at.acting.size()});
    report.acting += at.acting.size();
    report.reasoning += at.active - at.acting.size();
  }
  return report;
}

}  // namespace vllm_router
