// Programs of agents, which are active and which wait, without a server.
#include <pybind11/stl.h>

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "admission/program_queue.h"
#include "admission/program_settings.h"
#include "admission/program_table.h"
#include "bindings/bindings.h"
#include "bindings/errors.h"

namespace vllm_router {
namespace {

namespace py = pybind11;
using namespace pybind11::literals;

ProgramSettings ProgramSettingsOf(const std::string& line) {
  return ValueOrThrow(ProgramSettings::Parse(line));
}

std::map<std::string, double> ProgramSettingsRow(const std::string& line) {
  const ProgramSettings settings = ProgramSettingsOf(line);
  return {
      {"mode", static_cast<double>(settings.mode)},
      {"fill", settings.fill},
      {"max_wait_ms", static_cast<double>(settings.max_wait_ms)},
      {"reject_after_ms", static_cast<double>(settings.reject_after_ms)},
      {"forget_ms", static_cast<double>(settings.forget_ms)},
      {"capacity", static_cast<double>(settings.capacity)},
      {"max_active_per_tenant", static_cast<double>(settings.max_active_per_tenant)},
      {"max_active_per_worker", static_cast<double>(settings.max_active_per_worker)}};
}

// Id, capacity, context and prefill rate of each.
using WorkerRows = std::vector<std::tuple<uint32_t, uint64_t, uint64_t, double>>;

std::vector<ProgramTable::Worker> ProgramWorkersIn(const WorkerRows& rows) {
  std::vector<ProgramTable::Worker> workers;
  for (const auto& [id, capacity, context, rate] : rows)
    workers.push_back({.id = WorkerId{id}, .capacity = capacity, .context = context, .prefill_rate = rate});
  return workers;
}

using MaybeUse = std::optional<std::tuple<uint64_t, uint64_t, uint64_t>>;  // prompt, cached, output

// Turns are numbers, and those that were resumed are in the order in which they were told.
class TestProgramQueue {
 public:
  TestProgramQueue(size_t max_programs, const std::string& line) : queue_(max_programs) { Follow(line, 0); }

  void Follow(const std::string& line, int64_t now_ms) {
    queue_.Follow(ProgramSettingsOf(line), Nanos(now_ms));
  }

  std::string Begin(
      uint64_t number, uint64_t program, uint64_t pool, uint64_t tenant, double weight, int of_class,
      uint64_t prompt, uint64_t output, const WorkerRows& rows, int64_t now_ms) {
    auto& turn = turns_[number];
    turn = std::make_unique<Turn>();
    turn->owner = this;
    turn->number = number;
    turn->who = {
        .name = {.high = pool, .low = program},
        .pool = pool,
        .tenant = tenant,
        .weight = weight,
        .of_class = static_cast<PriorityClass>(of_class)};
    turn->prompt = prompt;
    turn->output = output;
    turn->tell = [](ProgramQueue::Turn* told) {
      auto* const one = static_cast<Turn*>(told);
      one->owner->told_.push_back(one->number);
    };
    constexpr std::array<const char*, 4> kBegan = {"active", "resumed", "passed", "waits"};
    const ProgramQueue::Began began = queue_.Begin(turn.get(), ProgramWorkersIn(rows), Nanos(now_ms));
    return kBegan[static_cast<size_t>(began)];
  }
  void Bind(uint64_t number, uint32_t worker) { queue_.Bind(turns_.at(number).get(), WorkerId{worker}); }
  void End(uint64_t number, const MaybeUse& use, bool final, const WorkerRows& rows, int64_t now_ms) {
    std::optional<ProgramTable::Use> used;
    if (use) used = {.prompt = std::get<0>(*use), .cached = std::get<1>(*use), .output = std::get<2>(*use)};
    queue_.End(turns_.at(number).get(), used, final, ProgramWorkersIn(rows), Nanos(now_ms));
  }
  bool Leave(uint64_t number, int64_t now_ms) { return queue_.Leave(turns_.at(number).get(), Nanos(now_ms)); }
  bool Force(uint64_t number, const WorkerRows& rows, int64_t now_ms) {
    return queue_.Force(turns_.at(number).get(), ProgramWorkersIn(rows), Nanos(now_ms));
  }
  void Pump(uint64_t pool, const WorkerRows& rows, int64_t now_ms) {
    queue_.Pump(pool, ProgramWorkersIn(rows), Nanos(now_ms));
  }
  void FollowFleet(const WorkerRows& rows, int64_t now_ms) {
    queue_.FollowFleet(ProgramWorkersIn(rows), Nanos(now_ms));
  }
  bool HasRoom(uint64_t number, const WorkerRows& rows) const {
    return queue_.HasRoom(*turns_.at(number), ProgramWorkersIn(rows).front());
  }
  // Where its program's tokens count; None: nowhere.
  std::optional<uint32_t> WorkerOf(uint64_t number) const {
    const Turn& turn = *turns_.at(number);
    if (!turn.is_counted()) return std::nullopt;
    return static_cast<uint32_t>(turn.worker);
  }
  bool IsPlaced(uint64_t number) const { return turns_.at(number)->is_placed; }
  std::vector<uint64_t> Told() { return std::exchange(told_, {}); }
  size_t size() const { return queue_.size(); }
  bool any_waiting() const { return queue_.any_waiting(); }

