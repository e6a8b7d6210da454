// Settings of priority classes, their queues, which workers have room, and pools of both, without a server.
#include <pybind11/stl.h>

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "admission/admission_settings.h"
#include "admission/class_pool.h"
#include "admission/class_queues.h"
#include "admission/dispatch_rate.h"
#include "admission/evictables.h"
#include "admission/pool_room.h"
#include "admission/whole_responses.h"
#include "bindings/bindings.h"
#include "bindings/errors.h"
#include "bindings/load_for_test.h"
#include "bindings/py_router.h"
#include "proxy/admission/class_pools.h"
#include "proxy/admission/engine_priority.h"
#include "routing/body_map.h"
#include "routing/prompt_holders.h"
#include "worker/fleet_view.h"
#include "worker/worker.h"

namespace vllm_router {
namespace {

namespace py = pybind11;
using namespace pybind11::literals;

std::shared_ptr<const AdmissionSettings> SettingsOf(const std::string& lines) {
  return std::make_shared<const AdmissionSettings>(ValueOrThrow(AdmissionSettings::Parse(lines)));
}

PriorityClass ClassOf(const std::string& name) {
  const std::optional<PriorityClass> found = PriorityClassByName(name);
  if (!found) throw py::value_error("there is no class " + name);
  return *found;
}

py::dict SettingsRows(const std::string& lines) {
  const AdmissionSettings settings = ValueOrThrow(AdmissionSettings::Parse(lines));
  py::dict classes;
  for (size_t i = 0; i < settings.classes.size(); ++i) {
    const ClassSettings& one = settings.classes[i];
    const auto name = PriorityClassName(static_cast<PriorityClass>(i));
    classes[py::str(std::string(name))] = py::dict(
        "queue_size"_a = one.queue_size, "queue_timeout_ms"_a = one.queue_timeout_ms,
        "gate"_a = ClassGateName(one.room.gate), "kv_ceiling"_a = one.room.kv_ceiling,
        "age_after_ms"_a = one.age_after_ms, "weight"_a = one.weight, "evict"_a = one.evict);
  }
  py::dict aliases;
  for (const auto& [alias, given] : settings.aliases) aliases[py::str(alias)] = PriorityClassName(given);
  py::dict tenants;
  for (const auto& [name, one] : settings.tenants) {
    tenants[py::str(name)] = py::dict(
        "weight"_a = one.weight, "concurrency"_a = one.limits.concurrency,
        "requests_per_minute"_a = one.limits.requests_per_minute,
        "tokens_per_minute"_a = one.limits.tokens_per_minute, "burst_ms"_a = one.limits.burst_ms);
  }
  py::object engine = py::none();
  if (settings.engine.is_told) {
    std::vector<int32_t> values;
    for (size_t i = 0; i < settings.classes.size(); ++i)
      values.push_back(settings.engine.ValueOf(static_cast<PriorityClass>(i)));
    engine = py::dict(
        "larger_first"_a = settings.engine.larger_first,
        "client"_a = static_cast<int>(settings.engine.client), "values"_a = values);
  }
  return py::dict(
      "engine"_a = engine, "classes"_a = classes, "aliases"_a = aliases, "tenants"_a = tenants,
      "weighted"_a = settings.weighted());
}

// Waiters by number.
class TestClassQueues {
 public:
  explicit TestClassQueues(const std::string& lines) : queues_(SettingsOf(lines)) {}

