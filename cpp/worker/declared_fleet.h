// DeclaredFleet: all workers that somebody named, who named them, and the state of each. WorkerRegistry
// publishes from it.
//
// The source "api" (calls) adds and removes workers one by one. Every other source declares its whole list,
// and again when it changed: Reconcile() works out what joins, what leaves and what changes, so an event that
// was lost does no harm beyond the next list. "static" (the settings) begins with Add(), unchecked, and
// declares a list once its file was changed; its workers may still be removed one by one.
//
//              declared            passed its check
//   (nobody) ------------> pending -----------------> serving --- not ready ---> serving, resting
//                             ^                          | `---- ready again <------'
//       another incarnation   |                          | leaving, or not declared any more
//       of any state ---------'                          v
//                            left <-- still declared -- serving, draining -- not declared --> (gone)
//
// A worker belongs to the first of the sources that name it, whichever came first: static, api, file,
// kubernetes, dns, registration, then others by name. So routers with equal lists agree. The owner's word
// counts for its weight, `ready`, `leaving` and the rest; when the owner lets it go, the next one's; and
// it leaves when the last one does.
//
// All owners of a worker agree on its stage: a list that says another than those before it is rejected.
//
// Without a server (managed() is false) nobody checks workers or drains them: they serve at once and leave
// at once.
//
// Guard: a list that by absence alone would take away all serving workers of its source, or more than a
// share of them, is more likely an error than a wish: these workers are *held*. Each stays until two lists in
// a row have left it out and hold_ns have passed since the first of them, until Adopt(), or until a health
// check finds it down. One that comes and goes prolongs its own time only. People mean what they write, so of
// a file and of the settings only an empty list is held so. One that replaces all workers is carried out when
// the first of the new ones has passed its check, at the earliest.
//
// Make before break: of the healthy workers that a list leaves out, as many stay as workers of the list wait
// for their first check, so one leaves as one joins:
//
//   a, b, c and d serve; the list is now w, x and y
//     serving   b c d      pending   w x y       three wait, so three stay
//     serving   d w x      pending   y           two have passed their check
//     serving   w x y
//
// Each stays for hold_ns at most, from the first list that left it out; and one that has waited for as long as
// that keeps no other. Only workers that may serve the same requests count for one another: of one stage and
// kv_group, and with a model in common where the models of both are known. A kv_group that the list does not
// name any more stays while any worker waits, since only the whole of another one replaces it. The ranks of a
// host leave together; and at once if the list has others of that host, since it says what the engine is now.
// What is absent from a list of Kubernetes does not exist, so it is not kept in this way.
//
// Pure: the time is passed in, nothing is published or logged. One thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/status.h"
#include "worker/fleet_view.h"
#include "worker/worker_declaration.h"
#include "worker/worker_url.h"

namespace vllm_router {

struct GuardOptions {
  double share = 0.5;                // of a source's serving workers that may be absent from a list at once
  int64_t hold_ns = 60'000'000'000;  // how long a worker must be absent to be believed gone all the same
};

// What a list changed, by the workers' URLs.
struct Difference {
  std::vector<std::string> joined;
  std::vector<std::string> left;
  std::vector<std::string> changed;
  std::vector<std::string> held;  // absent, and kept for now

  bool empty() const { return joined.empty() && left.empty() && changed.empty(); }
};

// How the fleet and one of its sources came to be as they are.
struct SourceReport {
  std::string name;
  bool listed = false;                     // it has declared a list
  uint64_t syncs = 0;                      // lists that were taken
  std::map<std::string, uint64_t> errors;  // failed looks, by kind
  std::string last_error;                  // empty since a list was taken
  std::optional<int64_t> last_list_ns;
  uint64_t joined = 0;
  uint64_t left = 0;
  uint64_t changed = 0;
  uint32_t held = 0;
};

class DeclaredFleet {
 public:
  static constexpr std::string_view kStatic = "static";
  static constexpr std::string_view kApi = "api";

  static constexpr size_t kNoPlace = SIZE_MAX;

  enum class State : uint8_t { kPending, kServing, kLeft };
  static std::string_view StateName(State state);
  // Its list says what exists, and not only what is wanted.
  static bool IsInventory(std::string_view source) { return source == "kubernetes"; }
  // Its list is written by people. What they write is meant, unless they write nothing.
  static bool IsWritten(std::string_view source) { return source == "file" || source == kStatic; }
  struct Row;
  // The same, and of those that serve: held, draining, resting.
  static std::string_view StateName(const Row& row);

  struct Row {
    uint64_t id = 0;                  // another one for every incarnation
    WorkerDeclaration spec;           // the owner's; its URL as it was spelled first
    std::string key;                  // WorkerKey(spec.url)
    std::vector<std::string> owners;  // the first is the owner; none: it drains
    std::string source;               // the owner, or the last one
    State state = State::kPending;
    bool held = false;
    bool is_replaced = false;  // it is held until others of its source's list have joined
    bool is_overdue = false;   // it left when its time was over, although others were still awaited
    bool kept_out = false;     // an admin drained it: it does not serve until the admin says so
    size_t place = kNoPlace;   // in the list of the settings
    int64_t since_ns = 0;      // in this state
    FleetView::Member member;  // its worker is null unless it serves
    bool gone = false;         // while a change is under way

