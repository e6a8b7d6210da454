#include "admission/program_queue.h"

namespace vllm_router {
namespace {

// Those that were added by one call of the table.
class Told {
 public:
  ~Told() {
    for (ProgramTable::Turn* const resumed : resumed_) {
      auto* const turn = static_cast<ProgramQueue::Turn*>(resumed);
      turn->tell(turn);
    }
  }
  ProgramTable::Resumed* get() { return &resumed_; }

 private:
  ProgramTable::Resumed resumed_;
};

}  // namespace

// The mutex is free again when turns are told.
template <typename Change>
auto ProgramQueue::Do(Change change) {
  Told told;
  const MutexLock lock(mutex_);
  auto result = change(table_, told.get());
  any_waiting_.store(table_.any_waiting(), std::memory_order_release);
  return result;
}

void ProgramQueue::Follow(const ProgramSettings& settings, int64_t now_ns) {
  Do([&](ProgramTable& table, ProgramTable::Resumed* resumed) {
    table.Follow(settings);
    if (settings.mode != ProgramMode::kOn) table.PassAll(now_ns, resumed);
    return true;
  });
}

ProgramQueue::Began ProgramQueue::Begin(Turn* turn, Workers workers, int64_t now_ns) {
  return Do([&](ProgramTable& table, ProgramTable::Resumed* resumed) {
    return table.Begin(turn, workers, now_ns, resumed);
  });
}

void ProgramQueue::Bind(Turn* turn, WorkerId worker) {
  const MutexLock lock(mutex_);
  table_.Bind(turn, worker);
}

void ProgramQueue::End(
    Turn* turn, const std::optional<ProgramTable::Use>& use, bool final, Workers workers, int64_t now_ns) {
  Do([&](ProgramTable& table, ProgramTable::Resumed* resumed) {
    table.End(turn, use, final, workers, now_ns, resumed);
    return true;
  });
}

bool ProgramQueue::Leave(Turn* turn, int64_t now_ns) {
  return Do([&](ProgramTable& table, ProgramTable::Resumed*) { return table.Leave(turn, now_ns); });
}

bool ProgramQueue::Force(Turn* turn, Workers workers, int64_t now_ns) {
  return Do([&](ProgramTable& table, ProgramTable::Resumed* resumed) {
    return table.Force(turn, workers, now_ns, resumed);
  });
}

void ProgramQueue::Pump(uint64_t pool, Workers workers, int64_t now_ns) {
  Told told;
  const MutexLock lock(mutex_);
  if (pumped_ns_.size() > kMostPumped) pumped_ns_.clear();
  const auto [last, is_new] = pumped_ns_.try_emplace(pool, now_ns);
  if (!is_new && now_ns - last->second < kPumpNs) return;
  last->second = now_ns;
  table_.Pump(pool, workers, now_ns, told.get());
  any_waiting_.store(table_.any_waiting(), std::memory_order_release);
}

void ProgramQueue::FollowFleet(Workers all, int64_t now_ns) {
  const MutexLock lock(mutex_);
  table_.FollowFleet(all, now_ns);
}

bool ProgramQueue::HasRoom(const Turn& turn, const Worker& worker) const {
  const MutexLock lock(mutex_);
  return table_.HasRoom(turn, worker);
}

size_t ProgramQueue::size() const {
  const MutexLock lock(mutex_);
  return table_.size();
}

ProgramTable::Report ProgramQueue::Read() const {
  const MutexLock lock(mutex_);
  return table_.Read();
}

}  // namespace vllm_router
