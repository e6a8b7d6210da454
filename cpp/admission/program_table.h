// ProgramTable: which programs may keep their prompts in workers' caches, and which wait. A program is one run of an agent: many
// requests, its turns, with pauses between them while tools run. When the programs of a fleet need more KV cache than there
// is, each turn evicts the prompt of another, and most of what workers compute has been computed before. So some programs
// wait, and the others keep their caches.
//
//            Begin(): room ┌─────────────── active at one worker ───────────────┐
//   paused ───────────────▶│ reasoning ──End()──▶ acting ──Begin()──▶ reasoning │
//     ▲ │ no room          └───────────────────────┬────────────────────────────┘
//     │ └──▶ waiting ──room, or Force()──▶ active  │
//     └─────────────── the worker is full, or others wait and its TTL is over
//
// A worker has room for a program while the tokens of its active programs, what else is under way there, and the program's
// own are at most `fill` of its cache. A worker without programs has room for any, and one whose cache is not known for all.
// A turn that needs more than any worker could give, however empty, does not wait: it passes, and no program's tokens count it.
// Nobody else passes those that wait longer: of a pool (the requests for a model) the highest class, of these the tenant with
// the fewest active tokens by weight, of its programs the one that began first is next, and while it has no room none is.
//
// Tokens of a program are those of its last turn, prompt and response, without what was cached at its first turn, which
// other programs share; while a turn is under way at least what that needs. All count at the program's worker; of turns at
// once the first goes there, the others where there is room. In the mode `observe` the table does the same, counts each turn
// that would have waited, and lets it go.
//
// Cost: O(log n) for a turn, and O(workers given). At most `max_programs`: then the one that has been paused longest is
// forgotten, else the one that has been acting longest; if all have requests, a newcomer is none. About 400 bytes each.
// The clock is passed in. One thread; program_queue.h is for several.
#pragma once

#include <array>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <absl/container/flat_hash_map.h>
#include <absl/container/inlined_vector.h>

#include "admission/priority_class.h"
#include "admission/program_settings.h"
#include "hashing/hash.h"
#include "worker/worker.h"

namespace vllm_router {

class ProgramTable {
 private:
  struct Program;

 public:
  // A worker that may be chosen.
  struct Worker {
    WorkerId id{};
    uint64_t capacity = 0;    // tokens of its KV cache; 0: not known
    uint64_t context = 0;     // tokens of the prompts that are under way there, programs' and others'
    double prefill_rate = 0;  // tokens per second; 0: not known. Follow() reads it
  };
  using Workers = std::span<const Worker>;

  struct Who {
    Hash128 name{};       // of the program: its tenant, its names and its pool
    uint64_t pool = 0;    // of the requests for a model
    uint64_t tenant = 0;  // a hash of its name
    double weight = 1;    // of the tenant
    PriorityClass of_class = PriorityClass::kDefault;
  };

  // One request of a program, from Begin() to End(), or to Leave(). Belongs to the caller.
  struct Turn {
    Who who;
    uint64_t prompt = 0;  // tokens, as estimated
    uint64_t output = 0;  // likewise

    bool is_waiting() const { return waits; }
    bool is_counted() const { return program != nullptr && !waits; }

    // Of the table.
    Program* program = nullptr;
    bool waits = false;
    bool is_placed = false;  // its program was active without another turn, so that its prompt is at `worker`
    WorkerId worker{};       // where its program's tokens count
    uint64_t claim = 0;      // what it adds to its program's tokens
  };
  // How it went on.
  enum class Began : uint8_t {
    kActive,   // its program is active
    kResumed,  // it is active from now on
    kPassed,   // it is no program's: the table is full, there is no worker, or none could have so much
    kWaits,
  };
  // As its worker has told.
  struct Use {
    uint64_t prompt = 0;
    uint64_t cached = 0;
    uint64_t output = 0;
  };
  using Resumed = absl::InlinedVector<Turn*, 4>;