  // Whether it is queued, and the waiter that it displaced.
  std::pair<bool, std::optional<uint64_t>> Enqueue(
      uint64_t number, const std::string& of_class, uint64_t tenant, uint64_t cost, int64_t now_ms) {
    auto& waiter = waiters_[number];
    waiter = std::make_unique<ClassQueues::Waiter>();
    waiter->of_class = ClassOf(of_class);
    waiter->tenant = tenant;
    waiter->cost = cost;
    const ClassQueues::Entered entered = queues_.Enqueue(waiter.get(), now_ms * 1'000'000);
    return {
        entered.queued,
        entered.displaced != nullptr ? std::optional(NumberOf(entered.displaced)) : std::nullopt};
  }
  // Of one that was taken and settled.
  void EnqueueInFront(uint64_t number, int64_t now_ms) {
    ClassQueues::Waiter& waiter = *waiters_.at(number);
    waiter.in_front = true;
    queues_.Enqueue(&waiter, now_ms * 1'000'000);
  }
  // The number and how. `room`: whether each class has a worker with room.
  std::optional<std::pair<uint64_t, std::string>> Next(const std::array<bool, 3>& room, int64_t now_ms) {
    constexpr std::array<uint32_t, 1> kWorker = {7};
    ClassQueues::Workers workers;
    for (size_t i = 0; i < room.size(); ++i) {
      if (room[i]) workers[i] = kWorker;
    }
    const ClassQueues::Dispatched next = queues_.Next(workers, now_ms * 1'000'000);
    if (next.waiter == nullptr) return std::nullopt;
    return std::pair(NumberOf(next.waiter), std::string(DispatchKindName(next.kind)));
  }
  void Passed(const std::string& of_class) { queues_.Passed(ClassOf(of_class)); }
  void Requeue(uint64_t number) { queues_.Requeue(waiters_.at(number).get()); }
  bool Remove(uint64_t number) { return queues_.Remove(waiters_.at(number).get()); }
  void Settle(uint64_t number, uint64_t actual) { queues_.Settle(*waiters_.at(number), actual); }
  void Follow(const std::string& lines) { queues_.Follow(SettingsOf(lines)); }
  std::array<size_t, 3> Sizes() const {
    return {
        queues_.waiters(PriorityClass::kInteractive), queues_.waiters(PriorityClass::kDefault),
        queues_.waiters(PriorityClass::kBatch)};
  }
  uint64_t QueuedCost(const std::string& of_class) const { return queues_.QueuedCost(ClassOf(of_class)); }
  uint32_t mask() const { return queues_.mask(); }

 private:
  uint64_t NumberOf(const ClassQueues::Waiter* waiter) const {
    for (const auto& [number, known] : waiters_) {
      if (known.get() == waiter) return number;
    }
    throw py::value_error("it is another queue's waiter");
  }

  std::map<uint64_t, std::unique_ptr<ClassQueues::Waiter>> waiters_;
  ClassQueues queues_;
};

// A pool before workers whose loads are set.
class TestClassPool {
 public:
  TestClassPool(size_t workers, const std::string& lines, uint32_t max_requests, uint64_t permits)
      : settings_(SettingsOf(lines)),
        whole_(std::make_unique<WholeResponses>()),
        pool_("", settings_),
        max_requests_(max_requests),
        permits_(permits) {
    for (size_t i = 0; i < workers; ++i) {
      workers_.push_back(std::make_shared<Worker>(
          WorkerId{static_cast<uint32_t>(i)}, WorkerUrl{}, kWeightOne, std::make_shared<WorkerLoad>()));
    }
    SetHealthy(true);
  }

  void SetHealthy(bool healthy) {
    std::vector<FleetView::Member> members;
    for (const std::shared_ptr<Worker>& worker : workers_)
      members.push_back({.worker = worker, .healthy = healthy});
    fleet_ = std::make_unique<FleetView>(std::move(members), 1);
  }
  void SetLoad(size_t worker, int64_t requests, int64_t waiting, int64_t queued_prefill) {
    LoadForTest::Set(
        workers_.at(worker)->load,
        {.requests = requests, .waiting = waiting, .queued_prefill = queued_prefill});
  }
  void SetReport(size_t worker, float kv_use, uint32_t others_queued) {
    workers_.at(worker)->kv_use = kv_use;
    workers_.at(worker)->others_queued = others_queued;
  }
  // Those of other routers that tell of them.
  void SetPeers(size_t worker, int64_t requests, int64_t waiting) {
    workers_.at(worker)->load.SetPeers({.requests = requests, .waiting = waiting}, {});
  }
  void AddWhole(size_t worker, uint32_t tokens, int sign) {
    whole_->Add(workers_.at(worker)->id, tokens, sign);
  }
  void SetTime(int64_t now_ms) { now_ns_ = now_ms * 1'000'000; }

