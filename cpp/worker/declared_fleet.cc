#include "worker/declared_fleet.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <tuple>
#include <utility>

#include "base/limits.h"
#include "base/text.h"

namespace vllm_router {
namespace {

// A number for an incarnation that is the same in every router: FNV-1a; 0 is none.
uint64_t IncarnationOf(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char byte : text) hash = (hash ^ static_cast<uint8_t>(byte)) * 0x100000001b3u;
  return hash == 0 ? 1 : hash;
}

using Row = DeclaredFleet::Row;

// The order of the fleet: sources by this list, then those that a program has named.
constexpr std::array<std::string_view, 4> kSourceOrder = {"file", "kubernetes", "dns", "registration"};
constexpr size_t kMaxSourceName = 32;
constexpr size_t kMaxRows = 2 * kMaxWorkers;  // a list may be replaced while those of the last one drain
constexpr size_t kMaxErrorKinds = 16;
constexpr size_t kMaxMessage = 500;

bool IsByHand(std::string_view source) {
  return source == DeclaredFleet::kStatic || source == DeclaredFleet::kApi;
}

bool IsOwner(const Row& row, std::string_view source) {
  return std::find(row.owners.begin(), row.owners.end(), source) != row.owners.end();
}

std::tuple<size_t, std::string_view> OrderOf(std::string_view source) {
  if (IsByHand(source)) return {0, {}};
  const size_t known = std::find(kSourceOrder.begin(), kSourceOrder.end(), source) - kSourceOrder.begin();
  return {known + 1, source};
}

// The order of rows: those added by hand, then those of each listed source. One that is not declared any more keeps
// its place.
std::tuple<size_t, std::string_view> OrderOf(const Row& row) { return OrderOf(row.source); }

// The order of a worker's owners, the same in every router; the first is the owner.
bool OwnsBefore(std::string_view a, std::string_view b) {
  const auto order = [](std::string_view source) {
    return std::tuple(OrderOf(source), source != DeclaredFleet::kStatic);
  };
  return order(a) < order(b);
}

}  // namespace

std::string_view DeclaredFleet::StateName(State state) {
  constexpr std::array<std::string_view, 3> kNames = {"pending", "serving", "left"};
  return kNames[static_cast<size_t>(state)];
}

std::string_view DeclaredFleet::StateName(const Row& row) {
  if (!row.serves()) return StateName(row.state);
  if (row.held) return "held";
  if (row.member.draining) return "draining";
  return row.member.resting ? "resting" : "serving";
}

bool DeclaredFleet::Row::by_hand() const {
  return std::any_of(owners.begin(), owners.end(), [](const std::string& owner) { return IsByHand(owner); });
}

// One call. New rows are appended at its end, so that pointers to rows hold meanwhile.
class DeclaredFleet::Change {
 public:
  Change(DeclaredFleet& fleet, int64_t now_ns) : fleet_(fleet), now_ns_(now_ns), serving_(fleet.serving()) {
    for (const Row& row : fleet.rows_) {
      if (row.serves()) Enter(row);
    }
  }

  ~Change() {
    std::vector<Row>& rows = fleet_.rows_;
    if (!changed_) return;
    for (Row& row : added_) rows.push_back(std::move(row));
    for (Row& row : rows) {
      if (!row.owners.empty()) row.source = row.owners.front();
    }
    std::erase_if(rows, [](const Row& row) { return row.gone; });
    std::stable_sort(
        rows.begin(), rows.end(), [this](const Row& a, const Row& b) { return fleet_.IsBefore(a, b); });
    fleet_.positions_.clear();
    for (size_t i = 0; i < rows.size(); ++i) fleet_.positions_.emplace(rows[i].key, i);
    ++fleet_.version_;
  }
  Change(const Change&) = delete;
  Change& operator=(const Change&) = delete;

  Difference difference;

  // `checked`: it serves at once, as what is added by hand does.
  void NewRow(std::string_view source, WorkerDeclaration spec, bool checked, size_t place = kNoPlace) {
    Row row;
    row.place = place;
    row.key = WorkerKey(spec.url);
    row.owners.emplace_back(source);
    row.spec = std::move(spec);
    Begin(&row);
    if (checked && !row.serves()) Serve(&row);
    added_.push_back(std::move(row));
  }