    bool serves() const { return state == State::kServing; }
    bool by_hand() const;
    void Unhold() { held = is_replaced = false; }
    bool awaits_check() const { return state == State::kPending && spec.ready; }
    // It drains because of its sources, not by an admin's wish.
    bool leaves() const { return serves() && member.draining && (spec.leaving || owners.empty()); }
  };

  // Rows in fleet order: those of the settings as they stand there, those added by hand as they were added;
  // then by source, and by URL, so that all routers with equal lists have equal orders.
  std::span<const Row> rows() const { return rows_; }
  // Changes with every change of a row.
  uint64_t version() const { return version_; }
  bool managed() const { return managed_; }
  const GuardOptions& guard() const { return guard_; }
  void set_guard(const GuardOptions& guard) { guard_ = guard; }

  // A worker or several by hand, all or none. AlreadyExists, ResourceExhausted.
  Status MayAdd(std::span<const WorkerDeclaration> specs) const;
  Status Add(std::string_view source, std::span<const WorkerDeclaration> specs, int64_t now_ns);
  // REQUIRES: positions in rows(), ascending. PermissionDenied if a source declares one of them.
  Status Remove(std::span<const size_t> positions);

  // The whole list of `source`. `complete` is false if absence from it means nothing. `deleted`: workers
  // that the source saw end, which no guard holds. An error leaves the fleet as it was.
  StatusOr<Difference> Reconcile(
      std::string_view source, std::vector<WorkerDeclaration> list, bool complete,
      std::span<const WorkerUrl> deleted, int64_t now_ns);
  // What Reconcile would return. A copy of the fleet takes the list.
  StatusOr<Difference> WouldReconcile(
      std::string_view source, std::vector<WorkerDeclaration> list, bool complete, int64_t now_ns) const;
  // The same list as the last time. InvalidArgument if there was none.
  StatusOr<Difference> ReconcileAgain(std::string_view source, int64_t now_ns);
  // Lets the workers go that the guard holds; returns their URLs. InvalidArgument names the sources.
  StatusOr<std::vector<std::string>> Adopt(std::string_view source, int64_t now_ns);
  // A look that failed; with an empty kind only that there is such a source.
  Status ReportError(std::string_view source, std::string_view kind, std::string_view message);

  // The models that a host has listed, by its base URL; empty: they are not known.
  using ModelsOf = std::function<std::vector<std::string>(std::string_view base)>;
  void set_models_of(ModelsOf models_of) { models_of_ = std::move(models_of); }

  // Lets those go that waited for others to join, and wait no more: since they joined, or the time is over.
  void EndHolds(int64_t now_ns);

  // These passed their check. Ids of rows that are not pending any more are ignored. Returns URLs.
  std::vector<std::string> Admit(std::span<const uint64_t> ids, int64_t now_ns);
  // The requests of these have ended. Others are ignored.
  void Drained(std::span<const WorkerId> workers, int64_t now_ns);
  // True if anything changed. `positions` as in Remove.
  bool SetDraining(std::span<const size_t> positions, bool draining, int64_t now_ns);
  // Every rank of the host. Held workers that are down leave. True if anything changed.
  bool SetHealthy(const WorkerUrl& host, bool healthy, int64_t now_ns);
  void SetManaged(bool managed, int64_t now_ns);

  std::vector<SourceReport> Report() const;

 private:
  struct Hold {  // of a worker
    int64_t since_ns = 0;
    uint32_t syncs = 0;  // lists in a row that left it out
  };
  struct Source {
    SourceReport report;
    std::vector<WorkerDeclaration> list;
    bool complete = true;               // the list
    std::map<std::string, Hold> holds;  // by key
    std::map<uint64_t, int64_t> waits;  // since when rows of the list wait for their check, by id
    uint64_t applied_version = 0;       // of the fleet after the last list
  };

  class Change;  // one call that may change rows

  // Other sources than `source` declare the worker, for another stage.
  static bool IsOfOtherStage(const Row& row, std::string_view source, const WorkerDeclaration& spec);
  // The error that Reconcile would have.
  Status MayReconcile(std::string_view source, std::span<const WorkerDeclaration> list) const;
  Source* Listed(std::string_view name);  // REQUIRES: CheckName() is OK
  static Status CheckName(std::string_view name);
  // Applies its list.
  Difference Apply(
      std::string_view name, Source* source, const std::set<std::string>& deleted, int64_t now_ns);
  // Lets the workers go that its list leaves out and that are not held, or not any more. `is_list`: the list
  // has just come.
  void LetAbsentGo(
      std::string_view name, Source* source, const std::set<std::string>& deleted, bool is_list,
      Change* change);
  struct Absence;  // what is decided of these workers
  void Guard(Absence* absence) const;
  void AwaitSuccessors(Absence* absence) const;
  std::vector<std::string> ModelsOfRow(const Row& row) const;
  size_t serving() const;
  bool IsBefore(const Row& a, const Row& b) const;

  GuardOptions guard_;
  ModelsOf models_of_;
  bool managed_ = false;
  bool is_copy_ = false;  // its workers are those of another fleet, and stay as they are
  std::vector<Row> rows_;
  std::unordered_map<std::string, size_t> positions_;   // by key
  std::map<std::string, Source, std::less<>> sources_;  // all but those by hand
  LoadPages loads_;
  uint64_t version_ = 1;
  uint64_t next_row_ = 1;
  uint32_t next_worker_ = 0;
};

}  // namespace vllm_router
