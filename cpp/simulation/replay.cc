#include "simulation/replay.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <deque>
#include <limits>
#include <memory>
#include <optional>
#include <queue>
#include <utility>

#include <absl/container/flat_hash_map.h>

#include "admission/admission_settings.h"
#include "admission/class_pool.h"
#include "admission/program_settings.h"
#include "base/check.h"
#include "base/limits.h"
#include "base/random.h"
#include "base/text.h"
#include "holdout/arm_chooser.h"
#include "peer_sync/peer_sync.h"
#include "policy/policy_registry.h"
#include "routing/prompt_holders.h"
#include "simulation/comparison_policies.h"
#include "simulation/late_events.h"
#include "simulation/replay_admission.h"
#include "simulation/replay_programs.h"
#include "worker/worker_declaration.h"

namespace vllm_router {
namespace {

constexpr double kMaxSeconds = 4e6;      // 46 days, half of what picoseconds can count
constexpr Picos kLastTime = kNever / 2;  // no request waits longer for a response
constexpr uint32_t kArrivalsPerSample = 32;
constexpr uint32_t kTurnsPerQuestion = 1 << 16;  // events between two calls of `go_on`
// As the server does by default.
constexpr Picos kPredictionHalfLife = kPicosPerSecond * 15 / 100;
constexpr int64_t kPredictionRepeatNanos = 60'000'000'000;
constexpr Picos kRetained = kPicosPerSecond * 30;   // frames on the bus, for a router that comes back
constexpr Picos kPollInterval = kPicosPerSecond;    // of loads, by a router that hears no others
constexpr Picos kReportInterval = kPicosPerSecond;  // of the KV caches' use, where there are priority classes
constexpr uint32_t kExpectedOutput = 256;           // tokens
constexpr uint8_t kNotDispatched = 255;
constexpr double kNotANumber = std::numeric_limits<double>::quiet_NaN();

template <typename... Parts>
Status Refuse(const Parts&... parts) {
  return absl::InvalidArgumentError(Concat(parts...));
}

// A block's name is made of its id and the name before it.
uint64_t NameAfter(uint64_t before, uint64_t id) {
  const uint64_t name = Mix64(before * 0x9e3779b97f4a7c15u + Mix64(id + 0x9e3779b97f4a7c15u));
  return name == kNoBlock ? 1 : name;
}

Picos ToPicos(double seconds) { return std::llround(seconds * static_cast<double>(kPicosPerSecond)); }
// What policies see; never 0, which is no time.
int64_t ClockOf(Picos now) { return now / kPicosPerNano + 1; }
double ToSeconds(Picos picos) { return static_cast<double>(picos) / static_cast<double>(kPicosPerSecond); }

Status CheckOffsets(const char* what, std::span<const int64_t> offsets, size_t rows, size_t ids) {
  if (offsets.size() != rows + 1) {
    return Refuse(
        what, "_offsets has ", offsets.size(), " entries; there must be ", rows + 1,
        ": where each request begins, and the end");
  }
  if (offsets.front() != 0 || offsets.back() != static_cast<int64_t>(ids)) {
    return Refuse(
        what, "_offsets goes from ", offsets.front(), " to ", offsets.back(), "; it must go from 0 to ", ids,
        ", the number of ", what, "_ids");
  }
  for (size_t i = 0; i < rows; ++i) {
    if (offsets[i] > offsets[i + 1]) {
      return Refuse(what, "_offsets falls from ", offsets[i], " to ", offsets[i + 1], " at request ", i);
    }
  }
  return absl::OkStatus();
}

Status CheckLength(const char* what, size_t length, size_t rows) {
  if (length == rows) return absl::OkStatus();
  return Refuse(what, " has ", length, " entries, but there are ", rows, " requests");
}

Status CheckTurns(const ReplayTrace& trace) {
  const size_t rows = trace.arrival_s.size();
  ROUTER_RETURN_IF_ERROR(CheckOffsets("after", trace.after_offsets, rows, trace.after_rows.size()));
  ROUTER_RETURN_IF_ERROR(CheckLength("pause_s", trace.pause_s.size(), rows));
  if (trace.poisson_rate > 0 || trace.closed_loop > 0) {
    return Refuse(
        "after_rows is given with ", trace.poisson_rate > 0 ? "poisson_rate" : "closed_loop",
        "; requests that wait for others arrive when these end: leave it out");
  }
  for (size_t row = 0; row < rows; ++row) {
    const double pause = trace.pause_s[row];
    if (!(pause >= 0 && pause * trace.time_scale <= kMaxSeconds)) {
      return Refuse(
          "pause_s of request ", row, " is ", PlainNumber(pause), "; with time_scale ",
          PlainNumber(trace.time_scale), " it must be from 0 to ", PlainNumber(kMaxSeconds), " seconds");
    }
    for (int64_t i = trace.after_offsets[row]; i < trace.after_offsets[row + 1]; ++i) {
      const int64_t before = trace.after_rows[static_cast<size_t>(i)];
      if (before >= 0 && before < static_cast<int64_t>(row)) continue;
      return Refuse("request ", row, " waits for request ", before, "; it must be an earlier one, from 0 on");
    }
  }
  return absl::OkStatus();
}

Status CheckTrace(const ReplayTrace& trace) {
  const size_t rows = trace.arrival_s.size();
  if (rows == 0) return Refuse("the trace is empty: it has 0 requests; there must be at least one");
  ROUTER_RETURN_IF_ERROR(CheckLength("input_tokens", trace.input_tokens.size(), rows));
  ROUTER_RETURN_IF_ERROR(CheckLength("output_tokens", trace.output_tokens.size(), rows));
  if (!trace.session_ids.empty()) {
    ROUTER_RETURN_IF_ERROR(CheckLength("session_ids", trace.session_ids.size(), rows));
  }
  ROUTER_RETURN_IF_ERROR(CheckOffsets("block", trace.block_offsets, rows, trace.block_ids.size()));
  if (!trace.output_block_offsets.empty() || !trace.output_block_ids.empty()) {
    ROUTER_RETURN_IF_ERROR(
        CheckOffsets("output_block", trace.output_block_offsets, rows, trace.output_block_ids.size()));
  }
  if (trace.block_size < 1 || trace.block_size > kMaxBlockSize) {
    return Refuse(
        "block_size is ", trace.block_size, "; a block of the trace has between 1 and ", kMaxBlockSize,
        " tokens");
  }
  if (!(trace.time_scale > 0 && trace.time_scale <= 1e9)) {
    return Refuse("time_scale is ", PlainNumber(trace.time_scale), "; it must be above 0 and at most 1e9");
  }
  if (!(trace.poisson_rate >= 0 && trace.poisson_rate <= 1e9)) {
    return Refuse(
        "poisson_rate is ", PlainNumber(trace.poisson_rate),
        "; it is in requests per second and must be from 0 (the trace's own arrivals) to 1e9");
  }
  if (trace.poisson_rate > 0 && trace.closed_loop > 0) {
    return Refuse(
        "both poisson_rate and closed_loop are given; requests arrive in one way: pass one of them");
  }
  double last = 0;
  for (size_t i = 0; i < rows; ++i) {
    const double at = trace.arrival_s[i];
    if (!(at >= 0 && at * trace.time_scale <= kMaxSeconds)) {
      return Refuse(
          "arrival_s of request ", i, " is ", PlainNumber(at), "; with time_scale ",
          PlainNumber(trace.time_scale), " it must be from 0 to ", PlainNumber(kMaxSeconds), " seconds");
    }
    if (at < last) {
      return Refuse(
          "arrival_s falls from ", PlainNumber(last), " to ", PlainNumber(at), " at request ", i,
          "; requests must be in order of arrival");
    }
    last = at;
    const auto blocks = static_cast<uint64_t>(trace.block_offsets[i + 1] - trace.block_offsets[i]);
    if (blocks > (uint64_t{trace.input_tokens[i]} + trace.block_size - 1) / trace.block_size) {
      return Refuse(
          "request ", i, " has ", blocks, " blocks of ", trace.block_size, " tokens for a prompt of ",
          trace.input_tokens[i], " tokens; that is too many");
    }
    if (trace.input_tokens[i] > (1u << 30) || trace.output_tokens[i] > (1u << 30)) {
      return Refuse(
          "request ", i, " has ", trace.input_tokens[i], " input tokens and ", trace.output_tokens[i],
          " output tokens; neither may be above ", 1u << 30);
    }
  }
  const bool has_turns = !trace.after_rows.empty() || !trace.after_offsets.empty() || !trace.pause_s.empty();
  return has_turns ? CheckTurns(trace) : absl::OkStatus();
}

Status CheckPerWorker(const char* what, const std::vector<double>& values, uint32_t workers) {
  if (values.empty()) return absl::OkStatus();
  if (values.size() != workers) {
    return Refuse(
        what, " has ", values.size(), " entries, but the fleet has ", workers,
        " workers; give one for each, or none");
  }
  for (const double value : values) {
    if (!(value >= 0.01 && value <= 100)) {
      return Refuse(
          what, " holds ", PlainNumber(value), "; each must be from 0.01 to 100 (1 is the usual worker)");
    }
  }
  return absl::OkStatus();
}

Status CheckPeerSync(const ReplayPeerSync& sync, uint32_t routers) {
  if (!(sync.interval_s >= 0.05 && sync.interval_s <= 60)) {
    return Refuse(
        "interval_s is ", PlainNumber(sync.interval_s), "; routers publish every 0.05 to 60 seconds");
  }
  if (sync.stride_tokens < 1 || sync.stride_tokens > (1u << 20)) {
    return Refuse(
        "stride_tokens is ", sync.stride_tokens, "; a stride has between 1 and ", 1u << 20, " tokens");
  }
  if (!(sync.loss >= 0 && sync.loss <= 1)) {
    return Refuse("loss is ", PlainNumber(sync.loss), "; it is a share of the frames, from 0 to 1");
  }
  if (!(sync.decisions_delay_s >= 0 && sync.decisions_delay_s <= 3600)) {
    return Refuse(
        "decisions_delay_s is ", PlainNumber(sync.decisions_delay_s), "; it must be from 0 to 3600 seconds");
  }
  for (const ReplayPeerSync::Cut& cut : sync.cuts) {
    if (!(cut.time_s >= 0 && cut.time_s <= kMaxSeconds && cut.seconds > 0)) {
      return Refuse(
          "a cut begins at time_s ", PlainNumber(cut.time_s), " and lasts ", PlainNumber(cut.seconds),
          " seconds; it must begin from 0 to ", PlainNumber(kMaxSeconds), " and last longer than 0");
    }
    if (cut.router >= static_cast<int64_t>(routers)) {
      return Refuse("a cut names router ", cut.router, ", but there are ", routers, ", numbered from 0");
    }
  }
  return absl::OkStatus();
}

Status CheckStages(const ReplayStages& stages, const ReplayFleet& fleet) {
  if (stages.prefill < 1 || stages.prefill >= fleet.workers) {
    return Refuse(
        "prefill is ", stages.prefill, ", and the fleet has ", fleet.workers,
        " workers; each stage must have at least one of them");
  }
  if (stages.prefill_cache_blocks > 1'000'000'000) {
    return Refuse(
        "prefill_cache_blocks is ", stages.prefill_cache_blocks, "; a worker has at most 1000000000 blocks");
  }
  const std::pair<const char*, double> figures[] = {
      {"kv_bytes_per_token", stages.kv_bytes_per_token}, {"transfer_ms", stages.transfer_ms}};
  for (const auto& [name, value] : figures) {
    if (!(value >= 0 && value <= 1e9))
      return Refuse(name, " is ", PlainNumber(value), "; it must be from 0 to 1e9");
  }
  if (!(stages.link_gb_per_s >= 0.001 && stages.link_gb_per_s <= 1e9)) {
    return Refuse("link_gb_per_s is ", PlainNumber(stages.link_gb_per_s), "; it must be from 0.001 to 1e9");
  }
  if (stages.kv_bytes_per_token / stages.link_gb_per_s > 1e12) {
    return Refuse(
        "kv_bytes_per_token is ", PlainNumber(stages.kv_bytes_per_token), " and link_gb_per_s ",
        PlainNumber(stages.link_gb_per_s), "; a token must take at most 1000 seconds");
  }
  for (const ReplayEvent& event : fleet.events) {
    if (event.kind == ReplayEvent::Kind::kWipe) continue;
    return Refuse("a fleet with stages has no events but wipes: its workers neither come nor go");
  }
  return absl::OkStatus();
}

constexpr double kMostHeldOut = 50;  // percent

Status CheckHoldout(const ReplayRouting& routing, bool is_staged) {
  if (!(routing.holdout_percent >= 0 && routing.holdout_percent <= kMostHeldOut)) {
    return Refuse(
        "holdout_percent is ", PlainNumber(routing.holdout_percent), "; it must be from 0 to ",
        PlainNumber(kMostHeldOut));
  }
  const std::string& name = routing.holdout_policy;
  if (std::ranges::find(kHoldoutBaselines, name) == kHoldoutBaselines.end())
    return Refuse("holdout_policy is ", Quoted(name), "; it must be one of ", Listed(kHoldoutBaselines));
  if (routing.holdout_percent > 0 && is_staged) {
    return Refuse(
        "holdout_percent is ", PlainNumber(routing.holdout_percent),
        ", and the fleet has prefill and decode workers, which no baseline chooses; leave it out");
  }
  return absl::OkStatus();
}

// Null: there are no classes.
StatusOr<std::shared_ptr<const AdmissionSettings>> CheckAdmission(
    const ReplayTrace& trace, const ReplayRouting& routing, const ReplayFleet& fleet) {
  const size_t rows = trace.arrival_s.size();
  if (!trace.priority_classes.empty()) {
    ROUTER_RETURN_IF_ERROR(CheckLength("priority_classes", trace.priority_classes.size(), rows));
  }
  if (!trace.tenants.empty()) ROUTER_RETURN_IF_ERROR(CheckLength("tenants", trace.tenants.size(), rows));
  for (size_t row = 0; row < trace.priority_classes.size(); ++row) {
    const int given = trace.priority_classes[row];
    if (given < kPriorityClasses) continue;
    return Refuse(
        "priority_classes of request ", row, " is ", given,
        "; it must be 0 (interactive), 1 (default) or 2 (batch)");
  }
  for (size_t row = 0; row < trace.tenants.size() && !routing.tenant_names.empty(); ++row) {
    if (trace.tenants[row] < routing.tenant_names.size()) continue;
    return Refuse(
        "tenants of request ", row, " is ", trace.tenants[row], ", but tenant_names has ",
        routing.tenant_names.size(), " names; a tenant's number is the place of its name, from 0");
  }
  if (!routing.admission) return nullptr;
  if (fleet.stages) {
    return Refuse(
        "admission is given for a fleet with stages; priority classes are for fleets of one stage: leave one "
        "out");
  }
  if (!routing.streams) {
    return Refuse(
        "admission is given with streams false, where a router sees no first token here; leave one of them "
        "out");
  }
  StatusOr<AdmissionSettings> settings = AdmissionSettings::Parse(*routing.admission);
  if (!settings.ok()) return Refuse("admission, ", std::string(settings.status().message()));
  return std::make_shared<const AdmissionSettings>(*std::move(settings));
}

// nullopt: programs are not told apart.
StatusOr<std::optional<ProgramSettings>> CheckPrograms(
    const ReplayRouting& routing, const ReplayFleet& fleet) {
  if (!routing.programs) return std::nullopt;
  if (fleet.stages || routing.admission) {
    return Refuse(
        "programs is given with ", fleet.stages ? "a fleet with stages" : "admission",
        ", which a replay does not play together; leave one out");
  }
  StatusOr<ProgramSettings> settings = ProgramSettings::Parse(*routing.programs);
  if (!settings.ok()) return Refuse("programs, ", std::string(settings.status().message()));
  if (!settings->is_on()) return std::nullopt;
  return *settings;
}

constexpr const char* kKindNames[] = {"fail", "join", "drain", "wipe", "speed"};

struct FleetState {
  std::vector<ReplayEvent> events;  // in order of time
  std::vector<bool> present;        // at the start
};

StatusOr<FleetState> CheckFleet(const ReplayFleet& fleet) {
  if (fleet.workers < 1 || fleet.workers > kMaxWorkers) {
    return Refuse("workers is ", fleet.workers, "; a fleet has between 1 and ", kMaxWorkers, " workers");
  }
  ROUTER_RETURN_IF_ERROR(CheckEngineCoefficients(fleet.engine.coefficients));
  if (fleet.engine.cache_blocks > 1'000'000'000) {
    return Refuse("cache_blocks is ", fleet.engine.cache_blocks, "; a worker has at most 1000000000 blocks");
  }
  if (fleet.engine.max_running < 1) return Refuse("max_running is 0; a worker runs at least 1 request");
  if (fleet.engine.step_tokens < 1) return Refuse("step_tokens is 0; a step computes at least 1 token");
  ROUTER_RETURN_IF_ERROR(CheckPerWorker("speeds", fleet.speeds, fleet.workers));
  ROUTER_RETURN_IF_ERROR(CheckPerWorker("weights", fleet.weights, fleet.workers));
  if (fleet.stages) ROUTER_RETURN_IF_ERROR(CheckStages(*fleet.stages, fleet));

  FleetState state{.events = fleet.events, .present = std::vector<bool>(fleet.workers, true)};
  std::stable_sort(state.events.begin(), state.events.end(), [](const auto& a, const auto& b) {
    return a.time_s < b.time_s;
  });
  std::vector<bool> named(fleet.workers, false);
  for (const ReplayEvent& event : state.events) {
    if (!(event.time_s >= 0 && event.time_s <= kMaxSeconds)) {
      return Refuse(
          "an event has time_s ", PlainNumber(event.time_s), "; it must be from 0 to ",
          PlainNumber(kMaxSeconds));
    }
    if (event.worker >= fleet.workers) {
      return Refuse(
          "an event names worker ", event.worker, ", but the fleet has ", fleet.workers,
          " workers, numbered from 0");
    }
    if (event.kind == ReplayEvent::Kind::kSpeed && !(event.speed >= 0.01 && event.speed <= 100)) {
      return Refuse(
          "the event speed of worker ", event.worker, " has speed ", PlainNumber(event.speed),
          "; it must be from 0.01 to 100 (1 is the usual worker)");
    }
    if (!named[event.worker]) state.present[event.worker] = event.kind != ReplayEvent::Kind::kJoin;
    named[event.worker] = true;
  }
  std::vector<bool> there = state.present;
  for (const ReplayEvent& event : state.events) {
    const bool joins = event.kind == ReplayEvent::Kind::kJoin;
    if (there[event.worker] == joins) {
      return Refuse(
          "the event ", kKindNames[static_cast<size_t>(event.kind)], " of worker ", event.worker, " at ",
          PlainNumber(event.time_s), " s cannot be: the worker is ",
          joins ? "there already" : "not there then");
    }
    if (joins || event.kind == ReplayEvent::Kind::kFail) there[event.worker] = joins;
  }
  return state;
}

class Run {
 public:
  Run(const ReplayTrace& trace, const ReplayRouting& routing, const ReplayFleet& fleet, FleetState state,
      std::shared_ptr<const AdmissionSettings> admission, const std::optional<ProgramSettings>& programs)
      : trace_(trace),
        routing_(routing),
        fleet_(fleet),
        state_(std::move(state)),
        admission_(std::move(admission)),
        programs_(programs),
        random_(routing.seed),
        rows_(trace.arrival_s.size()) {}