  // A listed source declares a worker that is known.
  void Declare(std::string_view source, Row* row, const WorkerDeclaration& spec) {
    if (IsOfOtherStage(*row, source, spec)) return;  // it came into the fleet since the list was taken
    if (row->owners.empty()) {                       // it drains, and is wanted again: with a warm cache
      if (spec.leaving) return;
      changed_ = true;
      row->owners.emplace_back(source);
      row->member.draining = row->kept_out = row->is_overdue = false;
      row->spec.leaving = false;
      Update(row, spec);
      difference.joined.push_back(row->spec.url.url);
      return;
    }
    if (!IsOwner(*row, source)) {
      changed_ = true;
      const auto before = std::find_if(row->owners.begin(), row->owners.end(), [source](const auto& owner) {
        return OwnsBefore(source, owner);
      });
      row->owners.emplace(before, source);
    }
    if (row->owners.front() == source) TakeWord(row, spec);
  }

  void LetGo(std::string_view source, Row* row) {
    changed_ = true;
    row->Unhold();
    const bool owned = row->owners.front() == source;
    std::erase(row->owners, source);
    if (!row->owners.empty()) {
      const WorkerDeclaration* const spec = owned ? WordOf(row->owners.front(), row->key) : nullptr;
      if (spec != nullptr) TakeWord(row, *spec);
      return;
    }
    difference.left.push_back(row->spec.url.url);
    if (row->serves() && fleet_.managed_) {
      row->member.draining = true;
    } else {
      Drop(row);
    }
  }

  void Serve(Row* row) {
    if (serving_ >= kMaxWorkers) return;  // it stays pending
    changed_ = true;
    WorkerUrl url = row->spec.url;
    // A rank that joins a host known to be down is down too. If any rank of a host receives the key, all
    // of them do.
    const auto host = hosts_.find(HostKey(url));
    const bool healthy = host == hosts_.end() || host->second.healthy;
    if (host != hosts_.end()) url.receives_api_key |= host->second.receives_api_key;
    row->state = State::kServing;
    row->since_ns = now_ns_;
    row->member = {
        .worker = std::make_shared<Worker>(
            WorkerId{fleet_.next_worker_++}, std::move(url), row->spec.weight_thousandths(),
            fleet_.loads_.New(), row->spec.role),
        .healthy = healthy,
        .resting = !row->spec.ready};
    SetIncarnation(*row);
    ++serving_;
    Enter(*row);
  }

  // A row that is new, or starts anew.
  void Begin(Row* row) {
    changed_ = true;
    row->id = fleet_.next_row_++;
    row->state = State::kPending;
    row->since_ns = now_ns_;
    row->member = {};
    if (!fleet_.managed_ && row->spec.ready) Serve(row);
  }

  // A worker that an admin drained before it served, or whose engine started anew since.
  void KeepOut(Row* row) {
    changed_ = true;
    row->id = fleet_.next_row_++;
    row->state = State::kLeft;
    row->since_ns = now_ns_;
    row->member = {};
  }

  void ServePending() {
    for (std::vector<Row>* rows : {&fleet_.rows_, &added_}) {
      for (Row& row : *rows) {
        if (!row.gone && row.awaits_check()) Serve(&row);
      }
    }
  }

  void Drop(Row* row) {
    changed_ = true;
    if (row->serves()) Leave(*row);
    row->gone = true;
  }

  // Gone, unless a list still has it.
  void Drained(Row* row) {
    if (std::ranges::all_of(row->owners, IsByHand)) return Drop(row);
    changed_ = true;
    Leave(*row);
    row->state = State::kLeft;
    row->since_ns = now_ns_;
    row->member = {};
  }

  void Place(Row* row, size_t place) {
    if (std::exchange(row->place, place) != place) changed_ = true;
  }

  void Mark() { changed_ = true; }

  // It stays, though its list leaves it out.
  void Hold(Row* row, bool is_replaced) {
    if (row->held && row->is_replaced == is_replaced) return;
    row->held = changed_ = true;
    row->is_replaced = is_replaced;
  }

  // Rows that are new at the end.
  template <typename Callback>
  void ForEachRow(Callback callback) {
    for (std::vector<Row>* rows : {&fleet_.rows_, &added_}) {
      for (Row& row : *rows) {
        if (!row.gone) callback(row);
      }
    }
  }

  int64_t now_ns() const { return now_ns_; }
  bool is_full() const { return serving_ >= kMaxWorkers; }

 private:
  void SetIncarnation(const Row& row) const {
    const std::string& text = row.spec.incarnation;
    if (!text.empty() && !fleet_.is_copy_)
      row.member.worker->incarnation.store(IncarnationOf(text), std::memory_order_relaxed);
  }

