#include <pybind11/stl.h>

#include <set>

#include "bindings/bindings.h"
#include "index/distinct_count.h"
#include "index/hash_ring.h"
#include "index/index_image.h"
#include "index/load_bound.h"
#include "index/shared_hits.h"
#include "index/stick_table.h"

namespace vllm_router {

namespace py = pybind11;

namespace {

struct OwnedReader {
  explicit OwnedReader(std::string payload) : bytes(std::move(payload)), reader(bytes) {}
  const std::string bytes;
  ImageReader reader;
};

}  // namespace

void BindTestingIndex(py::module_& testing) {
  py::class_<DistinctCount>(testing, "DistinctCount")
      .def(py::init<>())
      .def(
          "add",
          [](DistinctCount& self, const std::vector<uint64_t>& hashes) {
            for (const uint64_t hash : hashes) self.Add(hash);
          })
      .def("estimate", &DistinctCount::Estimate);
  py::class_<SharedHits>(testing, "SharedHits")
      .def(py::init([](const std::vector<std::pair<uint32_t, uint32_t>>& given) {
        std::vector<BlockRange> ranges;
        for (const auto& [begin, end] : given) ranges.push_back({begin, end});
        return SharedHits(std::move(ranges));
      }))
      .def("total", &SharedHits::total)
      .def("beyond", &SharedHits::Beyond)
      .def("ranges", [](const SharedHits& self) {
        std::vector<std::pair<uint32_t, uint32_t>> ranges;
        for (const BlockRange& range : self.ranges()) ranges.emplace_back(range.begin, range.end);
        return ranges;
      });
  testing.def(
      "load_cap",
      [](uint64_t total, uint64_t total_weight, uint32_t factor, uint32_t weight) {
        return LoadBound(total, total_weight, factor).Cap(weight);
      },
      py::arg("total"), py::arg("total_weight"), py::arg("factor"), py::arg("weight"));
  // Times in seconds, workers as numbers.
  py::class_<StickTable>(testing, "StickTable")
      .def(
          py::init([](size_t max_entries, double ttl) {
            return std::make_unique<StickTable>(
                StickTable::Options{.max_entries = max_entries, .ttl_ns = static_cast<int64_t>(ttl * 1e9)});
          }),
          py::arg("max_entries"), py::arg("ttl"))
      .def(
          "stick",
          [](StickTable& self, std::string_view name, uint32_t worker, double now) {
            self.Stick(name, WorkerId{worker}, static_cast<int64_t>(now * 1e9));
          },
          py::arg("name"), py::arg("worker"), py::arg("now"))
      .def(
          "find",
          [](StickTable& self, std::string_view name, double now) -> std::optional<uint32_t> {
            const std::optional<WorkerId> worker = self.Find(name, static_cast<int64_t>(now * 1e9));
            if (!worker) return std::nullopt;
            return static_cast<uint32_t>(*worker);
          },
          py::arg("name"), py::arg("now"))
      .def(
          "forget",
          [](StickTable& self, std::string_view name, double now) {
            return self.Forget(name, static_cast<int64_t>(now * 1e9));
          },
          py::arg("name"), py::arg("now"))
      // place(known, counts): both as Python objects.
      .def(
          "find_or_stick",
          [](StickTable& self, std::string_view name, double now, const py::function& place) {
            const auto placed = self.FindOrStick(
                name, static_cast<int64_t>(now * 1e9),
                [&place](std::optional<WorkerId> known, const StickTable::Counts& counts) {
                  py::dict numbers;
                  for (const auto& [worker, count] : counts) {
                    numbers[py::int_(static_cast<uint32_t>(worker))] = count;
                  }
                  std::optional<uint32_t> number;
                  if (known) number = static_cast<uint32_t>(*known);
                  const auto answer = place(number, numbers).cast<std::optional<uint32_t>>();
                  return answer ? std::optional(WorkerId{*answer}) : std::nullopt;
                });
            return placed ? std::optional(static_cast<uint32_t>(*placed)) : std::nullopt;
          },
          py::arg("name"), py::arg("now"), py::arg("place"))
      .def("__len__", &StickTable::size);
  py::class_<HashRing>(testing, "HashRing")
      .def(
          py::init([](const std::vector<std::pair<std::string, uint32_t>>& names_and_points,
                      HashFunction function) {
            std::vector<HashRing::Node> nodes;
            for (const auto& [name, points] : names_and_points)
              nodes.push_back({.name = name, .points = points});
            return HashRing(nodes, function);
          }),
          py::arg("names_and_points"), py::arg("function"))
      .def(
          "changed",
          [](const HashRing& ring, const std::vector<std::pair<std::string, uint32_t>>& names_and_points) {
            std::vector<HashRing::Node> nodes;
            for (const auto& [name, points] : names_and_points)
              nodes.push_back({.name = name, .points = points});
            return ring.Changed(nodes);
          },
          py::arg("names_and_points"))
      .def("__len__", &HashRing::size)
      .def(
          "points",
          [](const HashRing& ring) {
            std::vector<std::pair<uint64_t, uint32_t>> points;
            for (size_t i = 0; i < ring.size(); ++i) points.emplace_back(ring.hash(i), ring.owner(i));
            return points;
          })
      .def(
          "find_point",
          [](const HashRing& ring, uint64_t hash) -> std::optional<size_t> {
            if (ring.empty()) return std::nullopt;
            return ring.FindPoint(hash);
          })
      .def(
          "find_owner",
          [](const HashRing& ring, uint64_t hash,
             const std::set<uint32_t>& accepted) -> std::optional<uint32_t> {
            const uint32_t owner =
                ring.FindOwner(hash, [&](uint32_t candidate) { return accepted.contains(candidate); });
            if (owner == HashRing::kNone) return std::nullopt;
            return owner;
          });

  // An image whose payload is `numbers`, each with its bits, and then a text.
  testing.def(
      "seal_image",
      [](uint32_t kind, const std::vector<std::pair<int, uint64_t>>& numbers, const std::string& text) {
        ImageWriter writer;
        for (const auto& [bits, number] : numbers) {
          bits == 8    ? writer.Number(static_cast<uint8_t>(number))
          : bits == 16 ? writer.Number(static_cast<uint16_t>(number))
          : bits == 32 ? writer.Number(static_cast<uint32_t>(number))
                       : writer.Number(number);
        }
        writer.Text(text);
        return py::bytes(SealIndexImage(static_cast<IndexKind>(kind), std::move(writer)));
      });
  testing.def("open_image", [](uint32_t kind, const py::bytes& image) {
    const StatusOr<std::string_view> payload =
        OpenIndexImage(static_cast<IndexKind>(kind), std::string_view(image));
    if (!payload.ok()) throw py::value_error(payload.status().ToString());
    return py::bytes(std::string(*payload));
  });
  py::class_<OwnedReader>(testing, "ImageReader")
      .def(py::init<std::string>())
      .def("u8", [](OwnedReader& self) { return self.reader.Number<uint8_t>(); })
      .def("u32", [](OwnedReader& self) { return self.reader.Number<uint32_t>(); })
      .def("u64", [](OwnedReader& self) { return self.reader.Number<uint64_t>(); })
      .def("count", [](OwnedReader& self, size_t least) { return self.reader.Count(least); })
      .def("text", [](OwnedReader& self) { return py::bytes(std::string(self.reader.Text())); })
      .def("end", [](const OwnedReader& self) { return self.reader.End().ToString(); })
      .def_property_readonly("ok", [](const OwnedReader& self) { return self.reader.ok(); });
}

}  // namespace vllm_router
