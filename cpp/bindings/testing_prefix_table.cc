#include <pybind11/stl.h>

#include <tuple>

#include "bindings/bindings.h"
#include "index/prefix_table.h"

namespace vllm_router {

namespace py = pybind11;

namespace {

using HeldTuple = std::tuple<uint32_t, uint32_t, bool>;  // worker, tokens, on the GPU

Digest256 DigestOf(const py::bytes& bytes) {
  const std::string_view view(bytes);
  Digest256 digest{};
  if (view.size() != digest.size()) throw py::value_error("a digest has 32 bytes");
  std::copy(view.begin(), view.end(), digest.begin());
  return digest;
}

std::vector<HeldTuple> Tuples(const std::vector<PrefixTable::Held>& held) {
  std::vector<HeldTuple> tuples;
  for (const PrefixTable::Held& one : held)
    tuples.emplace_back(static_cast<uint32_t>(one.worker), one.tokens, one.on_gpu);
  return tuples;
}

int64_t Nanos(double seconds) { return static_cast<int64_t>(seconds * 1e9); }

}  // namespace

// Times in seconds, workers as numbers, digests as bytes.
void BindTestingPrefixTable(py::module_& testing) {
  py::class_<PrefixTable>(testing, "PrefixTable")
      .def(
          py::init([](size_t max_entries, double ttl) {
            return std::make_unique<PrefixTable>(
                PrefixTableOptions{.max_entries = max_entries, .ttl_ns = Nanos(ttl)});
          }),
          py::arg("max_entries"), py::arg("ttl"))
      .def_property_readonly_static("MAX_HOLDERS", [](const py::object&) { return PrefixTable::kMaxHolders; })
      .def(
          "set_workers",
          [](PrefixTable& self, const std::vector<uint32_t>& numbers) {
            std::vector<WorkerId> workers;
            for (const uint32_t number : numbers) workers.push_back(WorkerId{number});
            self.SetWorkers(workers);
          })
      .def(
          "put",
          [](PrefixTable& self, const py::bytes& prefix, uint32_t worker, std::optional<uint32_t> tokens,
             bool on_gpu,
             double now) { return self.Put(DigestOf(prefix), WorkerId{worker}, tokens, on_gpu, Nanos(now)); })
      .def(
          "remove", [](PrefixTable& self, const py::bytes& prefix,
                       uint32_t worker) { return self.Remove(DigestOf(prefix), WorkerId{worker}); })
      .def(
          "remove_all_of",
          [](PrefixTable& self, uint32_t worker) { return self.RemoveAllOf(WorkerId{worker}); })
      .def(
          "clear",
          [](PrefixTable& self) {
            PrefixTable::Cleared cleared;
            while (self.ClearNext(&cleared)) {
            }
            return std::pair(cleared.entries, cleared.workers.size());
          })
      .def(
          "find",
          [](PrefixTable& self, const py::bytes& prefix, double now) {
            std::vector<PrefixTable::Held> held;
            self.Find(DigestOf(prefix), Nanos(now), &held);
            return Tuples(held);
          })
      .def(
          "peek",
          [](const PrefixTable& self, const py::bytes& prefix, double now) {
            std::vector<PrefixTable::Held> held;
            self.Peek(DigestOf(prefix), Nanos(now), &held);
            return Tuples(held);
          })
      .def("sweep", [](PrefixTable& self, double now, size_t most) { return self.Sweep(Nanos(now), most); })
      // So many different prefixes from `first` on, all of one worker. Without the GIL.
      .def(
          "put_many",
          [](PrefixTable& self, uint64_t first, uint64_t count, uint32_t worker, double now) {
            const py::gil_scoped_release release;
            for (uint64_t i = first; i < first + count; ++i) {
              const Digest256 digest =
                  Sha256({std::string_view(reinterpret_cast<const char*>(&i), sizeof i)});
              self.Put(digest, WorkerId{worker}, 16, true, Nanos(now));
            }
          })
      .def("stats", [](const PrefixTable& self) {
        const PrefixTable::Stats stats = self.stats();
        return std::tuple(stats.prefixes, stats.entries, stats.hits, stats.evictions);
      });
}

}  // namespace vllm_router