  py::dict Read() const {
    const ProgramTable::Report report = queue_.Read();
    py::dict workers;
    for (const ProgramTable::WorkerRow& row : report.workers)
      workers[py::int_(static_cast<uint32_t>(row.id))] = py::make_tuple(row.tokens, row.active, row.acting);
    py::dict paused_by, went;
    for (size_t i = 0; i < ProgramTable::kPausedBy; ++i)
      paused_by[py::str(std::string(ProgramTable::kPausedByNames[i]))] = report.paused_by[i];
    for (size_t i = 0; i < ProgramTable::kWent; ++i)
      went[py::str(std::string(ProgramTable::kWentNames[i]))] = report.went[i];
    return py::dict(
        "reasoning"_a = report.reasoning, "acting"_a = report.acting, "waiting"_a = report.waiting,
        "paused"_a = report.paused, "forgotten"_a = report.forgotten, "paused_by"_a = paused_by,
        "went"_a = went, "workers"_a = workers);
  }

 private:
  struct Turn : ProgramQueue::Turn {
    TestProgramQueue* owner = nullptr;
    uint64_t number = 0;
  };
  static int64_t Nanos(int64_t ms) { return ms * 1'000'000; }

  std::map<uint64_t, std::unique_ptr<Turn>> turns_;
  std::vector<uint64_t> told_;
  ProgramQueue queue_;
};

}  // namespace

void BindTestingPrograms(py::module_& testing) {
  testing.def("program_settings", &ProgramSettingsRow, "line"_a);
  testing.def(
      "program_ttl_ns",
      [](const std::string& line, uint64_t tokens, double rate) {
        return ProgramSettingsOf(line).TtlNs(tokens, rate);
      },
      "line"_a, "tokens"_a, "rate"_a);
  py::class_<TestProgramQueue>(testing, "ProgramQueue")
      .def(py::init<size_t, const std::string&>(), "max_programs"_a = 1000, "line"_a = "on")
      .def("follow", &TestProgramQueue::Follow, "line"_a, "now_ms"_a = 0)
      .def(
          "begin", &TestProgramQueue::Begin, "number"_a, "program"_a, "pool"_a = 0, "tenant"_a = 0,
          "weight"_a = 1.0, "of_class"_a = 1, "prompt"_a = 0, "output"_a = 0, "workers"_a, "now_ms"_a = 0)
      .def("bind", &TestProgramQueue::Bind, "number"_a, "worker"_a)
      .def(
          "end", &TestProgramQueue::End, "number"_a, "use"_a = py::none(), "final"_a = false, "workers"_a,
          "now_ms"_a = 0)
      .def("leave", &TestProgramQueue::Leave, "number"_a, "now_ms"_a = 0)
      .def("force", &TestProgramQueue::Force, "number"_a, "workers"_a, "now_ms"_a = 0)
      .def("pump", &TestProgramQueue::Pump, "pool"_a, "workers"_a, "now_ms"_a = 0)
      .def("follow_fleet", &TestProgramQueue::FollowFleet, "workers"_a, "now_ms"_a = 0)
      .def("has_room", &TestProgramQueue::HasRoom, "number"_a, "workers"_a)
      .def("worker_of", &TestProgramQueue::WorkerOf)
      .def("is_placed", &TestProgramQueue::IsPlaced)
      .def("told", &TestProgramQueue::Told)
      .def("read", &TestProgramQueue::Read)
      .def_property_readonly("size", &TestProgramQueue::size)
      .def_property_readonly("any_waiting", &TestProgramQueue::any_waiting);
}

}  // namespace vllm_router