  bool TryPass(const std::string& of_class) {
    const PriorityClass named = ClassOf(of_class);
    if (settings_->of(named).room.gate != ClassGate::kIdleOnly) pool_.HigherCame(now_ns_);
    return pool_.TryPass(named, *fleet_, Limits(), now_ns_);
  }
  // Whether it is queued, and the milliseconds of Retry-After.
  std::pair<bool, int64_t> Enqueue(
      uint64_t number, const std::string& of_class, uint64_t tenant, uint64_t cost) {
    auto& waiter = waiters_[number];
    waiter = std::make_unique<Waiter>();
    waiter->owner = this;
    waiter->number = number;
    waiter->of_class = ClassOf(of_class);
    waiter->tenant = tenant;
    waiter->cost = cost;
    waiter->tell = [](ClassPool::Waiter* told, WaitEnd end) {
      auto* const one = static_cast<Waiter*>(told);
      constexpr std::array<const char*, 6> kEnds = {"dispatched", "full", "displaced",
                                                    "timeout",    "left", "moved"};
      one->owner->told_.emplace_back(one->number, kEnds[static_cast<size_t>(end)]);
    };
    const ClassPool::Entered entered = pool_.Enqueue(waiter.get(), 0, now_ns_);
    return {entered.queued, entered.retry_after_ns / 1'000'000};
  }
  bool Leave(uint64_t number) { return pool_.Leave(waiters_.at(number).get(), 0, now_ns_); }
  bool Retire() { return pool_.Retire(now_ns_); }
  void Requeue(uint64_t number) { pool_.Requeue(waiters_.at(number).get(), now_ns_); }
  void Settle(uint64_t number, uint64_t actual) { pool_.Settle(*waiters_.at(number), actual); }
  void Pump() { pool_.Pump(*fleet_, Limits(), now_ns_); }
  std::vector<std::pair<uint64_t, std::string>> Told() { return std::exchange(told_, {}); }
  // Positions by reason of the class, none if there is room.
  std::vector<uint32_t> Closed(const std::string& of_class) const {
    const WorkerPositions closed =
        ClosedFor(*fleet_, ClassOf(of_class), Limits(), pool_.RoomNow(*fleet_, Limits(), now_ns_), now_ns_);
    return {closed.begin(), closed.end()};
  }
  std::map<std::string, uint32_t> Reasons(const std::string& of_class) const {
    const OpenWorkers open = FindOpen(*fleet_, Limits(), pool_.RoomNow(*fleet_, Limits(), now_ns_), now_ns_);
    std::map<std::string, uint32_t> reasons;
    const auto index = static_cast<size_t>(ClassOf(of_class));
    for (size_t i = 0; i < OpenWorkers::kReasons; ++i) {
      if (open.closed[index][i] != 0)
        reasons[std::string(ClosedByName(static_cast<ClosedBy>(i)))] = open.closed[index][i];
    }
    return reasons;
  }
  std::pair<std::vector<uint64_t>, int64_t> Read() const {
    const ClassPool::Report report = pool_.Read(now_ns_);
    return {{report.waiting.begin(), report.waiting.end()}, report.choosing};
  }
  ClassPool& pool() { return pool_; }

 private:
  struct Waiter : ClassPool::Waiter {
    TestClassPool* owner = nullptr;
    uint64_t number = 0;
  };

  RoomLimits Limits() const {
    return {
        .settings = *settings_,
        .whole = *whole_,
        .max_worker_requests = max_requests_,
        .free_permits = permits_};
  }