  Status Prepare();
  Status Go(const std::function<bool()>& go_on);
  ReplayResult Result();

 private:
  // The caches as one replica knows them.
  struct Caches final : KnownCaches {
    const LateEvents* events = nullptr;
    std::vector<uint32_t> engine_of;                            // by WorkerId
    std::vector<absl::flat_hash_map<uint64_t, uint32_t>> sent;  // by engine: how often, without a token yet

    uint32_t Held(const Worker& worker, std::span<const BlockHash> blocks) const override {
      const uint32_t engine = engine_of[static_cast<size_t>(worker.id)];
      uint32_t held = 0;
      while (held < blocks.size() &&
             (events->Has(engine, blocks[held]) || sent[engine].contains(blocks[held]))) {
        ++held;
      }
      return held;
    }
    void Send(uint32_t engine, std::span<const uint64_t> blocks) {
      for (const uint64_t block : blocks) ++sent[engine][block];
    }
    void Computed(uint32_t engine, std::span<const uint64_t> blocks) {
      for (const uint64_t block : blocks) {
        const auto found = sent[engine].find(block);
        if (found != sent[engine].end() && --found->second == 0) sent[engine].erase(found);
      }
    }
  };
  struct Replica {
    size_t number = 0;
    std::unique_ptr<Caches> caches;
    KvIndex* hearing = nullptr;  // the product's own index, if it hears events
    std::shared_ptr<Router> router;
    std::unique_ptr<ReplayAdmission> admission;  // null: nothing waits here
    std::unique_ptr<ReplayPrograms> programs;    // null: none are told apart
    Picos reported = -kReportInterval;           // the last report of the KV caches
    std::shared_ptr<Policy> baseline;            // of sessions that are held out; null: none are
    std::optional<Snapshot<FleetView>::Cached> fleet;
    // Of routers that tell each other. It sends at every other tick, and reads at each.
    std::unique_ptr<PeerSync> sync;
    uint64_t ticks = 0;
    uint64_t read = 0;  // frames of the bus
    Picos polled = -kPollInterval;
  };
  struct Published {
    Picos at;
    size_t sender;
    std::string frame;
  };
  struct Flight {
    Ticket ticket;
    uint32_t row = 0;
    bool first_token = false;
  };
  struct Engine {
    std::unique_ptr<BatchEngine> batch;
    std::vector<Flight> flights;  // by RequestId
    Picos scheduled = kNever;
    size_t open = 0;
    ReplayWorker summary;
  };
  // What a request that two workers serve is between their engines.
  struct Pair {
    Ticket decode;  // until the decode worker gets it
    BatchEngine::RequestId prefill_id = 0;
    BatchEngine::RequestId decode_id = 0;
  };
  struct PairEvent {
    Picos time;
    uint64_t number;  // in the order in which they were planned
    uint32_t row;
    bool arrives;                                   // at the decode worker; else prefill has just ended
    bool operator<(const PairEvent& other) const {  // the earliest comes first
      return time != other.time ? time > other.time : number > other.number;
    }
  };
  struct Due {
    Picos time;
    uint32_t engine;
    bool operator<(const Due& other) const {  // the earliest comes first; of equals the first worker
      return time != other.time ? time > other.time : engine > other.engine;
    }
  };

