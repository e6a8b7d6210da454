// StringTree, TokenTree: the Python classes of the prefix trees, with workers by name. Their contracts
// are in _core.pyi.
#include "index/prefix_tree.h"

#include <pybind11/numpy.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "bindings/arguments.h"
#include "bindings/bindings.h"
#include "bindings/callables.h"
#include "bindings/errors.h"
#include "bindings/index_file.h"
#include "bindings/named_slots.h"

namespace vllm_router {

namespace py = pybind11;
using namespace py::literals;

namespace {

constexpr std::array<std::pair<std::string_view, EvictionOrder>, 6> kOrders = {
    {{"lru", EvictionOrder::kLru},
     {"lfu", EvictionOrder::kLfu},
     {"fifo", EvictionOrder::kFifo},
     {"mru", EvictionOrder::kMru},
     {"filo", EvictionOrder::kFilo},
     {"priority", EvictionOrder::kPriority}}};

EvictionOrder Order(const py::object& value) {
  if (PyUnicode_Check(value.ptr())) {
    for (const auto& [name, order] : kOrders) {
      if (name == *TextView(value)) return order;
    }
  }
  throw py::value_error(
      "eviction is " + Show(value) + "; it must be one of 'lru', 'lfu', 'fifo', 'mru', 'filo', 'priority'");
}

uint64_t Number(py::handle value, const char* what, uint64_t least) {
  if (!PyLong_Check(value.ptr()))
    throw py::type_error(std::string(what) + " is of type " + TypeName(value) + "; it must be an int");
  const uint64_t number = PyLong_AsUnsignedLongLong(value.ptr());
  const bool failed = PyErr_Occurred() != nullptr;
  PyErr_Clear();
  if (failed || number < least) {
    throw py::value_error(
        std::string(what) + " is " + Show(value) + "; it must be " + std::to_string(least) + " to 2^64 - 1");
  }
  return number;
}

// A vllm_router.prefix_tree.PrefixMatch, made as NamedTuple's own __new__ makes one.
py::object MakePrefixMatch(py::handle workers, uint64_t matched, uint64_t total, py::handle depths) {
  static PyObject* const type =
      py::object(py::module_::import("vllm_router.prefix_tree").attr("PrefixMatch")).release().ptr();
  const py::tuple fields = py::make_tuple(workers, matched, total, depths);
  PyObject* const match =
      PyTuple_Type.tp_new(reinterpret_cast<PyTypeObject*>(type), py::make_tuple(fields).ptr(), nullptr);
  if (match == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(match);
}

// One per thread, so that calls without the GIL do not share it.
PrefixMatches& OwnMatches() {
  static thread_local PrefixMatches matches;
  return matches;
}

template <typename Unit>
class PyTree {
 public:
  static constexpr bool kIsText = std::is_same_v<Unit, char>;
  using Text = std::span<const Unit>;

  explicit PyTree(const PrefixTreeOptions& options) : tree_(std::make_unique<PrefixTree<Unit>>(options)) {}

  static constexpr std::string_view kLearnsBy = "insert()";
  static constexpr IndexKind kKind = kIsText ? IndexKind::kStringTree : IndexKind::kTokenTree;
  static std::unique_ptr<PyTree> Open(std::string_view source, std::string_view image) {
    auto [tree, names] = OpenIndex<PrefixTree<Unit>>(kKind, source, image);
    return std::unique_ptr<PyTree>(new PyTree(std::move(tree), std::move(names)));
  }
  // With the GIL throughout, so that names and workers are consistent.
  std::string Image() { return ImageOf(kKind, workers_.names(), *tree_); }

  void Insert(const py::object& prefix, const py::object& worker, int64_t priority) {
    const Held held(prefix);
    const WorkerSlot owner = workers_.FindOrAdd(NamedSlots::Name(worker), *tree_);
    const py::gil_scoped_release release;
    tree_->Insert(held.text, owner, Priority(priority));
  }

  py::object Match(const py::object& prefix) {
    const Held held(prefix);
    PrefixMatches& matches = OwnMatches();
    {
      const py::gil_scoped_release release;
      tree_->Match(held.text, &matches);
    }
    py::dict depths;
    py::list best;
    uint64_t longest = 0;
    for (const PrefixMatches::Entry& entry : matches.entries()) {
      // Without the GIL another thread may have removed the worker; it has no name then.
      const py::object name = workers_.NameOf(entry.owner);
      if (!name) continue;
      if (longest == 0) longest = entry.matched;
      if (entry.matched == longest) best.append(name);
      depths[name] = entry.matched;
    }
    return MakePrefixMatch(py::tuple(best), longest, matches.total(), depths);
  }

  py::tuple MatchBatch(const py::object& prefixes, const py::object& offsets) {
    const Rows rows(prefixes, offsets);
    const auto count = static_cast<py::ssize_t>(rows.texts.size());
    py::array_t<int32_t> best(count);
    py::array_t<int64_t> matched(count);
    py::array_t<int64_t> total(count);
    int32_t* const best_out = best.mutable_data();
    int64_t* const matched_out = matched.mutable_data();
    int64_t* const total_out = total.mutable_data();
    {
      PrefixMatches& matches = OwnMatches();
      const py::gil_scoped_release release;
      for (size_t i = 0; i < rows.texts.size(); ++i) {
        tree_->Match(rows.texts[i], &matches);
        best_out[i] = -1;
        for (const PrefixMatches::Entry& entry : matches.entries()) {
          if (entry.matched < matches.best()) break;
          const auto owner = static_cast<int32_t>(entry.owner);
          best_out[i] = best_out[i] < 0 ? owner : std::min(best_out[i], owner);
        }
        matched_out[i] = static_cast<int64_t>(matches.best());
        total_out[i] = static_cast<int64_t>(matches.total());
      }
    }
    return py::make_tuple(std::move(best), std::move(matched), std::move(total));
  }

  void InsertBatch(
      const py::object& prefixes, const py::object& workers, const py::object& offsets, int64_t priority) {
    const Rows rows(prefixes, offsets);
    std::vector<std::string> names;
    if (PyUnicode_Check(workers.ptr())) {
      names.assign(rows.texts.size(), NamedSlots::Name(workers));
    } else {
      for (const py::handle worker : py::iter(workers)) names.push_back(NamedSlots::Name(worker));
    }
    if (names.size() != rows.texts.size()) {
      throw py::value_error(
          "workers has " + std::to_string(names.size()) + " names and there are " +
          std::to_string(rows.texts.size()) + " prefixes; give one name per prefix, or one for all");
    }
    std::vector<WorkerSlot> owners;
    for (const std::string& name : names) owners.push_back(workers_.FindOrAdd(name, *tree_));
    const py::gil_scoped_release release;
    for (size_t i = 0; i < rows.texts.size(); ++i) {
      tree_->Insert(rows.texts[i], owners[i], Priority(priority));
    }
  }

  void AddWorker(const py::object& worker) { workers_.FindOrAdd(NamedSlots::Name(worker), *tree_); }

  uint64_t EvictWorker(const py::object& worker, const py::object& max_size) {
    const WorkerSlot owner = workers_.Get(worker);
    const uint64_t limit = Number(max_size, "max_size", 0);
    const py::gil_scoped_release release;
    return tree_->EvictWorker(owner, limit);
  }

  void RemoveWorker(const py::object& worker) { tree_->RemoveWorker(workers_.Remove(worker)); }

  uint64_t Size(const py::object& worker) const {
    if (worker.is_none()) return tree_->size();
    return tree_->size(workers_.Get(worker));
  }

  bool Trim(const py::object& pairs, const py::object& max_size) {
    const uint64_t most = Number(pairs, "pairs", 1);
    const uint64_t limit = max_size.is_none() ? options().max_size : Number(max_size, "max_size", 0);
    const py::gil_scoped_release release;
    return tree_->Trim(most, limit);
  }

  py::list Workers() const { return workers_.AsList(); }

  py::dict Stats() const {
    const PrefixTreeStats stats = tree_->stats();
    return py::dict(
        "workers"_a = stats.workers, "nodes"_a = stats.nodes, "pairs"_a = stats.owners, "size"_a = stats.size,
        "bytes"_a = stats.memory, "inserts"_a = stats.inserts, "evicted_pairs"_a = stats.evicted,
        "evicted_size"_a = stats.evicted_size, "removing_workers"_a = stats.removing);
  }

  const PrefixTreeOptions& options() const { return tree_->options(); }
  std::string eviction() const {
    for (const auto& [name, order] : kOrders) {
      if (order == options().eviction) return std::string(name);
    }
    return {};
  }

 private:
  // One prompt, readable without the GIL for as long as this lives.
  struct Held {
    explicit Held(const py::object& prefix) {
      if constexpr (kIsText) {
        const std::optional<std::string_view> view = TextView(prefix);
        if (!view) {
          throw py::type_error(
              "prefix is of type " + TypeName(prefix) + "; it must be a str, or bytes of UTF-8" +
              (PyList_Check(prefix.ptr()) ? ". For token ids there is TokenTree" : ""));
        }
        text = *view;
      } else {
        if (PyUnicode_Check(prefix.ptr()) || PyBytes_Check(prefix.ptr())) {
          throw py::type_error(
              "prefix is of type " + TypeName(prefix) +
              "; it must be token ids. For texts there is StringTree");
        }
        text = TokenIds(prefix, &copied);
      }
    }
    Text text;
    std::vector<uint32_t> copied;
  };

  // Many: a sequence of them, or all in one buffer.
  struct Rows {
    Rows(const py::object& prefixes, const py::object& offsets) {
      if (offsets.is_none()) {
        Sequence(prefixes);
        return;
      }
      const std::span<const int64_t> ends = ArrayView<int64_t>(offsets, "offsets", "int64");
      Text all;
      if constexpr (kIsText) {
        if (!bytes.Hold(prefixes)) {
          throw py::type_error(
              "prefixes is of type " + TypeName(prefixes) +
              "; with offsets it must be bytes or a buffer of them, all prompts one after the other");
        }
        all = bytes.view();
        CheckOffsets(ends, INT64_MAX);
        if (static_cast<uint64_t>(ends.back()) > all.size()) {
          throw py::value_error(
              "offsets[" + std::to_string(ends.size() - 1) + "] is " + std::to_string(ends.back()) +
              "; prefixes has only " + std::to_string(all.size()) + " bytes");
        }
      } else {
        all = ArrayView<uint32_t>(prefixes, "prefixes", "uint32");
        CheckOffsets(ends, all.size());
      }
      for (size_t i = 0; i + 1 < ends.size(); ++i) {
        texts.push_back(
            all.subspan(static_cast<size_t>(ends[i]), static_cast<size_t>(ends[i + 1] - ends[i])));
      }
    }

    void Sequence(const py::object& prefixes) {
      if (PyUnicode_Check(prefixes.ptr()) || PyBytes_Check(prefixes.ptr())) {
        throw py::type_error(
            "prefixes is of type " + TypeName(prefixes) +
            "; it must be a sequence of prompts: pass [prefix]");
      }
      for (const py::handle item : py::iter(prefixes)) {
        items.push_back(py::reinterpret_borrow<py::object>(item));
        held.push_back(std::make_unique<Held>(items.back()));
        texts.push_back(held.back()->text);
      }
    }

    std::vector<Text> texts;
    Bytes bytes;
    std::vector<py::object> items;
    std::vector<std::unique_ptr<Held>> held;
  };

  static PrefixInsert Priority(int64_t priority) {
    return {
        .priority = static_cast<int32_t>(
            std::clamp<int64_t>(priority, EvictionRanks::kMinPriority, EvictionRanks::kMaxPriority))};
  }

  PyTree(std::unique_ptr<PrefixTree<Unit>> tree, WorkerNames names)
      : tree_(std::move(tree)), workers_(kLearnsBy, std::move(names)) {}

  const std::unique_ptr<PrefixTree<Unit>> tree_;
  NamedSlots workers_{kLearnsBy};
};

template <typename Unit>
py::class_<PyTree<Unit>> BindTree(py::module_& module, const char* name) {
  using Tree = PyTree<Unit>;
  py::class_<Tree> tree(module, name, ClassDoc(name));
  BindImages(&tree);
  tree.def(
          "insert", &Tree::Insert, "Record that a worker gets this prompt.", "prefix"_a, "worker"_a,
          py::kw_only(), "priority"_a = 0)
      .def("match", &Tree::Match, "How much of this prompt each worker has.", "prefix"_a)
      .def(
          "match_batch", &Tree::MatchBatch, "match for many prompts.", "prefixes"_a, "offsets"_a = py::none())
      .def(
          "insert_batch", &Tree::InsertBatch, "insert for many prompts.", "prefixes"_a, "workers"_a,
          "offsets"_a = py::none(), py::kw_only(), "priority"_a = 0)
      .def("add_worker", &Tree::AddWorker, "Add a worker.", "worker"_a)
      .def("evict_worker", &Tree::EvictWorker, "Evict its leaves.", "worker"_a, "max_size"_a = 0)
      .def("remove_worker", &Tree::RemoveWorker, "Forget a worker.", "worker"_a)
      .def("size", &Tree::Size, "Bytes that it owns.", "worker"_a = py::none())
      .def("trim", &Tree::Trim, "Background work.", "pairs"_a = 256, "max_size"_a = py::none())
      .def("stats", &Tree::Stats, "Sizes and counts.")
      .def_property_readonly("workers", &Tree::Workers)
      .def_property_readonly("max_tree_size", [](const Tree& self) { return self.options().max_size; })
      .def_property_readonly("eviction", &Tree::eviction);
  return tree;
}

PrefixTreeOptions Options(
    const py::object& max_tree_size, const py::object& eviction, const py::object& max_memory) {
  PrefixTreeOptions options{
      .max_size = Number(max_tree_size, "max_tree_size", 1), .eviction = Order(eviction)};
  if (!max_memory.is_none()) options.max_memory = Number(max_memory, "max_memory", 1);
  return options;
}

}  // namespace

void BindPrefixTree(py::module_& module) {
  BindTree<char>(module, "StringTree")
      .def(
          py::init(
              [](const py::object& max_tree_size, const py::object& eviction, const py::object& max_memory) {
                return std::make_unique<PyTree<char>>(Options(max_tree_size, eviction, max_memory));
              }),
          py::kw_only(), "max_tree_size"_a = 64 * 1024 * 1024, "eviction"_a = "lru",
          "max_memory"_a = py::none())
      .def("__repr__", [](const PyTree<char>& self) {
        return "<StringTree max_tree_size=" + std::to_string(self.options().max_size) + " eviction='" +
               self.eviction() + "'>";
      });
  BindTree<uint32_t>(module, "TokenTree")
      .def(
          py::init([](const py::object& page_size, const py::object& max_tree_size,
                      const py::object& eviction, const py::object& max_memory) {
            PrefixTreeOptions options = Options(max_tree_size, eviction, max_memory);
            const uint64_t page = Number(page_size, "page_size", 1);
            if (page > kMaxBlockSize) {
              throw py::value_error(
                  "page_size is " + Show(page_size) + "; it must be 1 to " + std::to_string(kMaxBlockSize) +
                  " tokens, and what the engine caches at once");
            }
            options.page_size = static_cast<uint32_t>(page);
            return std::make_unique<PyTree<uint32_t>>(options);
          }),
          "page_size"_a = 16, py::kw_only(), "max_tree_size"_a = 64 * 1024 * 1024, "eviction"_a = "lru",
          "max_memory"_a = py::none())
      .def_property_readonly(
          "page_size", [](const PyTree<uint32_t>& self) { return self.options().page_size; })
      .def("__repr__", [](const PyTree<uint32_t>& self) {
        return "<TokenTree page_size=" + std::to_string(self.options().page_size) +
               " max_tree_size=" + std::to_string(self.options().max_size) + " eviction='" + self.eviction() +
               "'>";
      });
}

}  // namespace vllm_router