  std::shared_ptr<const AdmissionSettings> settings_;
  std::unique_ptr<WholeResponses> whole_;
  ClassPool pool_;
  const uint32_t max_requests_;
  const uint64_t permits_;
  std::vector<std::shared_ptr<Worker>> workers_;
  std::unique_ptr<FleetView> fleet_;
  int64_t now_ns_ = 0;
  std::map<uint64_t, std::unique_ptr<Waiter>> waiters_;
  std::vector<std::pair<uint64_t, std::string>> told_;
};

// Requests by their numbers; those that were evicted, in order.
class TestEvictables {
 public:
  uint64_t Add(
      uint32_t worker, const std::string& of_class, uint32_t tokens, int64_t chosen_ms, uint32_t evictions) {
    const uint64_t request = ++count_;
    numbers_[request] = evictables_.Add(
        WorkerId{worker},
        {.of_class = ClassOf(of_class),
         .tokens = tokens,
         .chosen_ns = chosen_ms * 1'000'000,
         .evictions = evictions},
        [this, request] { evicted_.push_back(request); });
    return request;
  }
  void Remove(uint32_t worker, uint64_t request) {
    evictables_.Remove(WorkerId{worker}, numbers_.at(request));
  }
  std::optional<uint64_t> EvictAt(uint32_t worker, int64_t now_ms, double pace, const std::string& lines) {
    const bool has_evicted =
        evictables_.EvictAt(WorkerId{worker}, *SettingsOf(lines), pace, now_ms * 1'000'000);
    return has_evicted ? std::optional(evicted_.back()) : std::nullopt;
  }
  size_t size() const { return evictables_.size(); }
  std::vector<uint64_t> evicted() const { return evicted_; }

