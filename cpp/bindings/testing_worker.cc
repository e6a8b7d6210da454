#include <pybind11/stl.h>

#include <map>
#include <span>
#include <tuple>

#include "base/clock.h"
#include "bindings/bindings.h"
#include "bindings/raise_if_error.h"
#include "bindings/worker_declaration.h"
#include "worker/bytes_per_token.h"
#include "worker/circuit_breaker.h"
#include "worker/hang_detector.h"
#include "worker/health.h"
#include "worker/outlier_detector.h"
#include "worker/overload.h"
#include "worker/response_progress.h"
#include "worker/retry_after_backoff.h"
#include "worker/slow_start.h"
#include "worker/stage.h"
#include "worker/worker_registry.h"
#include "worker/worker_url.h"

namespace vllm_router {
namespace {

namespace py = pybind11;

py::dict ParsedUrl(const std::string& url) {
  const StatusOr<WorkerUrl> parsed = ParseWorkerUrl(url);
  RaiseIfError(parsed.status());
  py::dict dict;
  dict["url"] = parsed->url;
  dict["base"] = parsed->base;
  dict["host"] = parsed->host;
  dict["tls"] = parsed->tls;
  dict["is_name"] = parsed->is_name;
  dict["port"] = parsed->port;
  dict["prefix"] = parsed->prefix;
  dict["authority"] = parsed->authority;
  dict["rank"] = parsed->rank;
  return dict;
}

// A plan that holds the version of its view, to check that views and plans stay together.
struct NumberedPlan final : FleetPlan {
  NumberedPlan(uint64_t number, const FleetView& fleet)
      : FleetPlan(nullptr), number(number), membership(fleet.membership_version()), stage(fleet.stage()) {}
  const uint64_t number;
  const uint64_t membership;
  const Stage stage;
};

WorkerRole RoleOf(
    const std::string& worker_type, std::optional<uint16_t> bootstrap_port, const std::string& kv_group) {
  const std::optional<Stage> stage = StageByName(worker_type);
  if (!stage) throw py::value_error("no worker type is called " + worker_type);
  return {.stage = *stage, .bootstrap_port = bootstrap_port, .kv_group = kv_group};
}

// A detector, and the progress of workers that it observes.
class HangHarness {
 public:
  // Worker, group, in rotation, out, in doubt, waiting requests.
  using Row = std::tuple<uint32_t, uint64_t, bool, bool, bool, int64_t>;
  // Kind, bytes, when it was sent, client.
  using WaitRow = std::tuple<std::string, uint64_t, double, uint64_t>;

  explicit HangHarness(double factor) { detector_.SetFactor(factor); }

  static int64_t Nanos(double secs) { return static_cast<int64_t>(secs * 1e9); }
  static ResponseKind KindOf(const std::string& name) {
    return name == "stream" ? ResponseKind::kStream : ResponseKind::kPlain;
  }
  void Touch(uint32_t worker, double now) { progress_[worker].Touch(Nanos(now)); }
  void CountFirstByte(
      uint32_t worker, const std::string& kind, uint64_t bytes, double waited, uint64_t client, double now) {
    progress_[worker].CountFirstByte(KindOf(kind), bytes, Nanos(waited), client, Nanos(now));
  }
  std::vector<uint32_t> Observe(double now, const std::vector<Row>& rows) {
    std::vector<HangDetector::Observed> fleet;
    for (const auto& [worker, group, in_rotation, out, in_doubt, waiting] : rows) {
      fleet.push_back(
          {.worker = WorkerId{worker},
           .group = group,
           .in_rotation = in_rotation,
           .out = out,
           .in_doubt = in_doubt,
           .waiting = waiting,
           .last_byte_ns = progress_[worker].last_byte_ns(),
           .waits = progress_[worker].Waits()});
    }
    std::vector<uint32_t> silent;
    for (const WorkerId worker : detector_.Observe(Nanos(now), fleet))
      silent.push_back(static_cast<uint32_t>(worker));
    return silent;
  }
  // Silent for, limit, overdue, overtaking.
  std::optional<std::tuple<double, double, size_t, uint64_t>> Judge(
      uint32_t worker, const std::vector<WaitRow>& rows, double now) {
    std::vector<HangDetector::Wait> waits;
    for (const auto& [kind, bytes, sent, client] : rows)
      waits.push_back({.kind = KindOf(kind), .bytes = bytes, .sent_ns = Nanos(sent), .client = client});
    std::vector<uint64_t> served;
    for (const auto& [other, progress] : progress_) {
      if (other != worker) progress.AddClients(&served);
    }
    const std::optional<HangDetector::Doubt> doubt =
        detector_.Judge(WorkerId{worker}, waits, served, Nanos(now));
    if (!doubt) return std::nullopt;
    return std::tuple(
        static_cast<double>(doubt->silent_ns) / 1e9, static_cast<double>(doubt->limit_ns) / 1e9,
        doubt->overdue, doubt->overtaking);
  }
  std::optional<double> Limit(
      uint32_t worker, const std::string& kind, uint64_t bytes, uint64_t most_bytes) const {
    const HangDetector::Limits limits = detector_.LimitsOf(WorkerId{worker}, std::max(bytes, most_bytes));
    const int64_t limit = limits[static_cast<size_t>(KindOf(kind))][RequestSizeOf(bytes)];
    if (limit == HangDetector::kNoLimit) return std::nullopt;
    return static_cast<double>(limit) / 1e9;
  }