  // The owner declares the worker again, or another source has become its owner.
  void TakeWord(Row* row, const WorkerDeclaration& spec) {
    if (row->held) changed_ = true;
    row->Unhold();
    if (!Update(row, spec)) return;
    (row->gone ? difference.left : difference.changed).push_back(row->spec.url.url);
  }

  // What the list of `source` says of a worker; null if it is not in there.
  const WorkerDeclaration* WordOf(std::string_view source, const std::string& key) {
    const auto [words, is_new] = words_.try_emplace(std::string(source));
    const auto known = fleet_.sources_.find(source);
    if (is_new && known != fleet_.sources_.end()) {
      for (const WorkerDeclaration& spec : known->second.list)
        words->second.emplace(WorkerKey(spec.url), &spec);
    }
    const auto found = words->second.find(key);
    return found != words->second.end() ? found->second : nullptr;
  }

  // What the owner says now. False if that changes nothing of what the worker serves.
  bool Update(Row* row, const WorkerDeclaration& spec) {
    const WorkerDeclaration& known = row->spec;
    const bool knows_both = !spec.incarnation.empty() && !known.incarnation.empty();
    if (spec.role != known.role || (knows_both && spec.incarnation != known.incarnation)) {
      if (row->serves() && !spec.leaving) Leave(*row);
      Take(row, spec);
      row->Unhold();
      if (spec.leaving) {
        Drop(row);
      } else if (row->kept_out) {
        KeepOut(row);
      } else {
        Begin(row);
      }
      return true;
    }
    if (spec.incarnation.empty() && !known.incarnation.empty()) {
      WorkerDeclaration same = spec;
      same.incarnation = known.incarnation;
      return Update(row, same);
    }
    const bool changed = spec != known && Replace(row, spec);
    if (row->state == State::kPending && known.ready && !fleet_.managed_) Serve(row);
    return changed;
  }

  // By what is said of the same engine. False if only `detail`, `drain_secs` or `incarnation` differs.
  bool Replace(Row* row, const WorkerDeclaration& spec) {
    WorkerDeclaration before = Take(row, spec);
    const WorkerDeclaration& known = row->spec;
    if (row->serves()) {
      if (known.incarnation != before.incarnation) SetIncarnation(*row);
      if (known.weight != before.weight && !fleet_.is_copy_)
        row->member.worker->weight.store(known.weight_thousandths(), std::memory_order_relaxed);
      row->member.resting = !known.ready;
      if (known.leaving != before.leaving) row->member.draining = known.leaving || row->kept_out;
    } else if (row->state == State::kPending && known.leaving && !before.leaving) {
      row->state = State::kLeft;
      row->since_ns = now_ns_;
    } else if (row->state == State::kLeft && before.leaving && !known.leaving && !row->kept_out) {
      Begin(row);
    }
    before.detail = known.detail;
    before.drain_secs = known.drain_secs;
    before.incarnation = known.incarnation;
    return before != known;
  }

  // The row keeps its URL as it was spelled first. Returns what it had.
  WorkerDeclaration Take(Row* row, const WorkerDeclaration& spec) {
    changed_ = true;
    WorkerDeclaration before = std::exchange(row->spec, spec);
    row->spec.url = before.url;
    return before;
  }

  void Enter(const Row& row) {
    const auto [host, is_new] = hosts_.try_emplace(HostKey(row.spec.url));
    host->second.healthy = (is_new || host->second.healthy) && row.member.healthy;
    host->second.receives_api_key |= row.member.worker->url.receives_api_key;
    ++host->second.ranks;
  }

  // Its place is free for others with the next change only: indexes have one for each worker of the fleet,
  // and those that join get theirs before those that left give theirs back.
  void Leave(const Row& row) {
    const auto host = hosts_.find(HostKey(row.spec.url));
    if (--host->second.ranks == 0) hosts_.erase(host);
  }

  // What the serving ranks of a host have in common.
  struct Host {
    bool healthy = true;
    bool receives_api_key = false;
    uint32_t ranks = 0;
  };

  DeclaredFleet& fleet_;
  const int64_t now_ns_;
  size_t serving_;                               // at first, and those that joined
  std::unordered_map<std::string, Host> hosts_;  // by HostKey()
  std::vector<Row> added_;
  // Lists of sources by key, of those that were asked for.
  std::map<std::string, std::unordered_map<std::string, const WorkerDeclaration*>, std::less<>> words_;
  bool changed_ = false;
};

size_t DeclaredFleet::serving() const {
  return static_cast<size_t>(
      std::count_if(rows_.begin(), rows_.end(), [](const Row& row) { return row.serves(); }));
}

