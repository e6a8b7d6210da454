#include "worker/declared_fleet.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <tuple>
#include <utility>

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

// Of rows: those added by hand, then those of each listed source. One that is not declared any more keeps
// its place.
std::tuple<size_t, std::string_view> OrderOf(const Row& row) { return OrderOf(row.source); }

// Of the owners of a worker, the same in every router; the first is the owner.
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
  void NewRow(std::string_view source, WorkerSpec spec, bool checked, size_t place = kNoPlace) {
    Row row;
    row.place = place;
    row.key = WorkerKey(spec.url);
    row.owners.emplace_back(source);
    row.spec = std::move(spec);
    Begin(&row);
    if (checked && !row.serves()) Serve(&row);
    added_.push_back(std::move(row));
  }

  // Of a listed source; `row` is known.
  void Declare(std::string_view source, Row* row, const WorkerSpec& spec) {
    if (IsOfOtherStage(*row, source, spec)) return;  // it came into the fleet since the list was taken
    if (row->owners.empty()) {                       // it drains, and is wanted again: with a warm cache
      if (spec.leaving) return;
      changed_ = true;
      row->owners.emplace_back(source);
      row->member.draining = row->kept_out = false;
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
    row->held = false;
    const bool owned = row->owners.front() == source;
    std::erase(row->owners, source);
    if (!row->owners.empty()) {
      const WorkerSpec* const spec = owned ? WordOf(row->owners.front(), row->key) : nullptr;
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
            WorkerId{fleet_.next_worker_++}, std::move(url), row->spec.weight, fleet_.loads_.New(),
            row->spec.role),
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

 private:
  void SetIncarnation(const Row& row) const {
    const std::string& text = row.spec.incarnation;
    if (!text.empty() && !fleet_.is_copy_)
      row.member.worker->incarnation.store(IncarnationOf(text), std::memory_order_relaxed);
  }

  // The owner's.
  void TakeWord(Row* row, const WorkerSpec& spec) {
    if (std::exchange(row->held, false)) changed_ = true;
    if (!Update(row, spec)) return;
    (row->gone ? difference.left : difference.changed).push_back(row->spec.url.url);
  }

  // What the list of `source` says of a worker; null if it is not in there.
  const WorkerSpec* WordOf(std::string_view source, const std::string& key) {
    const auto [words, is_new] = words_.try_emplace(std::string(source));
    const auto known = fleet_.sources_.find(source);
    if (is_new && known != fleet_.sources_.end()) {
      for (const WorkerSpec& spec : known->second.list) words->second.emplace(WorkerKey(spec.url), &spec);
    }
    const auto found = words->second.find(key);
    return found != words->second.end() ? found->second : nullptr;
  }

  // What the owner says now. False if that is what it said before.
  bool Update(Row* row, const WorkerSpec& spec) {
    WorkerSpec& known = row->spec;
    const bool is_named_anew =
        !spec.incarnation.empty() && !known.incarnation.empty() && spec.incarnation != known.incarnation;
    if (is_named_anew || spec.role != known.role) {
      const bool leaving = spec.leaving;
      if (row->serves() && !leaving) Leave(*row);
      WorkerUrl url = std::move(known.url);  // as it was spelled first
      known = spec;
      known.url = std::move(url);
      row->held = false;
      if (leaving) {
        Drop(row);
      } else if (row->kept_out) {
        KeepOut(row);
      } else {
        Begin(row);
      }
      return true;
    }
    if (known.incarnation.empty() && !spec.incarnation.empty()) {
      Set(&known.incarnation, spec.incarnation);
      if (row->serves()) SetIncarnation(*row);
    }
    if (known.detail != spec.detail) Set(&known.detail, spec.detail);
    if (known.drain_ms != spec.drain_ms) Set(&known.drain_ms, spec.drain_ms);
    bool changed = false;
    if (known.models != spec.models) changed = Set(&known.models, spec.models);
    if (known.weight != spec.weight) {
      changed = Set(&known.weight, spec.weight);
      if (row->serves() && !fleet_.is_copy_) {
        row->member.worker->weight.store(spec.weight, std::memory_order_relaxed);
      }
    }
    if (known.ready != spec.ready) {
      changed = Set(&known.ready, spec.ready);
      if (row->serves()) row->member.resting = !spec.ready;
    }
    if (known.leaving != spec.leaving) {
      changed = Set(&known.leaving, spec.leaving);
      if (row->serves()) row->member.draining = spec.leaving || row->kept_out;
      if (row->state == State::kPending && spec.leaving) {
        row->state = State::kLeft;
        row->since_ns = now_ns_;
      } else if (row->state == State::kLeft && !spec.leaving && !row->kept_out) {
        Begin(row);
      }
    }
    if (row->state == State::kPending && known.ready && !fleet_.managed_) Serve(row);
    return changed;
  }

  template <typename T>
  bool Set(T* where, const T& value) {
    *where = value;
    changed_ = true;
    return true;
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
  std::map<std::string, std::unordered_map<std::string, const WorkerSpec*>, std::less<>> words_;
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

Status DeclaredFleet::MayAdd(std::span<const WorkerSpec> specs) const {
  const size_t serving = this->serving();
  if (serving + specs.size() > kMaxWorkers) {
    return absl::ResourceExhaustedError(Concat(
        "adding ", specs.size(), " to the ", serving, " workers of the fleet would pass the limit of ",
        kMaxWorkers, "; remove some first, or run a second router"));
  }
  std::set<std::string> keys;
  for (const WorkerSpec& spec : specs) {
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

Status DeclaredFleet::Add(std::string_view source, std::span<const WorkerSpec> specs, int64_t now_ns) {
  ROUTER_RETURN_IF_ERROR(MayAdd(specs));
  Change change(*this, now_ns);
  size_t place = 0;
  for (const WorkerSpec& spec : specs) {
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

bool DeclaredFleet::IsOfOtherStage(const Row& row, std::string_view source, const WorkerSpec& spec) {
  return row.spec.role.stage != spec.role.stage &&
         std::ranges::any_of(row.owners, [source](const std::string& owner) { return owner != source; });
}

Status DeclaredFleet::MayReconcile(std::string_view source, std::span<const WorkerSpec> list) const {
  std::set<std::string> keys;
  size_t fresh = 0;
  for (const WorkerSpec& spec : list) {
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
    std::string_view source, std::vector<WorkerSpec> list, bool complete, std::span<const WorkerUrl> deleted,
    int64_t now_ns) {
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
    std::string_view source, std::vector<WorkerSpec> list, bool complete, int64_t now_ns) const {
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
  const bool complete = source->complete;
  Difference difference;
  {
    Change change(*this, now_ns);
    std::set<std::string> listed;
    size_t number = 0;
    for (const WorkerSpec& spec : source->list) {
      const std::string& key = *listed.insert(WorkerKey(spec.url)).first;
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
    std::set<std::string> absent;
    for (const Row& row : rows_) {
      if (complete && !row.gone && IsOwner(row, name) && !listed.contains(row.key)) absent.insert(row.key);
    }
    std::set<std::string> held;
    if (complete) {
      std::set<std::string> unexplained;
      std::set_difference(
          absent.begin(), absent.end(), deleted.begin(), deleted.end(),
          std::inserter(unexplained, unexplained.end()));
      held = Guarded(name, source, unexplained, now_ns);
    }
    for (Row& row : rows_) {
      if (row.gone || !IsOwner(row, name) || listed.contains(row.key)) continue;
      if (held.contains(row.key)) {
        change.difference.held.push_back(row.spec.url.url);
        if (!std::exchange(row.held, true)) change.Mark();
      } else if (complete || deleted.contains(row.key)) {
        change.LetGo(name, &row);
      }
    }
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

std::set<std::string> DeclaredFleet::Guarded(
    std::string_view name, Source* source, const std::set<std::string>& absent, int64_t now_ns) const {
  size_t total = 0;
  std::set<std::string> suspect;
  for (const Row& row : rows_) {
    if (row.gone || !row.serves() || row.member.draining || row.owners.empty()) continue;
    if (row.owners.front() != name) continue;
    ++total;
    if (row.owners.size() == 1 && absent.contains(row.key)) suspect.insert(row.key);
  }
  const auto many = static_cast<double>(suspect.size()) > guard_.share * static_cast<double>(total);
  // A list that replaces all workers: until one of the new ones has passed its check, none would serve.
  bool replaces = IsWritten(name) && !source->list.empty();
  bool any_pending = managed_ && std::ranges::any_of(source->list, [this](const WorkerSpec& spec) {
                       return spec.ready && !spec.leaving && !positions_.contains(WorkerKey(spec.url));
                     });
  for (const Row& row : rows_) {
    if (!replaces || row.gone || !IsOwner(row, name) || absent.contains(row.key)) continue;
    any_pending |= row.awaits_check();
    replaces = !row.serves() || row.member.draining || row.member.resting;
  }
  replaces &= any_pending;
  const bool exceeds = suspect.size() == total ? !IsWritten(name) || source->list.empty() || replaces
                                               : !IsWritten(name) && many;
  if (!exceeds) suspect.clear();
  std::map<std::string, Hold> holds;
  for (const std::string& key : suspect) {
    const auto known = source->holds.find(key);
    Hold hold = known != source->holds.end() ? known->second : Hold{.since_ns = now_ns};
    ++hold.syncs;
    if (!replaces && hold.syncs >= 2 && now_ns - hold.since_ns >= guard_.hold_ns) continue;
    holds.emplace(key, hold);
  }
  source->holds = std::move(holds);
  std::erase_if(suspect, [source](const std::string& key) { return !source->holds.contains(key); });
  return suspect;
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
  // Those that they replace may go.
  for (auto& [name, source] : sources_) {
    if (urls.empty() || source.holds.empty() || !IsWritten(name) || source.list.empty()) continue;
    const SourceReport before = source.report;
    Apply(name, &source, {}, now_ns);
    source.report.syncs = before.syncs;  // it is no new list
    source.report.last_error = before.last_error;
    source.report.last_list_ns = before.last_list_ns;
  }
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
  Change change(*this, now_ns);
  for (Row& row : rows_) {
    if (row.owners.empty()) change.Drop(&row);
  }
  change.ServePending();
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