 private:
  HangDetector detector_;
  std::map<uint32_t, ResponseProgress> progress_;
};

void BindHangDetector(py::module_& testing) {
  py::class_<HangHarness>(testing, "HangDetector")
      .def(py::init<double>(), py::arg("factor") = 5.0)
      .def("touch", &HangHarness::Touch)
      .def(
          "count_first_byte", &HangHarness::CountFirstByte, py::arg("worker"), py::arg("kind"),
          py::arg("bytes"), py::arg("waited"), py::arg("client"), py::arg("now"))
      .def("observe", &HangHarness::Observe, py::arg("now"), py::arg("fleet"))
      .def("judge", &HangHarness::Judge, py::arg("worker"), py::arg("waits"), py::arg("now"))
      .def(
          "limit", &HangHarness::Limit, py::arg("worker"), py::arg("kind"), py::arg("bytes"),
          py::arg("most_bytes") = 0);
  testing.def("request_size_of", &RequestSizeOf);
}

void BindOverload(py::module_& testing) {
  testing.def(
      "is_overloaded",
      [](uint32_t most_waiting, double most_kv_use, int64_t waiting, std::optional<double> kv_use, bool was) {
        return IsOverloaded({.waiting = most_waiting, .kv_use = most_kv_use}, waiting, kv_use, was);
      },
      py::arg("waiting_above"), py::arg("kv_above"), py::arg("waiting"), py::arg("kv_use"), py::arg("was"));
}

WorkerDeclaration DeclaredWith(const std::string& url, double weight, const WorkerRole& role = {}) {
  WorkerDeclaration worker = ValueOrRaise(DeclareWorker(url));
  worker.weight = weight;
  worker.role = role;
  return worker;
}

// What the core reads of a WorkerSpec, by the names of its fields.
py::dict ReadFields(py::handle spec) {
  WorkerDeclaration worker = ToDeclaration(spec);
  py::dict fields;
  fields["url"] = worker.url.url;
  worker.ForEachField([&]<typename T>(const char* name, T& member) {
    if constexpr (std::is_same_v<T, Stage>) {
      fields[name] = std::string(StageName(member));
    } else {
      fields[name] = member;
    }
  });
  return fields;
}

// A row of a source's list: URL, weight, ready, leaving, drain_secs, incarnation.
using ListedWorker = std::tuple<std::string, double, bool, bool, std::optional<double>, std::string>;

class RegistryHarness {
 public:
  RegistryHarness(double share, double hold_secs, bool staged)
      : registry_(
            [](const FleetView& next) {
              const auto* last = static_cast<const NumberedPlan*>(next.plan());
              return std::make_shared<NumberedPlan>(last == nullptr ? 1 : last->number + 1, next);
            },
            {.share = share, .hold_ns = static_cast<int64_t>(hold_secs * 1e9)}, staged) {}

  // Of a worker that is named from now on, by this spelling of its URL.
  void SetRole(
      const std::string& url, const std::string& worker_type, std::optional<uint16_t> port,
      const std::string& kv_group) {
    roles_[url] = RoleOf(worker_type, port, kv_group);
  }

  // A fleet with stages has prefill workers, until it is told otherwise.
  WorkerRole RoleOfUrl(const std::string& url) const {
    const auto found = roles_.find(url);
    if (found != roles_.end()) return found->second;
    return {.stage = registry_.is_staged() ? Stage::kPrefill : Stage::kAll};
  }