bool DeclaredFleet::IsBefore(const Row& a, const Row& b) const {
  const auto of_a = OrderOf(a);
  const auto of_b = OrderOf(b);
  if (of_a != of_b) return of_a < of_b;
  return std::get<0>(of_a) != 0 ? a.spec.url.url < b.spec.url.url : a.place < b.place;
}

Status DeclaredFleet::MayAdd(std::span<const WorkerDeclaration> specs) const {
  const size_t serving = this->serving();
  if (serving + specs.size() > kMaxWorkers) {
    return absl::ResourceExhaustedError(Concat(
        "adding ", specs.size(), " to the ", serving, " workers of the fleet would pass the limit of ",
        kMaxWorkers, "; remove some first, or run a second router"));
  }
  std::set<std::string> keys;
  for (const WorkerDeclaration& spec : specs) {
    std::string key = WorkerKey(spec.url);
    const auto found = positions_.find(key);
    const Row* const row = found != positions_.end() ? &rows_[found->second] : nullptr;
    if (row == nullptr && keys.insert(std::move(key)).second) continue;
    if (row != nullptr && !row->owners.empty() && !row->by_hand()) {
      return absl::AlreadyExistsError(Concat(
          "worker ", spec.url.url, " already exists in the fleet: ", row->owners.front(), " declares it"));
    }
    if (row != nullptr && row->kept_out) {
      return absl::AlreadyExistsError(Concat(
          "worker ", spec.url.url, " already exists in the fleet, drained by an admin; end that with DELETE ",
          "/admin/drain?url=", spec.url.url, " to have it serve again"));
    }
    return absl::AlreadyExistsError(Concat(
        "worker ", spec.url.url, " already exists in the fleet",
        row != nullptr && row->member.draining ? ", draining" : "", "; remove it first to add it anew"));
  }
  return absl::OkStatus();
}

Status DeclaredFleet::Add(std::string_view source, std::span<const WorkerDeclaration> specs, int64_t now_ns) {
  ROUTER_RETURN_IF_ERROR(MayAdd(specs));
  Change change(*this, now_ns);
  size_t place = 0;
  for (const WorkerDeclaration& spec : specs) {
    change.NewRow(source, spec, /*checked=*/true, source == kStatic ? place++ : kNoPlace);
  }
  return absl::OkStatus();
}

Status DeclaredFleet::Remove(std::span<const size_t> positions) {
  for (const size_t position : positions) {
    const Row& row = rows_[position];
    const auto other = std::find_if_not(
        row.owners.begin(), row.owners.end(), [](const std::string& owner) { return IsByHand(owner); });
    if (other == row.owners.end()) continue;
    return absl::PermissionDeniedError(Concat(
        "worker ", row.spec.url.url, " is declared by ", *other,
        row.spec.detail.empty() ? std::string() : Concat(" (", row.spec.detail, ")"),
        "; take it out there, or drain it (POST /admin/drain)"));
  }
  Change change(*this, 0);
  for (const size_t position : positions) change.Drop(&rows_[position]);
  return absl::OkStatus();
}

Status DeclaredFleet::CheckName(std::string_view name) {
  const auto is_letter = [](char c) { return c >= 'a' && c <= 'z'; };
  const bool good = !name.empty() && name.size() <= kMaxSourceName && is_letter(name.front()) &&
                    std::all_of(name.begin(), name.end(), [&](char c) {
                      return is_letter(c) || (c >= '0' && c <= '9') || c == '_' || c == '-';
                    });
  if (good && name != kApi) return absl::OkStatus();
  return absl::InvalidArgumentError(Concat(
      "the source of workers is ", Quoted(name), "; a name has 1 to ", kMaxSourceName,
      " lower-case letters, digits, '_' and '-', begins with a letter, and is not api"));
}

DeclaredFleet::Source* DeclaredFleet::Listed(std::string_view name) {
  const auto [found, is_new] = sources_.try_emplace(std::string(name));
  if (is_new) found->second.report.name = name;
  return &found->second;
}

bool DeclaredFleet::IsOfOtherStage(const Row& row, std::string_view source, const WorkerDeclaration& spec) {
  return row.spec.role.stage != spec.role.stage &&
         std::ranges::any_of(row.owners, [source](const std::string& owner) { return owner != source; });
}