  // Why programs are paused.
  enum PausedBy : uint8_t { kFull, kTtl, kWorkerGone };
  static constexpr size_t kPausedBy = 3;
  static constexpr std::array<std::string_view, kPausedBy> kPausedByNames = {"full", "ttl", "worker_gone"};
  // How turns went on.
  enum Went : uint8_t { kWentActive, kWentResumed, kWentWaited, kWentForced, kWentPassed, kWouldWait };
  static constexpr size_t kWent = 6;
  static constexpr std::array<std::string_view, kWent> kWentNames = {"active", "resumed", "waited",
                                                                     "forced", "passed",  "would_wait"};

  // > 0.
  explicit ProgramTable(size_t max_programs) : max_programs_(max_programs) {}
  ProgramTable(const ProgramTable&) = delete;
  ProgramTable& operator=(const ProgramTable&) = delete;

  // From the next call on. With the mode off none begins, and PassAll() has to follow.
  void Follow(const ProgramSettings& settings) { settings_ = settings; }
  const ProgramSettings& settings() const { return settings_; }

  // `workers`: those that may have the turn. Other turns that wait no more are added to `resumed`, as by the calls that follow.
  Began Begin(Turn* turn, Workers workers, int64_t now_ns, Resumed* resumed);
  // It is under way at this worker, and so is its program, unless that has another turn.
  void Bind(Turn* turn, WorkerId worker);
  // `use`: nullopt: nothing was computed, or nothing is known of it. `final`: its program ends, with the last of the turns
  // under way. No effect on one that is not counted.
  void End(
      Turn* turn, const std::optional<Use>& use, bool final, Workers workers, int64_t now_ns,
      Resumed* resumed);
  // It waits no more. False: it did not wait.
  bool Leave(Turn* turn, int64_t now_ns);
  // Its program goes on, whatever has room, with all of its turns. False: it did not wait.
  bool Force(Turn* turn, Workers workers, int64_t now_ns, Resumed* resumed);
  // Resumes what has room; TTLs end only if the next has none. `workers`: those of the pool; none: all that wait there pass.
  void Pump(uint64_t pool, Workers workers, int64_t now_ns, Resumed* resumed);
  // All that wait pass.
  void PassAll(int64_t now_ns, Resumed* resumed);
  // The fleet as it is now: programs of workers that have gone are paused, and those without a turn for long are forgotten.
  void FollowFleet(Workers all, int64_t now_ns);
  // The worker has room for the turn's program, which is active or would be.
  bool HasRoom(const Turn& turn, const Worker& worker) const;

  size_t size() const { return programs_.size(); }
  bool any_waiting() const { return waiting_ != 0; }

  struct WorkerRow {
    WorkerId id{};
    uint64_t tokens = 0;  // of its active programs
    uint64_t active = 0;
    uint64_t acting = 0;
  };
  struct Report {
    uint64_t reasoning = 0, acting = 0, waiting = 0, paused = 0;  // programs
    std::array<uint64_t, kPausedBy> paused_by{};
    std::array<uint64_t, kWent> went{};
    uint64_t forgotten = 0;
    std::vector<WorkerRow> workers;  // by id
  };
  Report Read() const;

 private:
  using ByStart = std::set<std::pair<uint64_t, Program*>>;
  using ByTime = std::set<std::tuple<int64_t, uint64_t, Program*>>;

  // Programs of a tenant in a class of a pool.
  struct Group {
    uint64_t pool = 0;
    uint64_t tenant = 0;
    PriorityClass of_class{};
    double weight = 1;
    uint64_t programs = 0;
    uint64_t tokens = 0;  // of the active ones
    ByStart waiting;
    double share() const { return static_cast<double>(tokens) / weight; }
  };
  using GroupName = std::tuple<uint64_t, PriorityClass, uint64_t>;
  // Tenants that wait in a class of a pool, by share.
  using Order = std::set<std::pair<double, uint64_t>>;
  using OrderName = std::pair<uint64_t, PriorityClass>;

