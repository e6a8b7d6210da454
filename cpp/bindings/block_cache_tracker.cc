// BlockCacheTracker: the Python class of the index, with workers by name. Its contract is in _core.pyi.
#include <pybind11/numpy.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bindings/arguments.h"
#include "bindings/bindings.h"
#include "bindings/callables.h"
#include "bindings/errors.h"
#include "bindings/index_file.h"
#include "bindings/named_slots.h"
#include "index/block_cache_tracker.h"

namespace vllm_router {

namespace py = pybind11;
using namespace py::literals;

namespace {

// Scratch space of a call.
struct Room {
  BlockMatches matches;
  std::vector<BlockHash> chain;
  std::vector<uint32_t> copied;
};

// One per thread, so that calls without the GIL do not share it.
Room& OwnRoom() {
  static thread_local Room room;
  return room;
}

// A vllm_router.blocks.BlockMatch, made as NamedTuple's own __new__ makes one, without running Python code.
py::object MakeBlockMatch(py::handle worker, size_t matched_blocks, size_t total_blocks) {
  static PyObject* const type =
      py::object(py::module_::import("vllm_router.blocks").attr("BlockMatch")).release().ptr();
  const py::tuple fields = py::make_tuple(worker, matched_blocks, total_blocks);
  PyObject* const match =
      PyTuple_Type.tp_new(reinterpret_cast<PyTypeObject*>(type), py::make_tuple(fields).ptr(), nullptr);
  if (match == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(match);
}

class PyTracker {
 public:
  PyTracker(const py::object& block_size, const py::object& max_blocks_per_worker, uint64_t seed)
      : tracker_(std::make_unique<BlockCacheTracker>(BlockCacheTrackerOptions{
            .block_size = BlockSize(block_size),
            .max_blocks_per_worker = BlockLimit(max_blocks_per_worker, "max_blocks_per_worker"),
            .seed = seed})) {}

  static constexpr std::string_view kLearnsBy = "record_request()";
  static constexpr IndexKind kKind = IndexKind::kBlockCacheTracker;
  static std::unique_ptr<PyTracker> Open(std::string_view source, std::string_view image) {
    auto [tracker, names] = OpenIndex<BlockCacheTracker>(kKind, source, image);
    return std::unique_ptr<PyTracker>(new PyTracker(std::move(tracker), std::move(names)));
  }
  // With the GIL throughout, so that names and workers are consistent.
  std::string Image() { return ImageOf(kKind, workers_.names(), *tracker_); }

  void Record(const py::object& prompt, const py::object& worker) {
    Room& room = OwnRoom();
    HashPrompt(prompt, &room);
    const WorkerSlot owner = workers_.FindOrAdd(NamedSlots::Name(worker), *tracker_);
    const py::gil_scoped_release release;
    tracker_->Record(owner, room.chain);
  }

  py::object FindBest(const py::object& prompt, const py::object& workers) {
    Room& room = OwnRoom();
    HashPrompt(prompt, &room);
    WorkerSlotSet eligible;
    if (!workers.is_none()) eligible = Known(workers);
    const std::optional<BlockMatch> best =
        tracker_->FindBest(room.chain, workers.is_none() ? nullptr : &eligible, &room.matches);
    // Without the GIL another thread may have removed the worker; it has no name then.
    const py::object name = best ? workers_.NameOf(best->owner) : py::object();
    if (!name) return py::none();
    return MakeBlockMatch(name, best->longest(), room.chain.size());
  }

  py::dict Match(const py::object& prompt) {
    Room& room = OwnRoom();
    HashPrompt(prompt, &room);
    tracker_->Match(room.chain, &room.matches);
    py::dict found;
    for (const BlockMatch& match : room.matches.entries()) {
      if (const py::object name = workers_.NameOf(match.owner)) found[name] = py::int_(match.longest());
    }
    return found;
  }

  void RecordBatch(const py::object& token_ids, const py::object& offsets, const py::object& workers) {
    const Rows rows(token_ids, offsets);
    const py::object names = py::reinterpret_steal<py::object>(PySequence_Fast(
        PyUnicode_Check(workers.ptr()) ? py::make_tuple(workers).ptr() : workers.ptr(),
        "workers must be a sequence of names"));
    if (!names) throw py::error_already_set();
    const auto count = static_cast<size_t>(PySequence_Fast_GET_SIZE(names.ptr()));
    if (PyUnicode_Check(workers.ptr()) ? false : count != rows.size()) {
      throw py::value_error(
          "workers has " + std::to_string(count) + " names and offsets has " + std::to_string(rows.size()) +
          " rows; give one name per row, or one for all");
    }
    std::vector<std::string> checked;
    for (size_t i = 0; i < count; ++i) {
      checked.push_back(
          NamedSlots::Name(py::handle(PySequence_Fast_GET_ITEM(names.ptr(), static_cast<Py_ssize_t>(i)))));
    }
    std::vector<WorkerSlot> owners;
    for (const std::string& name : checked) owners.push_back(workers_.FindOrAdd(name, *tracker_));
    Room& room = OwnRoom();
    const py::gil_scoped_release release;
    for (size_t i = 0; i < rows.size(); ++i) {
      HashRow(rows[i], &room.chain);
      tracker_->Record(owners[owners.size() == 1 ? 0 : i], room.chain);
    }
  }

  py::tuple FindBestBatch(const py::object& token_ids, const py::object& offsets, const py::object& workers) {
    const Rows rows(token_ids, offsets);
    WorkerSlotSet eligible;
    if (!workers.is_none()) eligible = Known(workers);
    py::array_t<int32_t> best(static_cast<py::ssize_t>(rows.size()));
    py::array_t<int64_t> matched(static_cast<py::ssize_t>(rows.size()));
    py::array_t<int64_t> total(static_cast<py::ssize_t>(rows.size()));
    int32_t* const best_out = best.mutable_data();
    int64_t* const matched_out = matched.mutable_data();
    int64_t* const total_out = total.mutable_data();
    {
      Room& room = OwnRoom();
      const WorkerSlotSet* const among = workers.is_none() ? nullptr : &eligible;
      const py::gil_scoped_release release;
      for (size_t i = 0; i < rows.size(); ++i) {
        HashRow(rows[i], &room.chain);
        const std::optional<BlockMatch> found = tracker_->FindBest(room.chain, among, &room.matches);
        best_out[i] = found ? static_cast<int32_t>(found->owner) : -1;
        matched_out[i] = found ? found->longest() : 0;
        total_out[i] = static_cast<int64_t>(room.chain.size());
      }
    }
    return py::make_tuple(std::move(best), std::move(matched), std::move(total));
  }

  py::array_t<int32_t> MatchBatch(const py::object& token_ids, const py::object& offsets) {
    const Rows rows(token_ids, offsets);
    const size_t width = workers_.names().size();
    py::array_t<int32_t> depths({static_cast<py::ssize_t>(rows.size()), static_cast<py::ssize_t>(width)});
    int32_t* out = depths.mutable_data();
    std::fill_n(out, rows.size() * width, 0);
    Room& room = OwnRoom();
    const py::gil_scoped_release release;
    for (size_t i = 0; i < rows.size(); ++i, out += width) {
      HashRow(rows[i], &room.chain);
      tracker_->Match(room.chain, &room.matches);
      for (const BlockMatch& match : room.matches.entries()) {
        const auto owner = static_cast<size_t>(match.owner);
        if (owner < width) out[owner] = static_cast<int32_t>(match.longest());
      }
    }
    return depths;
  }

  void AddWorker(const py::object& worker) { workers_.FindOrAdd(NamedSlots::Name(worker), *tracker_); }

  uint64_t Evict(const py::object& worker, const py::object& max_blocks) {
    const WorkerSlot owner = workers_.Get(worker);
    const uint64_t limit = BlockLimit(max_blocks, "max_blocks");
    const py::gil_scoped_release release;
    return tracker_->Evict(owner, limit);
  }

  void RemoveWorker(const py::object& worker) { tracker_->RemoveWorker(workers_.Remove(worker)); }

  uint64_t BlockCount(const py::object& worker) const { return tracker_->BlockCount(workers_.Get(worker)); }

  void SetCapacity(const py::object& max_blocks, const py::object& worker) {
    const uint64_t limit = BlockLimit(max_blocks, "max_blocks_per_worker");
    const std::optional<WorkerSlot> owner =
        worker.is_none() ? std::nullopt : std::optional(workers_.Get(worker));
    const py::gil_scoped_release release;
    owner ? tracker_->SetCapacityOf(*owner, limit) : tracker_->SetCapacity(limit);
  }

  void Clear() {
    const py::gil_scoped_release release;
    tracker_->Clear();
  }

  bool Sweep(size_t runs) {
    const py::gil_scoped_release release;
    return tracker_->Sweep(runs);
  }

  py::list Workers() const { return workers_.AsList(); }

  py::dict Stats() const {
    const BlockCacheTrackerStats stats = tracker_->stats();
    py::dict values;
    values["workers"] = stats.index.owners;
    values["blocks"] = stats.index.blocks;
    const uint64_t pairs = stats.worker_blocks();
    values["pairs"] = pairs;
    values["runs"] = stats.index.runs;
    values["segments"] = stats.segments;
    values["recorded_requests"] = stats.recorded_requests;
    values["recorded_blocks"] = stats.recorded_blocks;
    values["evicted_blocks"] = stats.evicted_blocks;
    values["bytes"] = stats.bytes;
    values["bytes_per_pair"] =
        pairs == 0 ? 0.0 : static_cast<double>(stats.bytes) / static_cast<double>(pairs);
    values["backlog_bytes"] = stats.index.backlog_bytes;
    return values;
  }

  uint32_t block_size() const { return tracker_->hasher().block_size(); }
  uint64_t capacity() const { return tracker_->capacity(); }

 private:
  // Prompts of a batch: row i is token_ids[offsets[i]:offsets[i + 1]].
  class Rows {
   public:
    Rows(py::handle token_ids, py::handle offsets)
        : ids_(ArrayView<uint32_t>(token_ids, "token_ids", "uint32")),
          offsets_(ArrayView<int64_t>(offsets, "offsets", "int64")) {
      CheckOffsets(offsets_, ids_.size());
    }
    size_t size() const { return offsets_.size() - 1; }
    std::span<const uint32_t> operator[](size_t i) const {
      const auto begin = static_cast<size_t>(offsets_[i]);
      return ids_.subspan(begin, static_cast<size_t>(offsets_[i + 1]) - begin);
    }

   private:
    std::span<const uint32_t> ids_;
    std::span<const int64_t> offsets_;
  };

  static uint64_t BlockLimit(py::handle value, const char* what) {
    const uint64_t limit = PyLong_AsUnsignedLongLong(WholeNumber(value, what).ptr());
    if (PyErr_Occurred() != nullptr) {
      PyErr_Clear();
      throw py::value_error(
          std::string(what) + " is " + Show(value) + "; it must be a number of blocks, 0 to 2^64 - 1");
    }
    return limit;
  }

  // Those of `workers` that are known.
  WorkerSlotSet Known(const py::object& workers) const {
    if (PyUnicode_Check(workers.ptr())) {
      throw py::type_error(
          "workers is " + Show(workers) + "; it must be a collection of names: pass [" + Show(workers) + "]");
    }
    WorkerSlotSet known;
    for (const py::handle worker : py::iter(workers)) {
      if (const auto found = workers_.Find(worker)) known.set(static_cast<size_t>(*found));
    }
    return known;
  }

  void HashRow(std::span<const uint32_t> tokens, std::vector<BlockHash>* chain) const {
    const BlockHasher& hasher = tracker_->hasher();
    chain->resize(hasher.CountBlocks(tokens));
    hasher.Hash(hasher.Root({}), tokens, *chain);
  }

  void HashPrompt(py::handle prompt, Room* room) const {
    if (const std::optional<std::string_view> text = TextView(prompt)) {
      const BlockHasher& hasher = tracker_->hasher();
      room->chain.resize(hasher.CountBlocks(*text));
      hasher.Hash(hasher.Root({.is_text = true}), *text, room->chain);
      return;
    }
    const std::span<const uint32_t> tokens = TokenIds(prompt, &room->copied);
    if (tokens.size_bytes() < kReleaseGilBytes) return HashRow(tokens, &room->chain);
    const py::gil_scoped_release release;
    HashRow(tokens, &room->chain);
  }

  PyTracker(std::unique_ptr<BlockCacheTracker> tracker, WorkerNames names)
      : tracker_(std::move(tracker)), workers_(kLearnsBy, std::move(names)) {}

  const std::unique_ptr<BlockCacheTracker> tracker_;
  NamedSlots workers_{kLearnsBy};
};

}  // namespace

void BindBlockCacheTracker(py::module_& module) {
  py::class_<PyTracker> tracker(module, "BlockCacheTracker", ClassDoc("BlockCacheTracker"));
  BindImages(&tracker);
  tracker
      .def(
          py::init([](const py::object& block_size, const py::object& max_blocks, uint64_t seed,
                      const py::object& per_backend) {
            const py::object& limit = per_backend.is_none() ? max_blocks : per_backend;
            return std::make_unique<PyTracker>(block_size, limit, seed);
          }),
          "block_size"_a = 16, "max_blocks_per_worker"_a = 100'000, py::kw_only(), "seed"_a = 0,
          "max_blocks_per_backend"_a = py::none())
      .def(
          "record_request", &PyTracker::Record, "Record that a worker gets this prompt.", "token_ids"_a,
          "worker"_a)
      .def(
          "find_best_worker", &PyTracker::FindBest, "The worker that holds most of this prompt.",
          "token_ids"_a, py::kw_only(), "workers"_a = py::none())
      .def(
          "find_best_backend", &PyTracker::FindBest, "The worker that holds most of this prompt.", "tokens"_a,
          py::kw_only(), "backends"_a = py::none())
      .def("evict_backend", &PyTracker::Evict, "Evict its oldest blocks.", "backend"_a, "max_blocks"_a)
      .def("remove_backend", &PyTracker::RemoveWorker, "Forget a worker.", "backend"_a)
      .def("match", &PyTracker::Match, "How much of this prompt each worker holds.", "token_ids"_a)
      .def(
          "record_batch", &PyTracker::RecordBatch, "record_request for many prompts.", "token_ids"_a,
          "offsets"_a, "workers"_a)
      .def(
          "find_best_batch", &PyTracker::FindBestBatch, "find_best_worker for many prompts.", "token_ids"_a,
          "offsets"_a, py::kw_only(), "workers"_a = py::none())
      .def("match_batch", &PyTracker::MatchBatch, "match for many prompts.", "token_ids"_a, "offsets"_a)
      .def("add_worker", &PyTracker::AddWorker, "Add a worker.", "worker"_a)
      .def("evict_worker", &PyTracker::Evict, "Evict its oldest blocks.", "worker"_a, "max_blocks"_a)
      .def("remove_worker", &PyTracker::RemoveWorker, "Forget a worker.", "worker"_a)
      .def("block_count", &PyTracker::BlockCount, "Blocks that it holds.", "worker"_a)
      .def(
          "set_capacity", &PyTracker::SetCapacity, "Another capacity.", "max_blocks_per_worker"_a,
          "worker"_a = py::none())
      .def("clear", &PyTracker::Clear, "Forget every block.")
      .def("sweep", &PyTracker::Sweep, "Clear up after removed workers.", "runs"_a = 1000)
      .def("stats", &PyTracker::Stats, "Sizes and counts.")
      .def_property_readonly("workers", &PyTracker::Workers)
      .def_property_readonly("block_size", &PyTracker::block_size)
      .def_property_readonly("max_blocks_per_worker", &PyTracker::capacity)
      .def_property_readonly("max_blocks_per_backend", &PyTracker::capacity)
      .def("__repr__", [](const PyTracker& self) {
        return "<BlockCacheTracker block_size=" + std::to_string(self.block_size()) +
               " max_blocks_per_worker=" + std::to_string(self.capacity()) + ">";
      });
}

}  // namespace vllm_router