Status DeclaredFleet::MayReconcile(std::string_view source, std::span<const WorkerDeclaration> list) const {
  std::set<std::string> keys;
  size_t fresh = 0;
  for (const WorkerDeclaration& spec : list) {
    const auto [key, is_new] = keys.insert(WorkerKey(spec.url));
    if (!is_new) {
      return absl::InvalidArgumentError(
          Concat("worker ", spec.url.url, " is in the list of ", source, " twice; name it once"));
    }
    const auto known = positions_.find(*key);
    if (known == positions_.end()) {
      ++fresh;
    } else if (const Row& row = rows_[known->second]; IsOfOtherStage(row, source, spec)) {
      return absl::InvalidArgumentError(Concat(
          "worker ", spec.url.url, " is in the list of ", source, " as ", StageName(spec.role.stage),
          ", but ", row.owners.front() != source ? row.owners.front() : row.owners.back(), " declares it as ",
          StageName(row.spec.role.stage), "; a worker has one stage: correct one of the two"));
    }
  }
  if (list.size() > kMaxWorkers || rows_.size() + fresh > kMaxRows) {
    return absl::ResourceExhaustedError(Concat(
        "the list of ", source, " has ", list.size(), " workers beside ", rows_.size(),
        " that are known; a fleet has at most ", kMaxWorkers, ": run a second router"));
  }
  return CheckName(source);
}

StatusOr<Difference> DeclaredFleet::Reconcile(
    std::string_view source, std::vector<WorkerDeclaration> list, bool complete,
    std::span<const WorkerUrl> deleted, int64_t now_ns) {
  ROUTER_RETURN_IF_ERROR(MayReconcile(source, list));
  std::set<std::string> ended;  // keys of rows
  for (const WorkerUrl& url : deleted) {
    for (const Row& row : rows_) {
      if (SameHost(row.spec.url, url) && (!url.rank || url.rank == row.spec.url.rank)) ended.insert(row.key);
    }
  }
  Source* const found = Listed(source);
  found->list = std::move(list);
  found->complete = complete;
  return Apply(source, found, ended, now_ns);
}

StatusOr<Difference> DeclaredFleet::WouldReconcile(
    std::string_view source, std::vector<WorkerDeclaration> list, bool complete, int64_t now_ns) const {
  DeclaredFleet copy(*this);
  copy.is_copy_ = true;
  return copy.Reconcile(source, std::move(list), complete, {}, now_ns);
}

StatusOr<Difference> DeclaredFleet::ReconcileAgain(std::string_view source, int64_t now_ns) {
  const auto found = sources_.find(source);
  if (found == sources_.end() || !found->second.report.listed) {
    return absl::InvalidArgumentError(
        Concat("the source ", Quoted(source), " has not declared a list yet; declare one first"));
  }
  Source& known = found->second;
  const bool waits =
      !managed_ && std::ranges::any_of(rows_, [](const Row& row) { return row.awaits_check(); });
  if (known.applied_version != version_ || !known.holds.empty() || waits)
    return Apply(source, &known, {}, now_ns);
  ++known.report.syncs;
  known.report.last_error.clear();
  known.report.last_list_ns = now_ns;
  return Difference();
}

Difference DeclaredFleet::Apply(
    std::string_view name, Source* source, const std::set<std::string>& deleted, int64_t now_ns) {
  Difference difference;
  {
    Change change(*this, now_ns);
    size_t number = 0;
    for (const WorkerDeclaration& spec : source->list) {
      const std::string key = WorkerKey(spec.url);
      const size_t place = name == kStatic ? number++ : kNoPlace;
      const auto known = positions_.find(key);
      if (known != positions_.end()) {
        change.Declare(name, &rows_[known->second], spec);
        if (place != kNoPlace) change.Place(&rows_[known->second], place);
      } else if (!spec.leaving) {
        change.difference.joined.push_back(spec.url.url);
        change.NewRow(name, spec, /*checked=*/false, place);
      }
    }
    LetAbsentGo(name, source, deleted, /*is_list=*/true, &change);
    if (!managed_) change.ServePending();
    difference = std::move(change.difference);
  }
  SourceReport& report = source->report;
  report.listed = true;
  ++report.syncs;
  report.last_error.clear();
  report.last_list_ns = now_ns;
  report.joined += difference.joined.size();
  report.left += difference.left.size();
  report.changed += difference.changed.size();
  source->applied_version = version_;
  return difference;
}