  static std::string UrlOf(uint32_t worker) { return Concat("http://worker-", worker, ":8000"); }
  StatusOr<WorkerDeclaration> Declared(uint32_t worker) const {
    StatusOr<WorkerDeclaration> declared = DeclareWorker(UrlOf(worker));
    if (declared.ok() && !fleet_.weights.empty()) declared->weight = fleet_.weights[worker];
    return declared;
  }
  std::span<const uint64_t> NamesOf(uint32_t row) const {
    return std::span(names_).subspan(name_offsets_[row], name_offsets_[row + 1] - name_offsets_[row]);
  }
  size_t PromptBlocksOf(uint32_t row) const {
    return static_cast<size_t>(trace_.block_offsets[row + 1] - trace_.block_offsets[row]);
  }
  void NameBlocks();
  void NameParents();
  void PlanArrivals();
  void PlanTurns();
  Status MakeRouters();
  void ReadFleet(Replica& replica);
  void StartEngine(uint32_t number);
  void Retire(Engine& engine);

  void Arrive(uint32_t row);
  void Admit(uint32_t row);
  ReplayAdmission::Claim ClaimOf(uint32_t row) const;
  PromptHolders HoldersFor(Replica& replica, uint32_t row);
  void Pump(Replica& replica);
  void PumpTouched();
  void Touch(uint32_t row);
  void EndWait(const ReplayAdmission::Ended& ended);
  void Told(uint32_t row);
  void Leave(uint32_t row, std::optional<uint64_t> actual);
  void TickAdmission(Replica& replica);
  void BeginTurn(Replica& replica, uint32_t row);
  void EndTurn(uint32_t row, const std::optional<ProgramTable::Use>& use);
  void GoOn(Replica& replica);
  void ReportCaches(Replica& replica);
  void Dispatch(uint32_t row);
  void Refused(Replica& replica, uint32_t row);
  void DispatchPair(Replica& replica, uint32_t row);
  BatchEngine::RequestId Send(
      uint32_t number, uint32_t row, Ticket ticket, const BatchEngine::Request& request);
  BatchEngine::Request RequestOf(uint32_t row) const;
  void Predict(uint32_t row, const Decision& decision);
  uint32_t EngineOf(const Replica& replica, const Ticket& ticket) const {
    return replica.caches->engine_of[static_cast<size_t>(ticket.worker().id)];
  }
  bool IsPrefill(uint32_t number) const { return fleet_.stages && number < fleet_.stages->prefill; }
  void Plan(Picos time, uint32_t row, bool arrives) { pair_events_.push({time, planned_++, row, arrives}); }
  void Proceed(const PairEvent& event);
  void BeginTransfer(uint32_t number, const BatchEngine::Event& event);
  void EndPrefill(Flight& flight, const BatchEngine::Event& event);
  void BeginResponse(uint32_t number, Flight& flight, const BatchEngine::Event& event);
  void MakeKey(const Replica& replica, uint32_t row);
  uint64_t SessionOf(uint32_t row) const {
    return trace_.session_ids.empty() ? row : trace_.session_ids[row];
  }
  bool IsHeldOut(uint32_t row) const {
    return Mix64(Mix64(routing_.seed + 1) + SessionOf(row)) % kHoldoutParts <
           HoldoutParts(routing_.holdout_percent);
  }
  void Hear();
  void Sync(Replica& replica);
  void PublishFrames(Replica& replica);
  void ReadFrames(Replica& replica);
  void PollLoads(Replica& replica);
  bool IsCut(const Replica& replica) const;
  bool Waits(size_t row) const { return trace_.after_offsets[row] < trace_.after_offsets[row + 1]; }
  Picos NextSync() const { return sync_due_.empty() ? kNever : sync_due_.top().time; }
  void Step(uint32_t number);
  void Happen(const ReplayEvent& event);
  void Fail(uint32_t number);
  template <typename Change>
  void ChangeFleet(Change change);
  void Reschedule(uint32_t number);
  void End(uint32_t row, ReplayStatus status);