  struct Program {
    Who who;
    uint64_t start = 0;     // its number in the order of first turns
    int64_t used_ns = 0;    // its last turn's end, and since when it has been paused
    uint64_t tokens = 0;    // of its last turn
    uint64_t claims = 0;    // of turns under way, beside these
    uint64_t shared = 0;    // cached at its first turn
    bool has_run = false;   // a turn has ended, and its use was known
    bool is_final = false;  // it ends with its last turn under way
    bool overlaps = false;  // of the turns under way, some were at once
    bool is_active = false;
    uint32_t open = 0;  // turns under way
    WorkerId worker{};  // while it is active, and where it was last
    bool has_worker = false;
    Group* group = nullptr;
    absl::InlinedVector<Turn*, 1> waiting;
    std::list<Program*>::iterator place{};  // of a paused one, in the order in which they were paused

    uint64_t held() const { return tokens + claims; }
    bool is_acting() const { return is_active && open == 0; }
    bool is_paused() const { return !is_active && waiting.empty(); }
  };
  struct AtWorker {
    uint64_t tokens = 0;   // of active programs
    uint64_t prompts = 0;  // of their turns under way, which the worker's context includes
    uint64_t active = 0;
    ByStart acting;
    ByTime acting_since;
  };

  Program* FindOrAdd(const Who& who, int64_t now_ns);
  void FollowClass(Program* program, const Who& who);
  void JoinGroup(Program* program);
  void LeaveGroup(Program* program);
  bool MakeRoomInTable();
  void Forget(Program* program);
  uint64_t NeedOf(const Program& program, const Turn& turn) const;
  uint64_t NeedOf(const Program& program) const;
  uint64_t LimitOf(const Worker& worker) const;
  uint64_t OthersAt(const Worker& worker) const;
  bool Fits(const Program& program, uint64_t need, const Worker& worker) const;
  bool FitsNowhere(const Program& program, Workers workers) const;
  const Worker* BestFor(const Program& program, Workers workers, bool forced) const;
  bool IsTenantFull(const Program& program) const;
  void Resume(Program* program, WorkerId worker, Went went, Resumed* resumed);
  void StartTurn(Program* program, Turn* turn);
  void Pause(Program* program, int64_t now_ns);
  void PauseCounted(Program* program, PausedBy why, int64_t now_ns);
  void Wait(Program* program, Turn* turn);
  void TakeFromWaiting(Program* program);
  void SetPaused(Program* program, int64_t now_ns);
  void Pass(Program* program, int64_t now_ns, Resumed* resumed);
  void Hold(Program* program, int64_t change);
  void ChangeGroupTokens(Group* group, int64_t change);
  void SetActing(Program* program);
  void EndActing(Program* program);
  void Relieve(const Worker& worker, int64_t now_ns);
  void EndTtl(Workers workers, int64_t now_ns);
  bool WaitsIn(uint64_t pool) const;
  Program* NextOf(uint64_t pool);
  void Tidy(WorkerId worker);

  const size_t max_programs_;
  ProgramSettings settings_;
  uint64_t started_ = 0;
  uint64_t waiting_ = 0;  // programs
  absl::flat_hash_map<Hash128, std::unique_ptr<Program>, HashOf128> programs_;
  std::list<Program*> paused_;  // the one that was paused first in front
  std::map<WorkerId, AtWorker> workers_;
  std::map<WorkerId, int64_t> ttls_ns_;  // of the fleet, as it was last
  std::map<GroupName, Group> groups_;
  std::map<OrderName, Order> orders_;
  absl::flat_hash_map<uint64_t, uint32_t> active_of_tenant_;
  std::array<uint64_t, kPausedBy> paused_by_{};
  std::array<uint64_t, kWent> went_{};
  uint64_t forgotten_ = 0;
};

}  // namespace vllm_router
