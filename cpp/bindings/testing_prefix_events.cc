// Events about prefixes: how their streams are read, and what they do to a table.
#include <array>

#include <pybind11/stl.h>

#include "bindings/bindings.h"
#include "bindings/errors.h"
#include "events/prefix_source.h"
#include "events/reconnect_delay.h"
#include "events/sse_event.h"
#include "worker/worker_registry.h"

namespace vllm_router {

namespace py = pybind11;

namespace {

constexpr std::array<std::string_view, 5> kKindNames = {
    "created", "evicted", "offloaded", "reloaded", "purged"};

// ("created", prefix or None, tokens or None), or the problem.
py::object EventOrProblem(std::string_view type, std::string_view data) {
  const PrefixEventOrProblem read = ReadPrefixEvent(type, data);
  if (!read.event) return py::str(std::string(read.problem));
  py::object prefix = py::none();
  if (read.event->prefix) {
    const Digest256& digest = *read.event->prefix;
    prefix = py::bytes(reinterpret_cast<const char*>(digest.data()), digest.size());
  }
  return py::make_tuple(kKindNames[static_cast<size_t>(read.event->kind)], prefix, read.event->tokens);
}

// What is held of one prefix by worker 1 after each of `events`, (type, data) each: "gpu", "storage" or "".
std::vector<std::string> HeldAfter(
    StorageOffloading offloading, const std::vector<std::pair<std::string, std::string>>& events,
    const Digest256& prefix) {
  PrefixTable table({.offloading = offloading});
  const WorkerId worker{1};
  table.SetWorkers({&worker, 1});
  std::vector<std::string> after;
  std::vector<PrefixTable::Held> held;
  for (const auto& [type, data] : events) {
    const PrefixEventOrProblem read = ReadPrefixEvent(type, data);
    if (read.event) ApplyPrefixEvent(*read.event, worker, 0, &table);
    table.Find(prefix, 0, &held);
    after.emplace_back(held.empty() ? "" : held.front().on_gpu ? "gpu" : "storage");
  }
  return after;
}

}  // namespace

void BindTestingPrefixEvents(py::module_& testing) {
  testing.def("read_prefix_event", [](const py::bytes& type, const py::bytes& data) {
    return EventOrProblem(std::string_view(type), std::string_view(data));
  });
  testing.def(
      "prefix_held_after",
      [](const std::string& offloading, const std::vector<std::pair<std::string, std::string>>& events,
         const py::bytes& prefix) {
        const std::string_view bytes(prefix);
        Digest256 digest{};
        std::copy_n(bytes.begin(), std::min(bytes.size(), digest.size()), digest.begin());
        return HeldAfter(
            offloading == "evictions"  ? StorageOffloading::kEvictions
            : offloading == "offloads" ? StorageOffloading::kOffloads
                                       : StorageOffloading::kOff,
            events, digest);
      });
  testing.def("parse_prefix_source", [](std::string_view option, std::string_view value) {
    const PrefixSource source = ValueOrThrow(ParsePrefixSource(option, value));
    return py::make_tuple(
        source.name, source.endpoint.url, source.target, source.reconnect_ms, source.worker);
  });
  // The URL of the source's worker in a fleet of `urls`.
  testing.def("find_worker_of", [](std::string_view value, const std::vector<std::string>& urls) {
    WorkerRegistry registry([](const FleetView&) { return std::shared_ptr<const FleetPlan>(); });
    for (const std::string& url : urls) ThrowIfError(registry.Add(url));
    const PrefixSource source = ValueOrThrow(ParsePrefixSource("kv_prefix_source", value));
    const std::shared_ptr<const FleetView> fleet = registry.snapshot().Load();
    return fleet->worker(ValueOrThrow(FindWorkerOf(source, *fleet))).url.url;
  });
  py::class_<ReconnectDelay>(testing, "ReconnectDelay")
      .def(py::init<int64_t>())
      .def("set_first", &ReconnectDelay::SetFirst)
      .def("next", &ReconnectDelay::Next, py::arg("good_ns"), py::arg("rejected"), py::arg("share"));
}

}  // namespace vllm_router
