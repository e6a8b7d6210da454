// Where conversations are, without a server.
#include <pybind11/stl.h>

#include "bindings/bindings.h"
#include "routing/session_names.h"
#include "sessions/session_table.h"

namespace vllm_router {

namespace py = pybind11;
using namespace pybind11::literals;

namespace {

using SentHeaders = std::vector<std::pair<std::string, std::string>>;
using NameTuple = std::tuple<std::string, std::string, std::string>;  // session, parent, agent

SessionNames ViewOfNames(const NameTuple& names) {
  const auto& [session, parent, agent] = names;
  return {.session = session, .parent = parent, .agent = agent};
}

NameTuple NamesIn(const SentHeaders& headers) {
  std::vector<HeaderField> fields;
  for (const auto& [name, value] : headers) fields.push_back({name, value});
  const SessionNames names = SessionNamesIn(fields);
  return {std::string(names.session), std::string(names.parent), std::string(names.agent)};
}

std::vector<py::tuple> NewestRows(
    const SessionTable& table, size_t count, const std::optional<std::string>& session) {
  std::vector<py::tuple> rows;
  for (const SessionTable::Session& row : table.Newest(count, session)) {
    rows.push_back(py::make_tuple(
        NameTuple{row.session, row.parent, row.agent}, static_cast<uint32_t>(row.last.worker), row.turns,
        row.moves, row.last.wall_us));
  }
  return rows;
}

}  // namespace

void BindTestingSessions(py::module_& testing) {
  testing.def("session_names", &NamesIn, "headers"_a);
  py::class_<SessionTable>(testing, "SessionTable")
      .def(py::init<size_t>(), "max_sessions"_a)
      .def(
          "record",
          [](SessionTable& table, const NameTuple& names, uint32_t worker, int64_t wall_us) {
            table.Record(ViewOfNames(names), "m", {.worker = WorkerId{worker}, .wall_us = wall_us});
          },
          "names"_a, "worker"_a, "wall_us"_a = 0)
      .def(
          "worker_of",
          [](const SessionTable& table, const NameTuple& names) -> std::optional<uint32_t> {
            const std::optional<WorkerId> worker = table.WorkerOf(ViewOfNames(names));
            return worker ? std::optional(static_cast<uint32_t>(*worker)) : std::nullopt;
          },
          "names"_a)
      // ((session, parent, agent), worker, turns, moves, wall_us) of each
      .def("newest", &NewestRows, "count"_a, "session"_a = py::none())
      .def("__len__", &SessionTable::size);
}

}  // namespace vllm_router