  FleetView StageView(const std::string& worker_type) const {
    const std::shared_ptr<const FleetView> fleet = registry_.snapshot().Load();
    if (fleet->stages() == nullptr) throw py::value_error("the fleet has no stages");
    return *fleet->stages()->of(StageByName(worker_type).value());
  }

  std::vector<py::tuple> Roles() const {
    std::vector<py::tuple> roles;
    const std::shared_ptr<const FleetView> fleet = registry_.snapshot().Load();
    for (const FleetView::Member& member : fleet->members()) {
      const Worker& worker = *member.worker;
      roles.push_back(
          py::make_tuple(worker.url.url, std::string(StageName(worker.stage)), worker.bootstrap_port));
    }
    return roles;
  }

  // What is known of a worker of the fleet; published with the next change.
  void SetFacts(
      const std::string& url, const std::optional<std::string>& engine_id, const std::string& engine) {
    const StatusOr<std::vector<std::shared_ptr<Worker>>> workers = registry_.Named(url);
    RaiseIfError(workers.status());
    for (const std::shared_ptr<Worker>& worker : *workers) {
      worker->engine_id.Publish(engine_id ? std::make_shared<const std::string>(*engine_id) : nullptr);
      worker->engine.store(EngineKindByName(engine));
    }
  }

  // The fleet's engine; and of each member, whether it is in rotation and why it cannot be paired.
  py::tuple Pairs() const {
    const std::shared_ptr<const FleetView> fleet = registry_.snapshot().Load();
    std::vector<py::tuple> members;
    for (const FleetView::Member& member : fleet->members()) {
      members.push_back(
          py::make_tuple(member.worker->url.url, member.in_rotation(), PairStateText(member.pair)));
    }
    return py::make_tuple(EngineKindName(fleet->stages()->engine), members);
  }

  WorkerRegistry& registry() { return registry_; }

  py::tuple Reconcile(
      const std::string& source, const std::optional<std::vector<ListedWorker>>& list, bool complete,
      const std::vector<std::string>& deleted, double now) {
    now_ns_ = static_cast<int64_t>(now * 1e9);
    const StatusOr<Difference> difference =
        list ? registry_.Reconcile(source, DeclaredOf(*list), complete, deleted, now_ns_)
             : registry_.ReconcileAgain(source, now_ns_);
    return Described(difference);
  }

  py::tuple WouldReconcile(
      const std::string& source, const std::vector<ListedWorker>& list, bool complete, double now) const {
    return Described(
        registry_.WouldReconcile(source, DeclaredOf(list), complete, static_cast<int64_t>(now * 1e9)));
  }

  std::vector<std::string> Adopt(const std::string& source) {
    const StatusOr<std::vector<std::string>> left = registry_.Adopt(source, now_ns_);
    RaiseIfError(left.status());
    return *left;
  }

  void SetManaged(bool managed) {
    if (managed == manager_.has_value()) return;
    if (managed) {
      manager_ = registry_.Manage([] {});
    } else {
      registry_.EndManaging(*manager_);
      manager_.reset();
    }
  }

  std::vector<std::pair<uint64_t, std::string>> Pending() const {
    std::vector<std::pair<uint64_t, std::string>> pending;
    for (const DeclaredFleet::Row& row : registry_.Rows()) {
      if (row.awaits_check()) pending.emplace_back(row.id, row.spec.url.url);
    }
    return pending;
  }

  std::vector<std::string> Admit(const std::vector<uint64_t>& rows) { return registry_.Admit(rows, now_ns_); }

  void EndHolds(double now) {
    now_ns_ = static_cast<int64_t>(now * 1e9);
    registry_.EndHolds(now_ns_);
  }

  // URL, of those that are held until others have joined or left since others did not join in time; which of both.
  std::vector<std::pair<std::string, std::string>> Replaced() const {
    std::vector<std::pair<std::string, std::string>> replaced;
    for (const DeclaredFleet::Row& row : registry_.Rows()) {
      if (row.is_replaced) replaced.emplace_back(row.spec.url.url, "held");
      if (row.is_overdue) replaced.emplace_back(row.spec.url.url, "overdue");
    }
    return replaced;
  }

  std::vector<py::tuple> Leaving() const {
    std::vector<py::tuple> leaving;
    for (const DeclaredFleet::Row& row : registry_.Rows()) {
      if (!row.leaves()) continue;
      std::optional<double> secs;
      if (row.spec.drain_ms()) secs = static_cast<double>(*row.spec.drain_ms()) / 1000;
      leaving.push_back(py::make_tuple(static_cast<uint32_t>(row.member.worker->id), row.spec.url.url, secs));
    }
    return leaving;
  }