// What one source and its last list decide.
struct DeclaredFleet::Absence {
  std::string_view name;
  Source* source;
  bool is_list;  // it has just come
  int64_t now_ns;
  std::vector<const Row*> listed;  // rows of the list
  std::set<std::string> hosts;     // of these
  std::vector<Row*> absent;        // that nothing else explains
  std::set<const Row*> guarded;    // of them, held by the guard
  std::set<const Row*> awaiting;   // held until others have joined
  bool replaces = false;           // none of the list serves yet, and there is one to wait for
  bool has_room = true;            // for workers that join

  int64_t AgeOf(const Row& row) const {
    const auto hold = source->holds.find(row.key);
    return hold != source->holds.end() ? now_ns - hold->second.since_ns : 0;
  }
};

void DeclaredFleet::LetAbsentGo(
    std::string_view name, Source* source, const std::set<std::string>& deleted, bool is_list,
    Change* change) {
  Absence absence{.name = name, .source = source, .is_list = is_list, .now_ns = change->now_ns()};
  absence.has_room = !change->is_full();
  std::set<std::string> keys;
  for (const WorkerDeclaration& spec : source->list) keys.insert(WorkerKey(spec.url));
  std::vector<Row*> ended;
  change->ForEachRow([&](Row& row) {
    if (!IsOwner(row, name)) return;
    if (keys.contains(row.key)) {
      absence.listed.push_back(&row);
      absence.hosts.insert(HostKey(row.spec.url));
    } else if (deleted.contains(row.key)) {
      ended.push_back(&row);
    } else if (source->complete && (is_list || row.held)) {
      absence.absent.push_back(&row);
    }
  });
  std::map<uint64_t, int64_t> waits;
  for (const Row* const row : absence.listed) {
    if (!managed_ || !row->awaits_check()) continue;
    const auto known = source->waits.find(row->id);
    waits.emplace(row->id, known != source->waits.end() ? known->second : absence.now_ns);
  }
  source->waits = std::move(waits);
  if (source->complete) {
    Guard(&absence);
    AwaitSuccessors(&absence);
    std::map<std::string, Hold> holds;
    for (const Row* const row : absence.absent) {
      if (!absence.guarded.contains(row) && !absence.awaiting.contains(row)) continue;
      const auto known = source->holds.find(row->key);
      Hold hold = known != source->holds.end() ? known->second : Hold{.since_ns = absence.now_ns};
      if (is_list) ++hold.syncs;
      holds.emplace(row->key, hold);
    }
    for (Row* const row : absence.absent) {
      if (!holds.contains(row->key)) {
        row->is_overdue = row->is_replaced && !source->waits.empty() && absence.AgeOf(*row) >= guard_.hold_ns;
        change->LetGo(name, row);
        continue;
      }
      if (is_list) change->difference.held.push_back(row->spec.url.url);
      change->Hold(row, absence.replaces || absence.awaiting.contains(row));
    }
    source->holds = std::move(holds);
  }
  for (Row* const row : ended) change->LetGo(name, row);
}

void DeclaredFleet::Guard(Absence* absence) const {
  const bool is_written = IsWritten(absence->name);
  const Source& source = *absence->source;
  bool any_pending = false;
  bool any_in_use = false;
  for (const Row* const row : absence->listed) {
    any_pending |= managed_ && row->awaits_check();
    any_in_use |= row->serves() && !row->member.draining && !row->member.resting;
  }
  absence->replaces = is_written && any_pending && !any_in_use && absence->has_room;
  if (!absence->is_list && !is_written) {  // only another list ends these
    for (const Row* const row : absence->absent) {
      if (!row->is_replaced) absence->guarded.insert(row);
    }
    return;
  }
  const auto counts = [name = absence->name](const Row& row) {
    return !row.gone && row.serves() && !row.member.draining && !row.owners.empty() &&
           row.owners.front() == name;
  };
  const auto total = static_cast<size_t>(std::ranges::count_if(rows_, counts));
  std::vector<const Row*> suspects;
  for (const Row* const row : absence->absent) {
    if (counts(*row) && row->owners.size() == 1) suspects.push_back(row);
  }
  const auto many = static_cast<double>(suspects.size()) > guard_.share * static_cast<double>(total);
  const bool exceeds = suspects.size() == total ? !is_written || source.list.empty() || absence->replaces
                                                : !is_written && many;
  if (!exceeds) return;
  for (const Row* const row : suspects) {
    const auto hold = source.holds.find(row->key);
    const bool is_believed = absence->is_list && !absence->replaces && hold != source.holds.end() &&
                             hold->second.syncs + 1 >= 2 && absence->AgeOf(*row) >= guard_.hold_ns;
    if (!is_believed) absence->guarded.insert(row);
  }
}