  const ReplayTrace& trace_;
  const ReplayRouting& routing_;
  const ReplayFleet& fleet_;
  const FleetState state_;
  const std::shared_ptr<const AdmissionSettings> admission_;  // null: there are no classes
  const std::optional<ProgramSettings> programs_;
  Random random_;
  const size_t rows_;

  std::vector<uint64_t> names_;       // of each request's blocks, prompt and response
  std::vector<size_t> name_offsets_;  // n + 1
  std::vector<Picos> arrivals_;
  // Of requests that wait for others: how many have not ended, and who waits for whom.
  std::vector<uint32_t> awaited_;
  std::vector<uint32_t> followers_;
  std::vector<size_t> follower_offsets_;  // n + 1; empty: no request waits for another
  std::priority_queue<Due> turns_due_;    // by row
  std::vector<uint32_t> replica_of_;      // by row
  std::vector<Replica> replicas_;
  std::vector<Engine> engines_;
  std::priority_queue<Due> due_;
  std::priority_queue<Due> sync_due_;       // ticks, by replica
  std::priority_queue<Due> admission_due_;  // ticks, by replica
  std::vector<uint32_t> touched_;           // replicas of which a request has its first token or has ended
  bool stepped_back_ = false;               // one was dispatched, and no worker had a place for it
  std::priority_queue<PairEvent> pair_events_;
  uint64_t planned_ = 0;
  absl::flat_hash_map<uint32_t, Pair> pairs_;  // by row, from the choice to the end of the transfer
  std::vector<Picos> link_free_;               // by engine: egress of prefill, ingress of decode
  std::deque<Published> bus_;
  std::deque<Published> delayed_;  // decisions that come later
  uint64_t bus_begin_ = 0;         // the number of the first of the bus
  std::vector<std::string> frames_;
  std::optional<LateEvents> known_;
  std::vector<BlockPool::Change> changes_;
  std::vector<BatchEngine::Event> events_;
  RoutingKey key_;