  void Drained(const std::vector<uint32_t>& workers) {
    std::vector<WorkerId> ids;
    for (const uint32_t worker : workers) ids.push_back(WorkerId{worker});
    registry_.Drained(ids, now_ns_);
  }

  std::vector<py::tuple> Rows() const {
    std::vector<py::tuple> rows;
    for (const DeclaredFleet::Row& row : registry_.Rows()) {
      std::optional<uint32_t> id;
      if (row.serves()) id = static_cast<uint32_t>(row.member.worker->id);
      rows.push_back(py::make_tuple(
          row.spec.url.url, std::string(DeclaredFleet::StateName(row.state)), row.owners, row.held,
          row.member.draining, row.member.resting, row.member.healthy, row.spec.weight_thousandths(), id));
    }
    return rows;
  }

  // Cards: id, parent. Returns how many names are not kept.
  size_t SetModels(const std::string& base, const std::vector<std::pair<std::string, std::string>>& names) {
    std::vector<ModelCard> cards;
    for (const auto& [id, parent] : names) cards.push_back({.id = id, .parent = parent});
    size_t refused = 0;
    if (registry_.SetModels(base, cards, SteadyClock().NowNanos(), &refused)) registry_.PublishModels();
    return refused;
  }

  // By name, the URLs of the workers that list it and of those that may serve it; of a name that is only
  // remembered, neither.
  py::dict Models() const {
    const std::shared_ptr<const FleetView> fleet = registry_.snapshot().Load();
    const ModelPools& pools = *fleet->models();
    py::dict models;
    for (const std::string& id : pools.names->order) {
      const ModelPools::Name& name = *pools.Find(id);
      std::vector<std::string> listed;
      std::vector<std::string> pool;
      for (const uint32_t position : name.workers) listed.push_back(fleet->worker(position).url.url);
      if (name.pool != ModelPools::kNoPool) {
        const std::shared_ptr<const FleetView> view = pools.ViewOf(fleet, name);
        for (const uint32_t position : view->eligible()) pool.push_back(view->worker(position).url.url);
      }
      models[py::str(id)] = py::make_tuple(listed, pool);
    }
    return models;
  }

  // By name, the URLs of the workers that have an adapter which others of its pool can load.
  py::dict ResidentsOfModels() const {
    const std::shared_ptr<const FleetView> fleet = registry_.snapshot().Load();
    const ModelPools& pools = *fleet->models();
    py::dict models;
    for (const std::string& id : pools.names->order) {
      const ModelPools::Name& name = *pools.Find(id);
      if (!name.has_pool()) continue;
      const std::shared_ptr<const FleetView> view = pools.ViewOf(fleet, name);
      if (view->residents() == nullptr) continue;
      std::vector<std::string> residents;
      for (uint32_t position = 0; position < view->members().size(); ++position) {
        if ((*view->residents())[position] != 0) residents.push_back(view->worker(position).url.url);
      }
      models[py::str(id)] = residents;
    }
    return models;
  }

  bool ModelsDecide() const { return registry_.snapshot().Load()->models()->decides(); }
  std::vector<std::string> BaseModels() const { return registry_.snapshot().Load()->models()->names->bases; }

  std::vector<py::tuple> Members(const FleetView& view) const {
    std::vector<py::tuple> members;
    for (uint32_t position = 0; position < view.members().size(); ++position) {
      const FleetView::Member& member = view.members()[position];
      members.push_back(py::make_tuple(
          member.worker->url.url, static_cast<uint32_t>(member.worker->id), member.worker->weight.load(),
          member.healthy, member.draining, view.IsEligible(position)));
    }
    return members;
  }

 private:
  std::vector<WorkerDeclaration> DeclaredOf(const std::vector<ListedWorker>& list) const {
    std::vector<WorkerDeclaration> declared;
    for (const auto& [url, weight, ready, leaving, drain_secs, incarnation] : list) {
      WorkerDeclaration& one = declared.emplace_back(DeclaredWith(url, weight, RoleOfUrl(url)));
      one.ready = ready;
      one.leaving = leaving;
      one.drain_secs = drain_secs;
      one.incarnation = incarnation;
    }
    return declared;
  }

  static py::tuple Described(const StatusOr<Difference>& difference) {
    RaiseIfError(difference.status());
    return py::make_tuple(difference->joined, difference->left, difference->changed, difference->held);
  }