 private:
  Evictables evictables_;
  uint64_t count_ = 0;
  std::map<uint64_t, Evictables::Number> numbers_;
  std::vector<uint64_t> evicted_;
};

}  // namespace

void BindTestingClasses(py::module_& testing) {
  testing.def("admission_settings", &SettingsRows, "lines"_a = "");
  testing.def("retry_after_ns", &RetryAfterNs, "cost_before"_a, "rate"_a, "random"_a);
  py::class_<DispatchRate>(testing, "DispatchRate")
      .def(py::init<>())
      .def("add", &DispatchRate::Add, "cost"_a, "now_ns"_a)
      .def("at", &DispatchRate::At, "now_ns"_a);
  py::class_<TestClassQueues>(testing, "ClassQueues")
      .def(py::init<const std::string&>(), "lines"_a = "")
      .def(
          "enqueue", &TestClassQueues::Enqueue, "number"_a, "of_class"_a, "tenant"_a = 0, "cost"_a = 1,
          "now_ms"_a = 0)
      .def("enqueue_in_front", &TestClassQueues::EnqueueInFront)
      .def("next", &TestClassQueues::Next, "room"_a, "now_ms"_a = 0)
      .def("passed", &TestClassQueues::Passed)
      .def("requeue", &TestClassQueues::Requeue)
      .def("remove", &TestClassQueues::Remove)
      .def("settle", &TestClassQueues::Settle, "number"_a, "actual"_a)
      .def("follow", &TestClassQueues::Follow)
      .def("queued_cost", &TestClassQueues::QueuedCost)
      .def_property_readonly("sizes", &TestClassQueues::Sizes)
      .def_property_readonly("mask", &TestClassQueues::mask);
  testing.def(
      "tokens_left",
      [](uint32_t tokens, double pace, int64_t ms) {
        return TokensLeft({.tokens = tokens}, pace, ms * 1'000'000);
      },
      "tokens"_a, "pace"_a, "ms"_a);
  py::class_<TestEvictables>(testing, "Evictables")
      .def(py::init<>())
      .def(
          "add", &TestEvictables::Add, "worker"_a, "of_class"_a = "batch", "tokens"_a = 50'000,
          "chosen_ms"_a = 0, "evictions"_a = 0)
      .def("remove", &TestEvictables::Remove)
      .def(
          "evict_at", &TestEvictables::EvictAt, "worker"_a, "now_ms"_a = 0, "pace"_a = 10'000.0,
          "lines"_a = "class batch evict=true")
      .def_property_readonly("size", &TestEvictables::size)
      .def_property_readonly("evicted", &TestEvictables::evicted);
  testing.def("prefill_ns", &WholeResponses::PrefillNs);
  py::class_<TestClassPool>(testing, "ClassPool")
      .def(
          py::init<size_t, const std::string&, uint32_t, uint64_t>(), "workers"_a, "lines"_a = "",
          "max_requests"_a = 0, "permits"_a = 1000)
      .def("set_healthy", &TestClassPool::SetHealthy)
      .def(
          "set_load", &TestClassPool::SetLoad, "worker"_a, "requests"_a, "waiting"_a = 0,
          "queued_prefill"_a = 0)
      .def("set_report", &TestClassPool::SetReport, "worker"_a, "kv_use"_a, "others_queued"_a = 0)
      .def("set_peers", &TestClassPool::SetPeers, "worker"_a, "requests"_a, "waiting"_a)
      .def("add_whole", &TestClassPool::AddWhole)
      .def("set_time", &TestClassPool::SetTime)
      .def("try_pass", &TestClassPool::TryPass)
      .def("enqueue", &TestClassPool::Enqueue, "number"_a, "of_class"_a, "tenant"_a = 0, "cost"_a = 1)
      .def("leave", &TestClassPool::Leave)
      .def("requeue", &TestClassPool::Requeue)
      .def("settle", &TestClassPool::Settle)
      .def("pump", &TestClassPool::Pump)
      .def("told", &TestClassPool::Told)
      .def("closed", &TestClassPool::Closed)
      .def("reasons", &TestClassPool::Reasons)
      .def("read", &TestClassPool::Read)
      .def("chosen", [](TestClassPool& self) { self.pool().Chosen(); })
      .def("end_prefill", [](TestClassPool& self) { self.pool().EndPrefill(); })
      .def(
          "must_wait", [](TestClassPool& self,
                          const std::string& of_class) { return self.pool().MustWait(ClassOf(of_class)); })
      .def("dispatch_all", [](TestClassPool& self) { self.pool().DispatchAll(0); })
      .def("retire", &TestClassPool::Retire)
      .def("move_all", [](TestClassPool& self) { self.pool().MoveAll(); });
  // The body that an engine gets, by the lines of the file and the class.
  testing.def(
      "priority_edits", [](const std::string& body, const std::string& lines, const std::string& of_class) {
        const AdmissionSettings settings = ValueOrThrow(AdmissionSettings::Parse(lines));
        const BodyMap map = BodyMap::Read(body);
        std::string text;
        SplicedBody copy;
        copy.Add(body);
        for (const BodyInsertion& edit : PriorityEdits(map, settings.engine, ClassOf(of_class), &text))
          copy.Insert(edit);
        return py::bytes(copy.Joined());
      });
  // Worker URLs and shares, the largest first.
  testing.def(
      "prompt_holders",
      [](PyRouter& self, const std::string& prompt) {
        Router& router = self.router();
        RoutingKey key = router.MakeKey({.prompt = prompt});
        const std::shared_ptr<const FleetView> fleet = router.fleet();
        std::vector<std::pair<std::string, float>> found;
        for (const PromptHolder& holder : FindHolders(router, &key, *fleet)) {
          if (holder.share > 0)
            found.emplace_back(fleet->worker(fleet->Find(holder.worker).value()).url.url, holder.share);
        }
        if (key.dry_run || key.explanation != nullptr) throw py::value_error("the key is not as it was");
        return found;
      },
      "router"_a, "prompt"_a);
  py::class_<ClassPools>(testing, "ClassPools")
      .def(py::init<>())
      .def("follow", [](ClassPools& self, const std::string& lines) { ThrowIfError(self.Follow(lines)); })
      .def_property_readonly(
          "on", [](const ClassPools& self) { return self.rules().Load()->settings != nullptr; })
      .def_property_readonly("version", [](const ClassPools& self) { return self.rules().version(); })
      // Its address.
      .def(
          "find",
          [](ClassPools& self, uint64_t number) {
            return reinterpret_cast<uintptr_t>(
                self.Find({.number = number}, "", self.rules().Load()->settings).get());
          })
      .def_property_readonly("pools", [](const ClassPools& self) { return self.All().size(); });
}

}  // namespace vllm_router