std::vector<std::string> DeclaredFleet::ModelsOfRow(const Row& row) const {
  if (!row.spec.models.empty() || !models_of_) return row.spec.models;
  return models_of_(row.spec.url.base);
}

void DeclaredFleet::AwaitSuccessors(Absence* absence) const {
  const Source& source = *absence->source;
  if (source.waits.empty() || IsInventory(absence->name) || !absence->has_room) return;
  // Rows of a stage and a kv_group that wait, and by model the ones whose models are known.
  struct Waiting {
    std::vector<const Row*> rows;
    std::vector<const Row*> of_any;
    std::unordered_map<std::string, std::vector<const Row*>> of_model;
  };
  std::map<std::pair<Stage, std::string>, Waiting> waiting;
  std::set<std::string> kv_groups;  // that the list names
  bool any_waits = false;
  for (const Row* const row : absence->listed) {
    const WorkerRole& role = row->spec.role;
    if (!row->spec.leaving) kv_groups.insert(role.kv_group);
    const auto since = source.waits.find(row->id);
    if (since == source.waits.end() || absence->now_ns - since->second >= guard_.hold_ns) continue;
    any_waits = true;
    Waiting& same = waiting[{role.stage, role.kv_group}];
    same.rows.push_back(row);
    const std::vector<std::string> models = ModelsOfRow(*row);
    if (models.empty()) same.of_any.push_back(row);
    for (const std::string& model : models) same.of_model[model].push_back(row);
  }
  if (!any_waits) return;

  // Rows that leave, by what they may serve, then by host.
  struct Leaving {
    std::vector<std::string> models;
    std::map<std::string, std::vector<const Row*>> hosts;
  };
  std::map<std::pair<Stage, std::string>, std::map<std::string, Leaving>> leaving;
  for (const Row* const row : absence->absent) {
    const bool is_another_shape = row->spec.url.rank && absence->hosts.contains(HostKey(row->spec.url));
    if (absence->guarded.contains(row) || row->owners.size() != 1 || !row->member.in_rotation() ||
        !row->serves() || is_another_shape || absence->AgeOf(*row) >= guard_.hold_ns) {
      continue;
    }
    const WorkerRole& role = row->spec.role;
    if (!kv_groups.contains(role.kv_group)) {
      absence->awaiting.insert(row);
      continue;
    }
    std::vector<std::string> models = ModelsOfRow(*row);
    std::ranges::sort(models);
    std::string names;
    for (const std::string& model : models) names += Concat(model.size(), ":", model);
    Leaving& same = leaving[{role.stage, role.kv_group}][names];
    same.models = std::move(models);
    same.hosts[HostKey(row->spec.url)].push_back(row);
  }
  for (const auto& [role, groups] : leaving) {
    const auto found = waiting.find(role);
    if (found == waiting.end()) continue;
    const Waiting& same = found->second;
    for (const auto& [names, group] : groups) {
      std::set<const Row*> successors;
      const std::vector<const Row*>& any = group.models.empty() ? same.rows : same.of_any;
      successors.insert(any.begin(), any.end());
      for (const std::string& model : group.models) {
        const auto rows = same.of_model.find(model);
        if (rows != same.of_model.end()) successors.insert(rows->second.begin(), rows->second.end());
      }
      std::set<std::string> hosts;
      for (const Row* const row : successors) hosts.insert(HostKey(row->spec.url));
      // A host stands for a host, or for as many rows as it has; those with the first keys leave first.
      size_t hosts_left = hosts.size();
      size_t rows_left = successors.size();
      for (auto host = group.hosts.rbegin(); host != group.hosts.rend(); ++host) {
        const std::vector<const Row*>& ranks = host->second;
        if (hosts_left == 0 && rows_left < ranks.size()) continue;
        hosts_left -= std::min<size_t>(hosts_left, 1);
        rows_left -= std::min(rows_left, ranks.size());
        absence->awaiting.insert(ranks.begin(), ranks.end());
      }
    }
  }
}

void DeclaredFleet::EndHolds(int64_t now_ns) {
  std::set<std::string> names;
  for (const Row& row : rows_) {
    if (row.is_replaced) names.insert(row.owners.front());
  }
  for (const std::string& name : names) {
    Source& source = sources_.find(name)->second;
    Change change(*this, now_ns);
    LetAbsentGo(name, &source, {}, /*is_list=*/false, &change);
    source.report.left += change.difference.left.size();
    source.report.changed += change.difference.changed.size();
  }
}