  WorkerRegistry registry_;
  std::optional<uint64_t> manager_;
  int64_t now_ns_ = 0;
  std::map<std::string, WorkerRole> roles_;
};

int64_t Nanos(double seconds) { return static_cast<int64_t>(seconds * 1e9); }

using Change = std::optional<std::pair<std::string_view, std::string_view>>;

Change Named(const std::optional<BreakerChange>& change) {
  if (!change) return std::nullopt;
  return std::pair(BreakerStateName(change->from), BreakerStateName(change->to));
}

struct BreakerHarness {
  BreakerOptions options;
  CircuitBreaker breaker;
};

struct PassHarness {
  std::shared_ptr<BreakerHarness> owner;
  std::optional<BreakerPass> pass;
};

constexpr std::string_view kVerdicts[] = {"neutral", "success", "failure", "server_error"};

BreakerResult VerdictByName(const std::string& name) {
  for (size_t i = 0; i < std::size(kVerdicts); ++i) {
    if (kVerdicts[i] == name) return static_cast<BreakerResult>(i);
  }
  throw py::value_error("no verdict is called " + name);
}

void BindRetryAfterBackoff(py::module_& testing) {
  py::class_<RetryAfterBackoff>(testing, "RetryAfterBackoff")
      .def(py::init<>())
      .def_property_readonly("active", &RetryAfterBackoff::active)
      .def(
          "begin", [](RetryAfterBackoff& self, double now,
                      double seconds) { return self.Begin(Nanos(now), Nanos(seconds)); })
      .def("rests_at", [](const RetryAfterBackoff& self, double now) { return self.ActiveAt(Nanos(now)); })
      .def("end", [](RetryAfterBackoff& self, double now) { return self.End(Nanos(now)); });
}

void BindCircuitBreaker(py::module_& testing) {
  py::class_<PassHarness>(testing, "BreakerPass")
      .def_property_readonly("probe", [](const PassHarness& self) { return self.pass->probe(); })
      .def(
          "settle",
          [](PassHarness& self, const std::string& verdict, double now, bool may_open) {
            return Named(
                self.pass->Settle(self.owner->options, VerdictByName(verdict), Nanos(now), may_open));
          },
          py::arg("verdict"), py::arg("now"), py::arg("may_open") = true)
      .def(
          "settle_end",
          [](PassHarness& self, bool broke_off, double now, bool may_open) {
            return Named(self.pass->SettleEnd(self.owner->options, broke_off, Nanos(now), may_open));
          },
          py::arg("broke_off"), py::arg("now"), py::arg("may_open") = true)
      .def("hold", [](PassHarness& self, double now) { self.pass->Hold(Nanos(now)); })
      .def("drop", [](PassHarness& self) { self.pass.reset(); });
  py::class_<BreakerHarness, std::shared_ptr<BreakerHarness>>(testing, "CircuitBreaker")
      .def(
          py::init([](uint32_t failures, uint32_t successes, double open, double window, bool disabled) {
            auto harness = std::make_shared<BreakerHarness>();
            harness->options = {
                .disabled = disabled,
                .failure_threshold = failures,
                .success_threshold = successes,
                .open_ms = static_cast<int64_t>(open * 1000),
                .window_ms = static_cast<int64_t>(window * 1000)};
            return harness;
          }),
          py::arg("failure_threshold"), py::arg("success_threshold"), py::arg("open_secs"),
          py::arg("window_secs"), py::arg("disabled") = false)
      .def_property_readonly(
          "state", [](const BreakerHarness& self) { return BreakerStateName(self.breaker.state()); })
      .def_property_readonly("admits", [](const BreakerHarness& self) { return self.breaker.Admits(); })
      .def(
          "try_pass",
          [](const std::shared_ptr<BreakerHarness>& self) -> std::optional<PassHarness> {
            std::optional<BreakerPass> pass = self->breaker.TryPass(self->options);
            if (!pass) return std::nullopt;
            return PassHarness{self, std::move(pass)};
          })
      .def(
          "pass_in_panic",
          [](const std::shared_ptr<BreakerHarness>& self) {
            return PassHarness{self, self->breaker.PassInPanic()};
          })
      .def_property_readonly(
          "opened_at",
          [](const BreakerHarness& self) { return static_cast<double>(self.breaker.opened_ns()) / 1e9; })
      .def_property_readonly(
          "held_closed", [](BreakerHarness& self) { return self.breaker.IsHeldClosed(self.options); })
      .def(
          "come_due", [](BreakerHarness& self,
                         double now) { return Named(self.breaker.ComeDue(self.options, Nanos(now))); })
      .def("not_reached", [](BreakerHarness& self) { self.breaker.NotReached(); })
      .def("reached", [](BreakerHarness& self) { return Named(self.breaker.Reached()); });
  testing.def("verdict_of", [](int status, bool has_retry_after) {
    return kVerdicts[static_cast<size_t>(VerdictOf(status, has_retry_after))];
  });
}

using Counts = std::pair<int64_t, int64_t>;  // errors, responses

ErrorShare ShareFrom(const Counts& counts) { return {.errors = counts.first, .responses = counts.second}; }

void BindOutlierDetector(py::module_& testing) {
  // Python gives one window to all calls of an object.
  struct CountsHarness {
    explicit CountsHarness(double window) : window_ns(Nanos(window)) {}
    const int64_t window_ns;
    ResponseCounts counts;
  };
  py::class_<CountsHarness>(testing, "ResponseCounts")
      .def(py::init<double>(), py::arg("window_secs"))
      .def(
          "success",
          [](CountsHarness& self, double now) { self.counts.CountSuccess(self.window_ns, Nanos(now)); })
      .def(
          "error",
          [](CountsHarness& self, double now) { self.counts.CountError(self.window_ns, Nanos(now)); })
      .def(
          "turn_into_error",
          [](CountsHarness& self, double now) { self.counts.TurnIntoError(self.window_ns, Nanos(now)); })
      .def("within", [](CountsHarness& self, double now) {
        const ErrorShare share = self.counts.Within(self.window_ns, Nanos(now));
        return Counts(share.errors, share.responses);
      });
  testing.def(
      "is_outlier",
      [](const Counts& own, const Counts& others) { return IsOutlier(ShareFrom(own), ShareFrom(others)); },
      py::arg("own"), py::arg("others"));
}

void BindHealth(py::module_& testing) {
  py::class_<HealthWatch>(testing, "HealthWatch")
      .def(
          py::init([](double interval, uint32_t failures, uint32_t successes) {
            const HealthOptions options{
                .interval_ns = Nanos(interval),
                .failure_threshold = failures,
                .success_threshold = successes};
            return HealthWatch(options, 0);
          }),
          py::arg("interval_secs") = 10.0, py::arg("failure_threshold") = 3, py::arg("success_threshold") = 2)
      .def_property_readonly("healthy", &HealthWatch::healthy)
      .def_property_readonly("known", &HealthWatch::known)
      .def_property_readonly("suspected", &HealthWatch::suspected)
      .def("due", [](const HealthWatch& self, double now) { return self.Due(Nanos(now)); })
      .def_property_readonly(
          "due_at", [](const HealthWatch& self) { return static_cast<double>(self.due_ns()) / 1e9; })
      .def(
          "set_options",
          [](HealthWatch& self, double interval, uint32_t failures, uint32_t successes, double now) {
            self.SetOptions(
                {.interval_ns = Nanos(interval),
                 .failure_threshold = failures,
                 .success_threshold = successes},
                Nanos(now));
          })
      .def("begin", &HealthWatch::Begin)
      .def(
          "end",
          [](HealthWatch& self, bool success, double now, double spread) {
            return self.End(success, Nanos(now), spread);
          },
          py::arg("success"), py::arg("now"), py::arg("spread") = 0.0)
      .def("suspect", [](HealthWatch& self, double now) { self.ReportPassiveFailure(Nanos(now)); });
  py::class_<BytesPerToken>(testing, "BytesPerToken")
      .def(py::init<>())
      .def("learn", &BytesPerToken::Learn)
      .def_property_readonly("value", &BytesPerToken::value);
  testing.def("slow_start_factor_at", [](double since, double window) {
    return SlowStartFactorAt(Nanos(since), Nanos(window));
  });
}

}  // namespace

void BindTestingWorker(py::module_& testing) {
  BindRetryAfterBackoff(testing);
  BindCircuitBreaker(testing);
  BindHangDetector(testing);
  BindOverload(testing);
  BindOutlierDetector(testing);
  BindHealth(testing);
  py::class_<HealthTracker>(testing, "HealthTracker")
      .def(py::init<uint32_t, uint32_t>(), py::arg("failure_threshold"), py::arg("success_threshold"))
      .def("observe", &HealthTracker::Observe, py::arg("success"))
      .def_property_readonly("healthy", &HealthTracker::healthy);

  testing.def("stage_names", [] {
    std::vector<std::string_view> names;
    for (const Stage stage : {Stage::kAll, Stage::kPrefill, Stage::kDecode})
      names.push_back(StageName(stage));
    return names;
  });
  testing.def("stage_is_known", [](const std::string& name) { return StageByName(name).has_value(); });
  testing.def("parse_worker_url", &ParsedUrl);
  testing.def("read_fields", &ReadFields);
  testing.def("same_host", [](const std::string& a, const std::string& b) {
    return SameHost(ParseWorkerUrl(a).value(), ParseWorkerUrl(b).value());
  });

  py::class_<FleetView, std::shared_ptr<FleetView>>(testing, "FleetView")
      .def_property_readonly(
          "eligible",
          [](const FleetView& view) {
            return std::vector<uint32_t>(view.eligible().begin(), view.eligible().end());
          })
      .def_property_readonly("membership", &FleetView::membership_version)
      .def_property_readonly("steady", &FleetView::all_admitting)
      .def_property_readonly("equal_weights", &FleetView::equal_weights)
      .def_property_readonly("eligible_weight", &FleetView::eligible_weight)
      .def_property_readonly(
          "plan",
          [](const FleetView& view) -> std::optional<std::pair<uint64_t, uint64_t>> {
            const auto* plan = static_cast<const NumberedPlan*>(view.plan());
            if (plan == nullptr) return std::nullopt;
            return std::pair(plan->number, plan->membership);
          })
      .def_property_readonly(
          "plan_stage",
          [](const FleetView& view) -> std::optional<std::string_view> {
            const auto* plan = static_cast<const NumberedPlan*>(view.plan());
            if (plan == nullptr) return std::nullopt;
            return StageName(plan->stage);
          })
      .def_property_readonly("stage", [](const FleetView& view) { return StageName(view.stage()); })
      .def_property_readonly("has_stages", [](const FleetView& view) { return view.stages() != nullptr; })
      .def_property_readonly("in_rotation", &FleetView::in_rotation)
      .def_property_readonly("ejected", &FleetView::ejected)
      .def_property_readonly("may_eject", &MayEject)
      .def_property_readonly("any_in_doubt", &FleetView::any_in_doubt)
      .def_property_readonly("any_overloaded", &FleetView::any_overloaded)
      .def("without_overloaded", &FleetView::WithoutOverloaded)
      .def("only", &FleetView::Only)
      .def("find", py::overload_cast<std::string_view>(&FleetView::Find, py::const_))
      .def("without", [](const FleetView& view, const std::vector<uint32_t>& positions) {
        return view.Without(positions);
      });

  py::class_<RegistryHarness>(testing, "Registry")
      .def(
          py::init<double, double, bool>(), py::arg("guard") = 0.5, py::arg("hold_secs") = 60.0,
          py::arg("staged") = false)
      .def(
          "set_role", &RegistryHarness::SetRole, py::arg("url"), py::arg("worker_type"),
          py::arg("bootstrap_port") = py::none(), py::arg("kv_group") = "")
      .def("stage_view", &RegistryHarness::StageView)
      .def(
          "set_pair_rule",
          [](RegistryHarness& self, bool engine_ids, bool one_engine, bool registered) {
            self.registry().SetPairRule(
                {.engine_ids = engine_ids, .one_engine = one_engine, .registered = registered});
          },
          py::arg("engine_ids"), py::arg("one_engine"), py::arg("registered") = false)
      .def("set_facts", &RegistryHarness::SetFacts)
      .def("refresh", [](RegistryHarness& self) { self.registry().Refresh(); })
      .def("pairs", &RegistryHarness::Pairs)
      .def("roles", &RegistryHarness::Roles)
      .def("reconcile", &RegistryHarness::Reconcile)
      .def("would_reconcile", &RegistryHarness::WouldReconcile)
      .def("adopt", &RegistryHarness::Adopt)
      .def("managed", &RegistryHarness::SetManaged)
      .def("pending", &RegistryHarness::Pending)
      .def("admit", &RegistryHarness::Admit)
      .def("end_holds", &RegistryHarness::EndHolds)
      .def("replaced", &RegistryHarness::Replaced)
      .def("leaving", &RegistryHarness::Leaving)
      .def("drained", &RegistryHarness::Drained)
      .def("rows", &RegistryHarness::Rows)
      .def("set_models", &RegistryHarness::SetModels)
      // True if there is something to publish.
      .def(
          "say_models",
          [](RegistryHarness& self, const std::string& base, const std::vector<std::string>& names) {
            std::vector<ModelCard> cards;
            for (const std::string& name : names) cards.push_back({.id = name});
            return self.registry().SetModels(base, cards, SteadyClock().NowNanos());
          })
      .def("publish_models", [](RegistryHarness& self) { self.registry().PublishModels(); })
      .def(
          "forget_models",
          [](RegistryHarness& self, const std::string& base) {
            if (self.registry().ForgetModels(base)) self.registry().PublishModels();
          })
      .def(
          "await_models",
          [](RegistryHarness& self, const std::string& base) {
            if (self.registry().AwaitModels(base, SteadyClock().NowNanos())) self.registry().PublishModels();
          })
      .def(
          "expect_models",
          [](RegistryHarness& self, const std::vector<std::string>& names, double memory, bool spread) {
            self.registry().ExpectModels(names, static_cast<int64_t>(memory * 1e9), spread);
          },
          py::arg("names"), py::arg("memory_secs"), py::arg("spread") = false)
      .def("models", &RegistryHarness::Models)
      .def("residents_of_models", &RegistryHarness::ResidentsOfModels)
      .def("models_decide", &RegistryHarness::ModelsDecide)
      .def("base_models", &RegistryHarness::BaseModels)
      .def(
          "add",
          [](RegistryHarness& self, const std::string& url, double weight) {
            RaiseIfError(self.registry().AddAll({DeclaredWith(url, weight, self.RoleOfUrl(url))}));
          },
          py::arg("url"), py::arg("weight") = 1.0)
      .def(
          "add_all",
          [](RegistryHarness& self, const std::vector<std::pair<std::string, double>>& workers) {
            std::vector<WorkerDeclaration> declared;
            for (const auto& [url, weight] : workers) declared.push_back(DeclaredWith(url, weight));
            RaiseIfError(self.registry().AddAll(std::move(declared)));
          })
      .def(
          "require_addresses",
          [](RegistryHarness& self) { RaiseIfError(self.registry().RequireAddresses()); })
      .def(
          "remove",
          [](RegistryHarness& self, const std::string& url) { RaiseIfError(self.registry().Remove(url)); })
      .def(
          "set_healthy", [](RegistryHarness& self, const std::string& url,
                            bool healthy) { RaiseIfError(self.registry().SetHealthy(url, healthy)); })
      .def(
          "set_draining", [](RegistryHarness& self, const std::string& url,
                             bool draining) { RaiseIfError(self.registry().SetDraining(url, draining)); })
      // Sets the worker's breaker and slow-start factor as a server would, and publishes.
      .def(
          "set_open",
          [](RegistryHarness& self, const std::string& url, bool open) {
            const std::shared_ptr<const FleetView> view = self.registry().snapshot().Load();
            Worker& worker = *view->members()[view->Find(url).value()].worker;
            const BreakerOptions options{.failure_threshold = 1, .success_threshold = 1, .open_ms = 0};
            if (open) {
              worker.breaker.TryPass(options)->Settle(options, BreakerResult::kFailure, 0);
            } else {
              worker.breaker.ComeDue(options, 0);
              worker.breaker.TryPass(options)->Settle(options, BreakerResult::kSuccess, 0);
            }
            self.registry().Refresh();
          })
      .def(
          "set_in_doubt",
          [](RegistryHarness& self, const std::string& url, bool in_doubt) {
            const std::shared_ptr<const FleetView> view = self.registry().snapshot().Load();
            view->members()[view->Find(url).value()].worker->in_doubt.store(in_doubt);
            self.registry().Refresh();
          })
      .def(
          "set_overloaded",
          [](RegistryHarness& self, const std::string& url, bool overloaded) {
            const std::shared_ptr<const FleetView> view = self.registry().snapshot().Load();
            view->members()[view->Find(url).value()].worker->overloaded.store(overloaded);
            self.registry().Refresh();
          })
      .def(
          "set_slow_start_factor",
          [](RegistryHarness& self, const std::string& url, uint32_t thousandths) {
            const std::shared_ptr<const FleetView> view = self.registry().snapshot().Load();
            view->members()[view->Find(url).value()].worker->slow_start_factor.store(thousandths);
            self.registry().Refresh();
          })
      .def_property_readonly(
          "version", [](RegistryHarness& self) { return self.registry().snapshot().version(); })
      // A copy: Python holds no pointers to const.
      .def_property_readonly("view", [](RegistryHarness& self) { return *self.registry().snapshot().Load(); })
      .def("members", [](RegistryHarness& self) { return self.Members(*self.registry().snapshot().Load()); });
}

}  // namespace vllm_router