  Picos now_ = 0;
  Picos rotated_ = 0;
  size_t arrived_ = 0;
  size_t ended_ = 0;
  size_t happened_ = 0;
  Picos last_end_ = 0;
  double spread_sum_ = 0;
  uint64_t spread_samples_ = 0;
  ReplayResult result_;
};

// A response whose blocks the trace does not name gets names of its own: it fills the caches like any
// other.
void Run::NameBlocks() {
  const bool named_answers = !trace_.output_block_offsets.empty();
  name_offsets_.reserve(rows_ + 1);
  name_offsets_.push_back(0);
  names_.reserve(trace_.block_ids.size() + trace_.output_block_ids.size());
  for (size_t row = 0; row < rows_; ++row) {
    uint64_t name = 0;
    const auto append = [&](std::span<const uint64_t> ids, std::span<const int64_t> offsets) {
      for (int64_t i = offsets[row]; i < offsets[row + 1]; ++i) {
        name = NameAfter(name, ids[static_cast<size_t>(i)]);
        names_.push_back(name);
      }
    };
    append(trace_.block_ids, trace_.block_offsets);
    if (named_answers) {
      append(trace_.output_block_ids, trace_.output_block_offsets);
    } else {
      const uint64_t tokens = uint64_t{trace_.input_tokens[row]} + trace_.output_tokens[row];
      const uint64_t blocks = (tokens + trace_.block_size - 1) / trace_.block_size;
      uint64_t own = Mix64(~uint64_t{row});
      for (uint64_t i = names_.size() - name_offsets_.back(); i < blocks; ++i) {
        name = NameAfter(name, own++);
        names_.push_back(name);
      }
    }
    name_offsets_.push_back(names_.size());
  }
}

void Run::NameParents() {
  for (uint32_t row = 0; row < rows_; ++row) {
    uint64_t parent = kNoBlock;
    for (const uint64_t name : NamesOf(row)) {
      known_->SetParent(name, parent);
      parent = name;
    }
  }
}

void Run::PlanArrivals() {
  arrivals_.resize(rows_);
  double at = 0;
  for (size_t row = 0; row < rows_; ++row) {
    if (trace_.poisson_rate > 0) {
      const double uniform = (static_cast<double>(random_.Next() >> 11) + 0.5) * 0x1p-53;
      at -= std::log(uniform) / trace_.poisson_rate;
    } else {
      at = trace_.arrival_s[row] * trace_.time_scale;
    }
    arrivals_[row] = trace_.closed_loop > 0 ? 0 : ToPicos(std::min(at, kMaxSeconds));
  }
  if (!trace_.after_rows.empty()) PlanTurns();
  replica_of_.assign(rows_, 0);
  if (routing_.routers == 1) return;
  for (size_t row = 0; row < rows_; ++row) {
    const uint64_t session = SessionOf(static_cast<uint32_t>(row));
    replica_of_[row] = static_cast<uint32_t>(
        routing_.by_session ? Mix64(session + 1) % routing_.routers : random_.Below(routing_.routers));
  }
}

void Run::PlanTurns() {
  awaited_.assign(rows_, 0);
  follower_offsets_.assign(rows_ + 1, 0);
  for (const int64_t before : trace_.after_rows) ++follower_offsets_[static_cast<size_t>(before) + 1];
  for (size_t row = 0; row < rows_; ++row) follower_offsets_[row + 1] += follower_offsets_[row];
  followers_.resize(trace_.after_rows.size());
  std::vector<size_t> next(follower_offsets_.begin(), follower_offsets_.end() - 1);
  for (uint32_t row = 0; row < rows_; ++row) {
    for (int64_t i = trace_.after_offsets[row]; i < trace_.after_offsets[row + 1]; ++i) {
      followers_[next[static_cast<size_t>(trace_.after_rows[static_cast<size_t>(i)])]++] = row;
      ++awaited_[row];
    }
  }
}

Status Run::MakeRouters() {
  if (routing_.events_delay_s >= 0) known_.emplace(ToPicos(routing_.events_delay_s), fleet_.workers);
  RouterOptions options = routing_.router;
  options.policy.block_size = trace_.block_size;
  options.data_parallel_size = 1;
  options.worker_urls.clear();
  options.disaggregated = fleet_.stages.has_value();
  ROUTER_RETURN_IF_ERROR(CheckHoldout(routing_, fleet_.stages.has_value()));
  if (fleet_.stages && routing_.peer_sync) {
    return Refuse("peer_sync is given for a fleet with stages, whose routers tell each other nothing here");
  }
  if (fleet_.stages && IsComparisonPolicy(options.policy.policy)) {
    return Refuse(
        "the policy is ", options.policy.policy, "; it chooses no pairs, so the fleet has no stages");
  }
  if (!fleet_.stages && options.bypass.uncached_tokens != 0) {
    return Refuse(
        "pd_bypass_uncached_tokens is ", options.bypass.uncached_tokens,
        ", but the fleet has no prefill stage that could be bypassed");
  }
  if (routing_.peer_sync) options.policy.peer_sync_stride_tokens = routing_.peer_sync->stride_tokens;
  for (uint32_t i = 0; i < routing_.routers; ++i) {
    options.policy.seed = routing_.router.policy.seed + i;
    Replica& replica = replicas_.emplace_back();
    replica.number = i;
    replica.caches = std::make_unique<Caches>();
    replica.caches->events = known_ ? &*known_ : nullptr;
    replica.caches->sent.resize(fleet_.workers);
    StatusOr<std::shared_ptr<Router>> router =
        IsComparisonPolicy(options.policy.policy)
            ? Router::CreateWith(
                  options, MakeComparisonPolicy(options.policy, known_ ? replica.caches.get() : nullptr))
            : Router::Create(options);
    ROUTER_RETURN_IF_ERROR(router.status());
    replica.router = *std::move(router);
    if (admission_ != nullptr) {
      replica.admission = std::make_unique<ReplayAdmission>(admission_, options.max_worker_requests);
      // Routers that started at different times are out of step.
      const Picos tick = ReplayAdmission::kTickNs * kPicosPerNano;
      admission_due_.push({tick / routing_.routers * i, i});
    }
    if (programs_) {
      replica.programs = std::make_unique<ReplayPrograms>(
          *programs_, uint64_t{fleet_.engine.cache_blocks} * trace_.block_size);
      admission_due_.push({ReplayPrograms::kTickNs * kPicosPerNano / routing_.routers * i, i});
    }
    if (routing_.holdout_percent > 0) {
      PolicyOptions baseline = options.policy;
      baseline.policy = routing_.holdout_policy;
      StatusOr<PolicyParts> made = MakePolicy(baseline);
      ROUTER_RETURN_IF_ERROR(made.status());
      replica.baseline = std::move(made->policy);
    }
    replica.hearing = known_ ? replica.router->pool().index() : nullptr;
    if (known_ && (replica.hearing != nullptr || !IsComparisonPolicy(options.policy.policy))) {
      if (replica.hearing == nullptr) {
        return Refuse(
            "events_delay_s is ", PlainNumber(routing_.events_delay_s), ", but the policy ",
            options.policy.policy, " matches no blocks and hears no KV events; leave it out");
      }
      known_->AddRouter(&replica.hearing->reported());
    }
    for (uint32_t worker = 0; worker < fleet_.workers; ++worker) {
      if (!state_.present[worker]) continue;
      StatusOr<WorkerDeclaration> declared = Declared(worker);
      ROUTER_RETURN_IF_ERROR(declared.status());
      if (fleet_.stages) declared->role.stage = IsPrefill(worker) ? Stage::kPrefill : Stage::kDecode;
      ROUTER_RETURN_IF_ERROR(replica.router->AddWorker(*declared));
    }
    replica.fleet.emplace(&replica.router->fleet_snapshot());
    if (routing_.peer_sync) {
      KvIndex* const index = replica.router->pool().index();
      const PeerSyncOptions sync{
          .router = i + 1,
          .fingerprint = index != nullptr ? PeerSync::FingerprintOf(*index) : 0,
          .interval_ms = static_cast<uint32_t>(std::lround(routing_.peer_sync->interval_s * 1e3))};
      replica.sync = std::make_unique<PeerSync>(sync, index);
      // Routers that started at different times are out of step.
      const Picos interval = ToPicos(routing_.peer_sync->interval_s);
      sync_due_.push({interval / routing_.routers * i, i});
    }
    ReadFleet(replica);
  }
  return absl::OkStatus();
}

void Run::ReadFleet(Replica& replica) {
  const FleetView& fleet = *replica.fleet->Get();
  for (const FleetView::Member& member : fleet.members()) {
    const auto id = static_cast<size_t>(member.worker->id);
    std::vector<uint32_t>& engine_of = replica.caches->engine_of;
    if (id >= engine_of.size()) engine_of.resize(id + 1);
    const std::string_view host = member.worker->url.host;
    engine_of[id] = static_cast<uint32_t>(*ParseDecimal(host.substr(host.find('-') + 1)));
    if (replica.hearing != nullptr) known_->SetWorker(replica.number, engine_of[id], member.worker->id);
  }
  if (replica.sync != nullptr) replica.sync->SetFleet(fleet);
}

Status Run::Prepare() {
  NameBlocks();
  PlanArrivals();
  ROUTER_RETURN_IF_ERROR(MakeRouters());
  if (replicas_.front().hearing != nullptr) NameParents();
  engines_.resize(fleet_.workers);
  for (uint32_t number = 0; number < fleet_.workers; ++number) StartEngine(number);
  link_free_.assign(fleet_.workers, 0);
  result_.worker.assign(rows_, -1);
  result_.prefill_worker.assign(rows_, -1);
  result_.fetched_tokens.assign(rows_, 0);
  result_.arrival_s.assign(rows_, kNotANumber);
  result_.ttft_s.assign(rows_, kNotANumber);
  result_.e2e_s.assign(rows_, kNotANumber);
  result_.hit_tokens.assign(rows_, 0);
  result_.predicted_tokens.assign(rows_, 0);
  result_.status.assign(rows_, static_cast<uint8_t>(ReplayStatus::kRefused));
  if (routing_.holdout_percent > 0) result_.held_out.assign(rows_, 0);
  if (admission_ != nullptr || programs_) {
    result_.wait_s.assign(rows_, 0);
    result_.dispatch.assign(rows_, kNotDispatched);
  }
  return absl::OkStatus();
}

void Run::StartEngine(uint32_t number) {
  BatchEngineOptions options = fleet_.engine;
  options.block_tokens = trace_.block_size;
  if (IsPrefill(number)) options.cache_blocks = fleet_.stages->prefill_cache_blocks;
  if (!fleet_.speeds.empty()) options.speed = fleet_.speeds[number];
  Engine& engine = engines_[number];
  engine.batch = std::make_unique<BatchEngine>(options);
  if (known_) engine.batch->LogChanges(&changes_);
  engine.flights.clear();
  engine.open = 0;
  Reschedule(number);
}

Status Run::Go(const std::function<bool()>& go_on) {
  uint32_t turns = 0;
  const size_t limit = trace_.closed_loop > 0 ? trace_.closed_loop : rows_;
  while (ended_ < rows_) {
    if (++turns == kTurnsPerQuestion) {
      turns = 0;
      if (go_on && !go_on()) return absl::CancelledError("the replay was stopped");
    }
    while (!due_.empty() && due_.top().time != engines_[due_.top().engine].scheduled) due_.pop();
    const Picos step = due_.empty() ? kNever : due_.top().time;
    const Picos event = happened_ < state_.events.size() ? ToPicos(state_.events[happened_].time_s) : kNever;
    while (arrived_ < rows_ && !awaited_.empty() && Waits(arrived_)) ++arrived_;
    const bool may_arrive = arrived_ < rows_ && (trace_.closed_loop == 0 || arrived_ - ended_ < limit);
    const Picos arrival = may_arrive ? std::max(arrivals_[arrived_], now_) : kNever;
    const Picos turn = turns_due_.empty() ? kNever : turns_due_.top().time;
    const Picos sync = NextSync();
    const Picos pair = pair_events_.empty() ? kNever : pair_events_.top().time;
    const Picos tick = admission_due_.empty() ? kNever : admission_due_.top().time;
    now_ = std::min({step, event, arrival, turn, sync, pair, tick});
    if (now_ > kLastTime) {
      return Refuse(
          "requests are still waiting after ", PlainNumber(ToSeconds(kLastTime)),
          " seconds of simulated time: the fleet is far too slow for them");
    }
    if (step == now_) {
      Step(due_.top().engine);
    } else if (pair == now_) {
      const PairEvent next = pair_events_.top();
      pair_events_.pop();
      Proceed(next);
    } else if (event == now_) {
      Happen(state_.events[happened_++]);
    } else if (sync == now_) {
      Sync(replicas_[sync_due_.top().engine]);
    } else if (tick == now_) {
      TickAdmission(replicas_[admission_due_.top().engine]);
    } else if (turn == now_) {
      const uint32_t row = turns_due_.top().engine;
      turns_due_.pop();
      Arrive(row);
    } else {
      Arrive(static_cast<uint32_t>(arrived_++));
    }
  }
  return absl::OkStatus();
}

void Run::Reschedule(uint32_t number) {
  Engine& engine = engines_[number];
  if (!changes_.empty()) known_->Tell(number, now_, &changes_);
  const Picos next = engine.batch->NextEvent();
  if (next == engine.scheduled) return;
  engine.scheduled = next;
  if (next != kNever) due_.push({next, number});
}

void Run::Arrive(uint32_t row) {
  result_.arrival_s[row] = ToSeconds(now_);
  arrivals_[row] = now_;
  if (row % kArrivalsPerSample == 0) {
    double sum = 0;
    double squares = 0;
    for (const Engine& engine : engines_) {
      const auto open = static_cast<double>(engine.open);
      sum += open;
      squares += open * open;
    }
    const double mean = sum / static_cast<double>(engines_.size());
    const double variance = squares / static_cast<double>(engines_.size()) - mean * mean;
    if (mean > 0) spread_sum_ += std::sqrt(std::max(0.0, variance)) / mean;
    if (mean > 0) ++spread_samples_;
  }
  if (admission_ != nullptr) return Admit(row);
  if (programs_) return BeginTurn(replicas_[replica_of_[row]], row);
  Dispatch(row);
}

// ---- programs

void Run::BeginTurn(Replica& replica, uint32_t row) {
  const bool goes = replica.programs->Begin(
      row, SessionOf(row), std::max(trace_.input_tokens[row], 1u), kExpectedOutput, *replica.fleet->Get(),
      ClockOf(now_));
  result_.dispatch[row] = static_cast<uint8_t>(goes ? DispatchKind::kDirect : DispatchKind::kQueued);
  if (goes) Dispatch(row);
  GoOn(replica);
}

void Run::GoOn(Replica& replica) {
  if (replica.programs == nullptr) return;
  for (std::vector<uint32_t> rows = replica.programs->TakeResumed(); !rows.empty();
       rows = replica.programs->TakeResumed()) {
    for (const uint32_t row : rows) {
      result_.wait_s[row] = ToSeconds(now_ - arrivals_[row]);
      Dispatch(row);
    }
  }
}

// Others go on once all that happens now has happened.
void Run::EndTurn(uint32_t row, const std::optional<ProgramTable::Use>& use) {
  Replica& replica = replicas_[replica_of_[row]];
  if (replica.programs == nullptr) return;
  replica.programs->End(row, use, *replica.fleet->Get(), ClockOf(now_));
  Touch(row);
}

// ---- priority classes

ReplayAdmission::Claim Run::ClaimOf(uint32_t row) const {
  ReplayAdmission::Claim claim{
      .prompt_tokens = std::max(trace_.input_tokens[row], 1u), .output_tokens = kExpectedOutput};
  if (!trace_.priority_classes.empty())
    claim.of_class = static_cast<PriorityClass>(trace_.priority_classes[row]);
  if (!trace_.tenants.empty()) claim.tenant = trace_.tenants[row];
  claim.weight = admission_->WeightOf(
      routing_.tenant_names.empty() || trace_.tenants.empty() ? kUnnamedTenants
                                                              : routing_.tenant_names[claim.tenant]);
  return claim;
}

PromptHolders Run::HoldersFor(Replica& replica, uint32_t row) {
  if (!routing_.admission_search) return {};
  MakeKey(replica, row);
  return FindHolders(*replica.router, &key_, *replica.fleet->Get());
}

void Run::Admit(uint32_t row) {
  Replica& replica = replicas_[replica_of_[row]];
  ReplayAdmission& admission = *replica.admission;
  if (admission.TryPass(row, ClaimOf(row), *replica.fleet->Get(), ClockOf(now_))) {
    Told(row);
  } else {
    if (known_) Hear();
    const PromptHolders held = HoldersFor(replica, row);
    if (!admission.Enqueue(row, held, ClockOf(now_))) End(row, ReplayStatus::kQueueFull);
  }
  Pump(replica);
}

// Until nothing more has room: who is dispatched has its worker before the next are.
void Run::Pump(Replica& replica) {
  for (;;) {
    replica.admission->Pump(*replica.fleet->Get(), ClockOf(now_));
    const std::vector<ReplayAdmission::Ended> ended = replica.admission->TakeEnded();
    if (ended.empty()) return;
    for (const ReplayAdmission::Ended& one : ended) EndWait(one);
    // Its place would be the one that it just did not get.
    if (std::exchange(stepped_back_, false)) return;
  }
}

void Run::Touch(uint32_t row) {
  const uint32_t replica = replica_of_[row];
  if (std::ranges::find(touched_, replica) == touched_.end()) touched_.push_back(replica);
}

void Run::PumpTouched() {
  const std::vector<uint32_t> touched = std::exchange(touched_, {});
  for (const uint32_t replica : touched) {
    if (replicas_[replica].admission != nullptr) Pump(replicas_[replica]);
    GoOn(replicas_[replica]);
  }
}

void Run::EndWait(const ReplayAdmission::Ended& ended) {
  result_.wait_s[ended.row] = ToSeconds(now_ - arrivals_[ended.row]);
  if (ended.end == WaitEnd::kDispatched) return Told(ended.row);
  End(ended.row, ended.end == WaitEnd::kTimeout     ? ReplayStatus::kTimedOut
                 : ended.end == WaitEnd::kDisplaced ? ReplayStatus::kDisplaced
                                                    : ReplayStatus::kQueueFull);
}

void Run::Told(uint32_t row) {
  result_.dispatch[row] = static_cast<uint8_t>(replicas_[replica_of_[row]].admission->KindOf(row));
  Dispatch(row);
}

// It is no request of its router any more.
void Run::Leave(uint32_t row, std::optional<uint64_t> actual) {
  Replica& replica = replicas_[replica_of_[row]];
  if (replica.admission == nullptr) return;
  replica.admission->End(row, actual);
  Touch(row);
}

void Run::TickAdmission(Replica& replica) {
  admission_due_.pop();
  admission_due_.push(
      {now_ + ReplayAdmission::kTickNs * kPicosPerNano, static_cast<uint32_t>(replica.number)});
  if (replica.programs != nullptr) {
    replica.programs->Tick(*replica.fleet->Get(), ClockOf(now_));
    return GoOn(replica);
  }
  if (now_ - replica.reported >= kReportInterval) ReportCaches(replica);
  if (replica.admission->waiting() != 0 && known_) Hear();
  replica.admission->Tick([&](uint32_t row) { return HoldersFor(replica, row); }, ClockOf(now_));
  Pump(replica);
}

// As the server's load poller does, of engines that answer at once. Routers that tell each other know of the others' requests.
void Run::ReportCaches(Replica& replica) {
  replica.reported = now_;
  for (const FleetView::Member& member : replica.fleet->Get()->members()) {
    const Engine& engine = engines_[replica.caches->engine_of[static_cast<size_t>(member.worker->id)]];
    const BlockPool& pool = engine.batch->pool();
    if (pool.capacity() > 0) {
      const double use = static_cast<double>(pool.held()) / static_cast<double>(pool.capacity());
      member.worker->kv_use.store(static_cast<float>(use), std::memory_order_relaxed);
    }
    if (routing_.routers == 1) continue;
    WorkerLoad& load = member.worker->load;
    const BatchEngine::Load all = engine.batch->load();
    const int64_t others =
        std::max<int64_t>(0, static_cast<int64_t>(all.running + all.waiting) - load.open_requests());
    const int64_t queued =
        std::clamp<int64_t>(static_cast<int64_t>(all.waiting) - load.own_waiting(), 0, others);
    member.worker->others_queued.store(static_cast<uint32_t>(queued), std::memory_order_relaxed);
    if (replica.sync == nullptr) load.SetPolled(others, queued);
  }
}

// The key that routing/ would make of a request's body, made from the trace's columns.
void Run::MakeKey(const Replica& replica, uint32_t row) {
  const KeyParts needs = replica.router->needs();
  const size_t blocks = PromptBlocksOf(row);
  const std::span<const uint64_t> prompt = NamesOf(row).first(blocks);
  key_.prompt_tokens = std::max(trace_.input_tokens[row], 1u);
  key_.expected_output = kExpectedOutput;
  key_.now_ns = ClockOf(now_);
  if (fleet_.stages) key_.prompt_bytes = uint64_t{key_.prompt_tokens} * sizeof(uint32_t);
  if (Has(needs, KeyParts::kBlocks)) {
    key_.has_blocks = true;
    key_.blocks.assign(prompt.begin(), prompt.end());
    key_.blocks_are_tokens = key_.blocks_are_reported = replica.hearing != nullptr;
    key_.usable_blocks = std::min<uint64_t>(
        blocks, (uint64_t{key_.prompt_tokens} - 1 + trace_.block_size - 1) / trace_.block_size);
  }
  if (Has(needs, KeyParts::kSession | KeyParts::kBodyDigest)) {
    key_.hash_key = "session:";
    key_.hash_key += Hex16(SessionOf(row));
    key_.hash_key_source = RoutingKey::HashKeySource::kSession;
  }
  if (Has(needs, KeyParts::kPrompt)) {
    // Ids that are equal exactly where names are; a block without a name equals no other.
    Prompt& ids = key_.prompt;
    ids.kind = Prompt::Kind::kTokens;
    ids.own_tokens.resize(key_.prompt_tokens);
    for (size_t at = 0; at < ids.own_tokens.size(); at += trace_.block_size) {
      const size_t block = at / trace_.block_size;
      const uint64_t name = block < blocks ? prompt[block] : Mix64(~uint64_t{row});
      const size_t count = std::min<size_t>(trace_.block_size, ids.own_tokens.size() - at);
      std::fill_n(ids.own_tokens.data() + at, count, static_cast<uint32_t>(name));
    }
  }
  if (Has(needs, KeyParts::kPrefixDigest)) {
    key_.prefix_digest.reset();
    if (blocks > 0) {
      uint64_t name = prompt[std::min<size_t>(blocks, std::max(routing_.prefix_blocks, 1u)) - 1];
      Digest256 digest{};
      for (size_t i = 0; i < digest.size(); ++i) {
        if (i % 8 == 0) name = Mix64(name + i + 1);
        digest[i] = static_cast<uint8_t>(name >> (i % 8 * 8));
      }
      key_.prefix_digest = digest;
    }
  }
}

// The events that came until now; predictions that they replace age as the server's do.
void Run::Hear() {
  known_->Deliver(now_);
  if (replicas_.front().hearing == nullptr) return;
  for (; rotated_ + kPredictionHalfLife <= now_; rotated_ += kPredictionHalfLife) {
    const Picos at = rotated_ + kPredictionHalfLife;
    for (const Replica& replica : replicas_)
      replica.hearing->RotatePredictions(at / kPicosPerNano, kPredictionRepeatNanos);
  }
}

bool Run::IsCut(const Replica& replica) const {
  return std::ranges::any_of(routing_.peer_sync->cuts, [&](const ReplayPeerSync::Cut& cut) {
    const double since = ToSeconds(now_) - cut.time_s;
    return since >= 0 && since < cut.seconds &&
           (cut.router < 0 || static_cast<size_t>(cut.router) == replica.number);
  });
}

void Run::Sync(Replica& replica) {
  sync_due_.pop();
  sync_due_.push({now_ + ToPicos(routing_.peer_sync->interval_s) / 2, static_cast<uint32_t>(replica.number)});
  const bool cut = IsCut(replica);
  const int64_t now_ns = now_ / kPicosPerNano;
  replica.sync->SetConnected(!cut, now_ns);
  if (replica.ticks++ % 2 == 0) PublishFrames(replica);
  while (!bus_.empty() && now_ - bus_.front().at > kRetained) {
    bus_.pop_front();
    ++bus_begin_;
  }
  if (!cut) ReadFrames(replica);
  replica.sync->Update(now_ns);
  if (replica.sync->alone() || replica.polled >= 0) PollLoads(replica);
}

void Run::PublishFrames(Replica& replica) {
  frames_.clear();
  replica.sync->WriteFrames(now_ / kPicosPerNano, static_cast<uint64_t>(now_ / kPicosPerSecond), &frames_);
  const Picos delay = ToPicos(routing_.peer_sync->decisions_delay_s);
  while (!delayed_.empty() && delayed_.front().at + delay <= now_) {
    bus_.push_back({now_, delayed_.front().sender, std::move(delayed_.front().frame)});
    delayed_.pop_front();
  }
  if (IsCut(replica)) return;
  for (std::string& bytes : frames_) {
    ++result_.peer_sync_frames;
    result_.peer_sync_bytes += bytes.size();
    if (delay > 0) {
      // The decisions of a frame that is no longer the newest are taken, and its loads are not.
      delayed_.push_back({now_, replica.number, bytes});
      PeerFrame frame;
      ROUTER_CHECK(ReadFrame(bytes, {}, &frame).ok(), "a router reads what a router wrote");
      frame.decisions.clear();
      frame.strides.clear();
      bytes.clear();
      WriteFrame(frame, {}, &bytes);
    }
    bus_.push_back({now_, replica.number, std::move(bytes)});
  }
}

void Run::ReadFrames(Replica& replica) {
  replica.read = std::max(replica.read, bus_begin_);
  for (; replica.read < bus_begin_ + bus_.size(); ++replica.read) {
    const Published& published = bus_[replica.read - bus_begin_];
    if (published.sender == replica.number) continue;
    const uint64_t lot = Mix64(replica.read * routing_.routers + replica.number + Mix64(routing_.seed));
    if (static_cast<double>(lot >> 11) * 0x1p-53 < routing_.peer_sync->loss) continue;
    const Status status = replica.sync->Read(published.frame, now_ / kPicosPerNano);
    ROUTER_CHECK(status.ok(), "a router reads what a router wrote");
  }
}

// As the server's load poller does, of engines that answer at once; nothing is left of it once others are heard.
void Run::PollLoads(Replica& replica) {
  const bool alone = replica.sync->alone();
  if (alone && now_ - replica.polled < kPollInterval) return;
  replica.polled = alone ? now_ : -kPollInterval;
  for (const FleetView::Member& member : replica.fleet->Get()->members()) {
    WorkerLoad& load = member.worker->load;
    const BatchEngine::Load all =
        engines_[replica.caches->engine_of[static_cast<size_t>(member.worker->id)]].batch->load();
    const int64_t others =
        static_cast<int64_t>(all.running + all.waiting) - load.open_requests() - load.peer_requests();
    const int64_t waiting = static_cast<int64_t>(all.waiting) - load.own_waiting() - load.peer_waiting();
    const int64_t polled = alone ? std::max<int64_t>(0, others) : 0;
    load.SetPolled(polled, std::clamp<int64_t>(waiting, 0, polled));
  }
}

void Run::Dispatch(uint32_t row) {
  Replica& replica = replicas_[replica_of_[row]];
  MakeKey(replica, row);
  if (known_) Hear();
  if (fleet_.stages) return DispatchPair(replica, row);
  if (replica.baseline != nullptr) {
    const bool is_held_out = IsHeldOut(row);
    key_.arm = is_held_out ? Arm::kHoldout : Arm::kPolicy;
    key_.baseline = is_held_out ? replica.baseline.get() : nullptr;
    result_.held_out[row] = is_held_out ? 1 : 0;
  }
  const FleetView& fleet = *replica.fleet->Get();
  std::optional<FleetView> with_room;
  if (replica.admission != nullptr) {
    const WorkerPositions closed = replica.admission->Closed(row, fleet, ClockOf(now_));
    // As the server: all of them where none has room any more.
    if (!closed.empty() && closed.size() < fleet.eligible().size()) with_room = fleet.Without(closed);
  }
  if (replica.programs != nullptr) {
    const WorkerPositions closed = replica.programs->Closed(row, fleet);
    if (!closed.empty() && closed.size() < fleet.eligible().size()) with_room = fleet.Without(closed);
  }
  StatusOr<Ticket> ticket = replica.router->Select(key_, with_room ? *with_room : fleet);
  if (!ticket.ok()) return Refused(replica, row);

  const uint32_t number = EngineOf(replica, *ticket);
  if (replica.admission != nullptr) replica.admission->Chosen(row);
  if (replica.programs != nullptr) replica.programs->Bind(row, ticket->worker().id);
  if (known_) replica.caches->Send(number, NamesOf(row).first(PromptBlocksOf(row)));
  Predict(row, ticket->decision());
  Send(number, row, *std::move(ticket), RequestOf(row));
}

// Where all workers have as many requests as they may, one that was admitted waits on.
void Run::Refused(Replica& replica, uint32_t row) {
  if (replica.admission != nullptr) {
    const bool are_full =
        routing_.router.max_worker_requests != 0 && !replica.fleet->Get()->eligible().empty();
    if (are_full && replica.admission->IsChoosing(row)) {
      result_.dispatch[row] = kNotDispatched;
      stepped_back_ = true;
      if (replica.admission->WaitAgain(row, ClockOf(now_))) return;
      return End(row, ReplayStatus::kQueueFull);
    }
    Leave(row, 0);
  }
  EndTurn(row, std::nullopt);
  End(row, ReplayStatus::kRefused);
}

// As the server: the bypass, else prefill and then decode, whose load is reserved from now on.
void Run::DispatchPair(Replica& replica, uint32_t row) {
  const StageViews& stages = *replica.fleet->Get()->stages();
  if (std::optional<Router::Bypass> bypass = replica.router->SelectBypass(key_, *stages.decode)) {
    Predict(row, bypass->ticket.decision());
    const uint32_t number = EngineOf(replica, bypass->ticket);
    Send(number, row, std::move(bypass->ticket), RequestOf(row));
    return;
  }
  StatusOr<Ticket> prefill = replica.router->Select(key_, *stages.prefill);
  if (!prefill.ok()) return End(row, ReplayStatus::kRefused);
  StatusOr<Ticket> decode = replica.router->Select(key_, *stages.decode, /*transferred=*/true);
  if (!decode.ok()) return End(row, ReplayStatus::kRefused);
  Predict(row, prefill->decision());
  const uint32_t number = EngineOf(replica, *prefill);
  result_.prefill_worker[row] = static_cast<int32_t>(number);
  Pair& pair = pairs_[row];
  pair.decode = *std::move(decode);
  BatchEngine::Request request = RequestOf(row);
  request.blocks = request.blocks.first(request.prompt_blocks);
  request.output_tokens = 1;
  request.is_held = true;
  pair.prefill_id = Send(number, row, *std::move(prefill), request);
}

BatchEngine::Request Run::RequestOf(uint32_t row) const {
  return {
      .prompt_tokens = trace_.input_tokens[row],
      .output_tokens = trace_.output_tokens[row],
      .blocks = NamesOf(row),
      .prompt_blocks = PromptBlocksOf(row),
      .tag = row};
}

void Run::Predict(uint32_t row, const Decision& decision) {
  const uint64_t matched = decision.unit == MatchUnit::kBlocks   ? decision.matched * trace_.block_size
                           : decision.unit == MatchUnit::kTokens ? decision.matched
                                                                 : 0;
  result_.predicted_tokens[row] =
      static_cast<uint32_t>(std::min<uint64_t>(matched, trace_.input_tokens[row]));
}

BatchEngine::RequestId Run::Send(
    uint32_t number, uint32_t row, Ticket ticket, const BatchEngine::Request& request) {
  Engine& engine = engines_[number];
  const BatchEngine::RequestId id = engine.batch->Submit(request, now_);
  if (id >= engine.flights.size()) engine.flights.resize(id + 1);
  engine.flights[id].ticket = std::move(ticket);
  engine.flights[id].row = row;
  engine.flights[id].first_token = false;
  ++engine.open;
  if (!IsPrefill(number)) result_.worker[row] = static_cast<int32_t>(number);
  Reschedule(number);
  return id;
}

void Run::Step(uint32_t number) {
  Engine& engine = engines_[number];
  events_.clear();
  engine.batch->AdvanceTo(now_, &events_);
  for (const BatchEngine::Event& event : events_) {
    Flight& flight = engine.flights[event.id];
    const uint32_t row = flight.row;
    if (event.kind == BatchEngine::Event::Kind::kFetch) {
      BeginTransfer(number, event);
      continue;
    }
    if (event.kind == BatchEngine::Event::Kind::kFirstToken) {
      if (!IsPrefill(number)) BeginResponse(number, flight, event);
      continue;
    }
    --engine.open;
    ++engine.summary.requests;
    engine.summary.prompt_tokens += trace_.input_tokens[row];
    engine.summary.hit_tokens += event.hit_tokens;
    if (IsPrefill(number)) {
      EndPrefill(flight, event);
      continue;
    }
    Outcome outcome{
        .end = Outcome::End::kFinished,
        .status = 200,
        .first_token_ms = result_.ttft_s[row] * 1e3,
        .prompt_tokens = trace_.input_tokens[row],
        .output_tokens = trace_.output_tokens[row],
        .blocks = NamesOf(row),
        .now_ns = ClockOf(now_)};
    // Behind a transfer the engine tells what prefill had.
    if (result_.prefill_worker[row] < 0) outcome.cached_tokens = event.hit_tokens;
    flight.ticket.Finish(outcome);
    engine.summary.output_tokens += trace_.output_tokens[row];
    result_.e2e_s[row] = ToSeconds(now_ - arrivals_[row]);
    Leave(row, CostOf(trace_.input_tokens[row] - event.hit_tokens, trace_.output_tokens[row]));
    EndTurn(
        row, ProgramTable::Use{
                 .prompt = trace_.input_tokens[row],
                 .cached = event.hit_tokens,
                 .output = trace_.output_tokens[row]});
    End(row, ReplayStatus::kFinished);
  }
  Reschedule(number);
  if (!touched_.empty()) PumpTouched();
}

void Run::BeginResponse(uint32_t number, Flight& flight, const BatchEngine::Event& event) {
  const uint32_t row = flight.row;
  Replica& replica = replicas_[replica_of_[row]];
  if (routing_.streams) flight.ticket.FirstToken(ClockOf(now_));
  flight.first_token = true;
  if (replica.admission != nullptr) {
    replica.admission->FirstToken(row);
    Touch(row);
  }
  result_.ttft_s[row] = ToSeconds(now_ - arrivals_[row]);
  if (!fleet_.stages && known_) replica.caches->Computed(number, NamesOf(row).first(PromptBlocksOf(row)));
  if (result_.prefill_worker[row] < 0) {
    result_.hit_tokens[row] = event.hit_tokens;
  } else if (replica.router->may_bypass()) {
    MakeKey(replica, row);
    replica.router->LearnTransferred(key_, flight.ticket.worker());
  }
}

// Its blocks stay at the prefill worker. Decode gets the request once all steps that end now have ended.
void Run::EndPrefill(Flight& flight, const BatchEngine::Event& event) {
  const uint32_t row = flight.row;
  result_.hit_tokens[row] = event.hit_tokens;
  flight.ticket.Finish(
      {.end = Outcome::End::kFinished,
       .status = 200,
       .prompt_tokens = trace_.input_tokens[row],
       .cached_tokens = event.hit_tokens,
       .now_ns = ClockOf(now_)});
  Plan(now_, row, /*arrives=*/false);
}

void Run::Proceed(const PairEvent& event) {
  const uint32_t row = event.row;
  Pair& pair = pairs_[row];
  if (!event.arrives) {
    const uint32_t number = EngineOf(replicas_[replica_of_[row]], pair.decode);
    BatchEngine::Request request = RequestOf(row);
    request.is_fetched = true;
    pair.decode_id = Send(number, row, std::move(pair.decode), request);
    return;
  }
  const auto prefill = static_cast<uint32_t>(result_.prefill_worker[row]);
  const auto decode = static_cast<uint32_t>(result_.worker[row]);
  engines_[prefill].batch->ReleaseHeld(pair.prefill_id, now_);
  engines_[decode].batch->Fetched(pair.decode_id, now_);
  pairs_.erase(row);
  Reschedule(prefill);
  Reschedule(decode);
}

void Run::BeginTransfer(uint32_t number, const BatchEngine::Event& event) {
  const auto row = static_cast<uint32_t>(event.tag);
  const ReplayStages& stages = *fleet_.stages;
  const uint32_t tokens = trace_.input_tokens[row] - event.hit_tokens;
  result_.fetched_tokens[row] = tokens;
  engines_[number].summary.fetched_tokens += tokens;
  const Picos per_token = ToPicos(stages.kv_bytes_per_token / (stages.link_gb_per_s * 1e9));
  Picos& egress = link_free_[static_cast<size_t>(result_.prefill_worker[row])];
  Picos& ingress = link_free_[number];
  egress = ingress = std::max({now_, egress, ingress}) + per_token * tokens;
  Plan(egress + ToPicos(stages.transfer_ms / 1e3), row, /*arrives=*/true);
}

void Run::End(uint32_t row, ReplayStatus status) {
  result_.status[row] = static_cast<uint8_t>(status);
  ++ended_;
  last_end_ = now_;
  if (awaited_.empty()) return;
  for (size_t i = follower_offsets_[row]; i < follower_offsets_[row + 1]; ++i) {
    const uint32_t follower = followers_[i];
    if (--awaited_[follower] > 0) continue;
    turns_due_.push({now_ + ToPicos(trace_.pause_s[follower] * trace_.time_scale), follower});
  }
}

template <typename Change>
void Run::ChangeFleet(Change change) {
  for (Replica& replica : replicas_) {
    const Status status = change(*replica.router);
    ROUTER_CHECK(status.ok(), "a fleet that was checked can change");
    ReadFleet(replica);
  }
}

void Run::Happen(const ReplayEvent& event) {
  const std::string url = UrlOf(event.worker);
  switch (event.kind) {
    case ReplayEvent::Kind::kJoin: {
      const StatusOr<WorkerDeclaration> declared = Declared(event.worker);
      ChangeFleet(
          [&](Router& router) { return declared.ok() ? router.AddWorker(*declared) : declared.status(); });
      break;
    }
    case ReplayEvent::Kind::kFail:
      Fail(event.worker);
      break;
    case ReplayEvent::Kind::kDrain:
      ChangeFleet([&](Router& router) { return router.DrainWorker(url); });
      break;
    case ReplayEvent::Kind::kWipe:
      engines_[event.worker].batch->WipeCache();
      Reschedule(event.worker);
      break;
    case ReplayEvent::Kind::kSpeed:
      engines_[event.worker].batch->SetSpeed(event.speed, now_);
      Reschedule(event.worker);
      break;
  }
}

// Connections break at once, and the routers take the worker out.
void Run::Fail(uint32_t number) {
  const std::string url = UrlOf(number);
  ChangeFleet([&](Router& router) { return router.RemoveWorker(url); });
  Engine& engine = engines_[number];
  Retire(engine);
  std::vector<Flight> lost = std::move(engine.flights);
  StartEngine(number);
  if (known_) known_->Forget(number);
  for (Replica& replica : replicas_) replica.caches->sent[number].clear();
  std::sort(lost.begin(), lost.end(), [](const Flight& a, const Flight& b) { return a.row < b.row; });
  for (Flight& flight : lost) {
    if (flight.ticket.finished()) continue;
    flight.ticket.Finish({.end = Outcome::End::kWorkerFailed, .blocks = NamesOf(flight.row)});
    if (flight.first_token) {
      Leave(flight.row, std::nullopt);
      EndTurn(flight.row, std::nullopt);
      End(flight.row, ReplayStatus::kCutShort);
    } else {
      Dispatch(flight.row);
    }
  }
  PumpTouched();
}

void Run::Retire(Engine& engine) {
  engine.summary.busy_s += ToSeconds(engine.batch->busy());
  engine.summary.steps += engine.batch->steps();
  engine.summary.evicted_blocks += engine.batch->pool().evicted();
  engine.summary.computed_tokens += engine.batch->computed_tokens();
  engine.summary.held_blocks = engine.batch->pool().held();
}

ReplayResult Run::Result() {
  for (Engine& engine : engines_) {
    Retire(engine);
    result_.workers.push_back(engine.summary);
  }
  result_.span_s = ToSeconds(last_end_) - result_.arrival_s[0];
  if (spread_samples_ > 0) result_.load_spread = spread_sum_ / static_cast<double>(spread_samples_);
  return std::move(result_);
}

}  // namespace

StatusOr<ReplayResult> Simulate(
    const ReplayTrace& trace, const ReplayRouting& routing, const ReplayFleet& fleet,
    const std::function<bool()>& go_on) {
  ROUTER_RETURN_IF_ERROR(CheckTrace(trace));
  if (routing.routers < 1 || routing.routers > 1024) {
    return Refuse("routers is ", routing.routers, "; there are between 1 and 1024 replicas of the router");
  }
  if (routing.peer_sync) ROUTER_RETURN_IF_ERROR(CheckPeerSync(*routing.peer_sync, routing.routers));
  StatusOr<FleetState> state = CheckFleet(fleet);
  ROUTER_RETURN_IF_ERROR(state.status());
  StatusOr<std::shared_ptr<const AdmissionSettings>> admission = CheckAdmission(trace, routing, fleet);
  ROUTER_RETURN_IF_ERROR(admission.status());
  const StatusOr<std::optional<ProgramSettings>> programs = CheckPrograms(routing, fleet);
  ROUTER_RETURN_IF_ERROR(programs.status());
  Run run(trace, routing, fleet, *std::move(state), *std::move(admission), *programs);
  ROUTER_RETURN_IF_ERROR(run.Prepare());
  ROUTER_RETURN_IF_ERROR(run.Go(go_on));
  return run.Result();
}

}  // namespace vllm_router