StatusOr<std::vector<std::string>> DeclaredFleet::Adopt(std::string_view source, int64_t now_ns) {
  const auto found = sources_.find(source);
  if (found == sources_.end()) {
    std::string names;
    for (const auto& [name, known] : sources_) names += (names.empty() ? "" : ", ") + name;
    return absl::InvalidArgumentError(Concat(
        "no source ", Quoted(source), " of workers; ",
        names.empty() ? std::string("there is none") : Concat("there are: ", names)));
  }
  Change change(*this, now_ns);
  for (Row& row : rows_) {
    if (row.held && row.owners.front() == source) change.LetGo(source, &row);
  }
  found->second.holds.clear();
  found->second.report.left += change.difference.left.size();
  return std::move(change.difference.left);
}

Status DeclaredFleet::ReportError(std::string_view source, std::string_view kind, std::string_view message) {
  ROUTER_RETURN_IF_ERROR(CheckName(source));
  Source* const found = Listed(source);
  if (kind.empty()) return absl::OkStatus();
  SourceReport& report = found->report;
  const bool known = report.errors.contains(std::string(kind)) || report.errors.size() < kMaxErrorKinds;
  ++report.errors[known ? std::string(kind) : std::string("other")];
  report.last_error = message.substr(0, kMaxMessage);
  return absl::OkStatus();
}

std::vector<std::string> DeclaredFleet::Admit(std::span<const uint64_t> ids, int64_t now_ns) {
  const std::set<uint64_t> admitted(ids.begin(), ids.end());
  std::vector<std::string> urls;
  {
    Change change(*this, now_ns);
    for (Row& row : rows_) {
      if (!row.awaits_check() || !admitted.contains(row.id)) continue;
      change.Serve(&row);
      if (row.serves()) urls.push_back(row.spec.url.url);
    }
  }
  if (!urls.empty()) EndHolds(now_ns);  // those that they replace may go
  return urls;
}

void DeclaredFleet::Drained(std::span<const WorkerId> workers, int64_t now_ns) {
  const std::set<WorkerId> ended(workers.begin(), workers.end());
  Change change(*this, now_ns);
  for (Row& row : rows_) {
    if (row.serves() && row.member.draining && ended.contains(row.member.worker->id)) change.Drained(&row);
  }
}

bool DeclaredFleet::SetDraining(std::span<const size_t> positions, bool draining, int64_t now_ns) {
  bool changed = false;
  Change change(*this, now_ns);
  for (const size_t position : positions) {
    Row& row = rows_[position];
    if (std::exchange(row.kept_out, draining) != draining) change.Mark();
    if (row.state == State::kLeft && !draining) {
      change.Begin(&row);
      changed = true;
    } else if (row.state == State::kPending && draining) {
      change.KeepOut(&row);
      changed = true;
    } else if (row.serves() && row.member.draining != draining) {
      row.member.draining = draining;
      change.Mark();
      changed = true;
    }
  }
  return changed;
}

bool DeclaredFleet::SetHealthy(const WorkerUrl& host, bool healthy, int64_t now_ns) {
  bool changed = false;
  Change change(*this, now_ns);
  for (Row& row : rows_) {
    if (!row.serves() || !SameHost(row.spec.url, host)) continue;
    if (row.member.healthy == healthy && (healthy || !row.held)) continue;
    row.member.healthy = healthy;
    changed = true;
    change.Mark();
    if (!row.held || healthy) continue;
    const std::string owner = row.owners.front();
    Source& source = sources_.find(owner)->second;
    source.holds.erase(row.key);
    change.LetGo(owner, &row);
    if (!row.owners.empty()) continue;  // another source declares it
    ++source.report.left;
    if (!row.gone) change.Drop(&row);
  }
  return changed;
}

void DeclaredFleet::SetManaged(bool managed, int64_t now_ns) {
  if (std::exchange(managed_, managed) == managed || managed) return;
  {
    Change change(*this, now_ns);
    for (Row& row : rows_) {
      if (row.owners.empty()) change.Drop(&row);
    }
    change.ServePending();
  }
  EndHolds(now_ns);
}

std::vector<SourceReport> DeclaredFleet::Report() const {
  std::vector<SourceReport> reports;
  for (const auto& [name, source] : sources_) {
    reports.push_back(source.report);
    reports.back().held = static_cast<uint32_t>(std::ranges::count_if(
        rows_, [&name = name](const Row& row) { return row.held && row.owners.front() == name; }));
  }
  return reports;
}

}  // namespace vllm_router
