// The Python class HashRing: workers by name and weight around the immutable ring of index/. A change
// builds the next ring aside and publishes it whole, so a lookup on another thread sees the ring before
// or after. Its contract is in _core.pyi.
#include "index/hash_ring.h"

#include <absl/container/flat_hash_map.h>
#include <absl/container/flat_hash_set.h>
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/snapshot.h"
#include "base/text.h"
#include "bindings/arguments.h"
#include "bindings/bindings.h"
#include "bindings/callables.h"
#include "bindings/errors.h"
#include "index/load_bound.h"
#include "policy/policy_options.h"

namespace vllm_router {

namespace py = pybind11;
using namespace py::literals;

namespace {

struct Member {
  std::string name;
  uint32_t weight;  // thousandths
};

struct Members {
  std::vector<Member> list;
  absl::flat_hash_map<std::string_view, uint32_t> owner_of;  // into list
  HashRing ring;
};

uint32_t CheckedWeight(double weight) {
  const double thousandths = std::round(weight * kWeightOne);
  if (!(thousandths >= kMinWeight && thousandths <= kMaxWeight)) {
    throw py::value_error(
        "weight is " + std::string(py::str(py::float_(weight))) +
        "; it is the worker's relative capacity and must be between 0.01 and 100 (default 1)");
  }
  return static_cast<uint32_t>(thousandths);
}

const std::string& CheckedName(const std::string& name) {
  if (name.empty()) throw py::value_error("the worker's name is empty; name it as it will be looked up");
  return name;
}

HashFunction FunctionNamed(const std::string& name) {
  PolicyOptions options;
  ThrowIfError(SetOption(*FindOption(PolicyOptionTable(), "hash_function"), name, &options));
  return options.hash_function;
}

class PyHashRing {
 public:
  PyHashRing(const py::object& workers, const py::object& virtual_nodes, const std::string& hash_function)
      : virtual_nodes_(CheckedVirtualNodes(virtual_nodes)),
        function_(FunctionNamed(hash_function)),
        members_(std::make_shared<const Members>(Members{{}, {}, HashRing({}, function_)})) {
    std::vector<Member> first;
    const auto add = [&first](py::handle name, double weight) {
      if (!PyUnicode_Check(name.ptr()))
        throw py::type_error("workers holds " + Show(name) + "; each must be the name of a worker, a str");
      first.push_back({CheckedName(name.cast<std::string>()), CheckedWeight(weight)});
    };
    if (PyUnicode_Check(workers.ptr()) || PyBytes_Check(workers.ptr())) {
      throw py::type_error(
          "workers is " + Show(workers) + "; it must be a list of names: pass [" + Show(workers) + "]");
    }
    if (PyDict_Check(workers.ptr())) {
      for (const auto& [name, weight] : py::reinterpret_borrow<py::dict>(workers)) {
        if (!py::isinstance<py::float_>(weight) && !py::isinstance<py::int_>(weight))
          throw py::type_error("workers[" + Show(name) + "] is " + Show(weight) + "; a weight is a number");
        add(name, weight.cast<double>());
      }
    } else {
      for (const py::handle name : py::iter(workers)) add(name, 1.0);
    }
    Publish(std::move(first));
  }

  void Add(const std::string& name, double weight) {
    CheckedName(name);
    const uint32_t thousandths = CheckedWeight(weight);
    Change([&](std::vector<Member>* list) -> Status {
      list->push_back({name, thousandths});
      return absl::OkStatus();
    });
  }

  void Remove(const std::string& name) {
    Change([&](std::vector<Member>* list) -> Status {
      const auto found =
          std::find_if(list->begin(), list->end(), [&](const Member& member) { return member.name == name; });
      if (found == list->end()) return NotFound(name, *list);
      list->erase(found);
      return absl::OkStatus();
    });
  }

  py::object Lookup(const py::object& key, const py::object& exclude) const {
    const std::shared_ptr<const Members> members = members_.Load();
    const uint64_t hash = HashOf(key);
    const absl::flat_hash_set<uint32_t> excluded = Excluded(exclude, *members);
    const uint32_t owner =
        excluded.empty()
            ? members->ring.FindOwner(hash)
            : members->ring.FindOwner(hash, [&](uint32_t owner) { return !excluded.contains(owner); });
    return NameOf(*members, owner);
  }

  // The first `count` owners clockwise, each once.
  py::list LookupN(const py::object& key, const py::object& count, const py::object& exclude) const {
    const std::shared_ptr<const Members> members = members_.Load();
    const uint64_t hash = HashOf(key);
    absl::flat_hash_set<uint32_t> passed = Excluded(exclude, *members);
    if (PyIndex_Check(count.ptr()) == 0)
      throw py::type_error("n is of type " + TypeName(count) + "; it must be an int");
    const Py_ssize_t wanted = PyNumber_AsSsize_t(count.ptr(), PyExc_ValueError);
    if (wanted == -1 && PyErr_Occurred() != nullptr) throw py::error_already_set();
    if (wanted < 0) {
      throw py::value_error(
          "n is " + std::to_string(wanted) + "; it is the number of workers wanted and must be 0 or more");
    }
    py::list names;
    const auto limit = std::min<size_t>(static_cast<size_t>(wanted), members->list.size() - passed.size());
    if (limit == 0) return names;
    // One walk: excluded workers are skipped, and so is each worker that was already taken.
    members->ring.FindOwner(hash, [&](uint32_t owner) {
      if (passed.insert(owner).second) names.append(py::str(members->list[owner].name));
      return names.size() == limit;
    });
    return names;
  }

  // Equal rings give every key the same owner, and number their workers in the same way.
  bool IsEqual(const PyHashRing& other) const {
    if (this == &other) return true;
    if (virtual_nodes_ != other.virtual_nodes_ || function_ != other.function_) return false;
    const std::shared_ptr<const Members> mine = members_.Load();
    const std::shared_ptr<const Members> its = other.members_.Load();
    return std::ranges::equal(mine->list, its->list, [](const Member& a, const Member& b) {
      return a.name == b.name && a.weight == b.weight;
    });
  }

  py::array_t<int32_t> LookupBatch(const py::object& keys) const {
    const std::shared_ptr<const Members> members = members_.Load();
    if (py::isinstance<py::array>(keys)) {
      const std::span<const uint64_t> hashes = ArrayView<uint64_t>(keys, "keys", "uint64");
      return FindAll(*members, hashes.size(), [&](size_t i) { return hashes[i]; });
    }
    if (PyUnicode_Check(keys.ptr()) || PyBytes_Check(keys.ptr()))
      throw py::type_error("keys is one " + TypeName(keys) + "; lookup_batch takes a list of them");
    // A private tuple keeps the texts alive: the caller's list may change while the GIL is released.
    const auto kept = py::reinterpret_steal<py::object>(PySequence_Tuple(keys.ptr()));
    if (!kept) throw py::error_already_set();
    std::vector<std::string_view> texts;
    texts.reserve(static_cast<size_t>(PyTuple_GET_SIZE(kept.ptr())));
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(kept.ptr()); ++i) {
      const py::handle item = PyTuple_GET_ITEM(kept.ptr(), i);
      const std::optional<std::string_view> text = TextView(item);
      if (!text) {
        throw py::type_error(
            "keys[" + std::to_string(i) + "] is of type " + TypeName(item) +
            "; it must be str or bytes (or pass a numpy array of uint64 positions on the ring)");
      }
      texts.push_back(*text);
    }
    return FindAll(*members, texts.size(), [&](size_t i) { return RingHash(function_, texts[i]); });
  }

  py::object LookupBounded(
      const py::object& key, const py::object& loads, double epsilon, const py::object& exclude) const {
    const std::shared_ptr<const Members> members = members_.Load();
    const uint64_t hash = HashOf(key);
    const double factor = std::round((1 + epsilon) * 1000);
    if (!(epsilon >= 0 && factor <= LoadBound::kMaxFactor)) {
      throw py::value_error(
          "epsilon is " + std::string(py::str(py::float_(epsilon))) +
          "; it is the share by which a load may exceed the average and must be between 0 and 10 (default "
          "0.25)");
    }
    const std::vector<int64_t> load = Loads(loads, *members);
    const absl::flat_hash_set<uint32_t> excluded = Excluded(exclude, *members);
    uint64_t total = 0;
    uint64_t weight = 0;
    for (uint32_t owner = 0; owner < load.size(); ++owner) {
      if (excluded.contains(owner)) continue;
      total += static_cast<uint64_t>(load[owner]);
      weight += members->list[owner].weight;
    }
    if (weight == 0) return NameOf(*members, HashRing::kNone);
    if (total > LoadBound::kMaxTotal) {
      throw py::value_error(
          "loads add up to " + std::to_string(total) + "; they may add up to " +
          std::to_string(LoadBound::kMaxTotal) + " at most: count requests, or thousands of tokens");
    }
    const LoadBound bound(total, weight, static_cast<uint32_t>(factor));
    return NameOf(*members, members->ring.FindOwner(hash, [&](uint32_t owner) {
      return !excluded.contains(owner) && load[owner] < bound.Cap(members->list[owner].weight);
    }));
  }

  py::list Workers() const {
    py::list names;
    const std::shared_ptr<const Members> members = members_.Load();
    for (const Member& member : members->list) names.append(py::str(member.name));
    return names;
  }

  py::dict Weights() const {
    py::dict weights;
    const std::shared_ptr<const Members> members = members_.Load();
    for (const Member& member : members->list)
      weights[py::str(member.name)] = static_cast<double>(member.weight) / kWeightOne;
    return weights;
  }

  size_t size() const { return members_.Load()->list.size(); }
  size_t points() const { return members_.Load()->ring.size(); }
  bool Contains(const py::object& name) const {
    const std::optional<std::string_view> text = TextView(name);
    return text && members_.Load()->owner_of.contains(*text);
  }
  uint32_t virtual_nodes() const { return virtual_nodes_; }
  std::string hash_function() const { return std::string(HashFunctionName(function_)); }

  std::string Repr() const {
    const std::shared_ptr<const Members> members = members_.Load();
    const size_t count = members->list.size();
    return Concat(
        "<HashRing ", HashFunctionName(function_), ", ", count, count == 1 ? " worker, " : " workers, ",
        members->ring.size(), " points>");
  }

 private:
  static uint32_t CheckedVirtualNodes(const py::object& value) {
    if (!PyLong_Check(value.ptr()))
      throw py::type_error("virtual_nodes is of type " + TypeName(value) + "; it must be an int");
    int overflow = 0;
    const long long nodes = PyLong_AsLongLongAndOverflow(value.ptr(), &overflow);
    if (overflow != 0 || nodes < 1 || nodes > kMaxVirtualNodes) {
      throw py::value_error(
          "virtual_nodes is " + Show(value) +
          "; it is the number of points per worker of weight 1 and must be between 1 and " +
          std::to_string(kMaxVirtualNodes) + " (default 160)");
    }
    return static_cast<uint32_t>(nodes);
  }

  static Status NotFound(std::string_view name, const std::vector<Member>& list) {
    std::vector<std::string_view> names;
    for (const Member& member : list) names.push_back(member.name);
    const std::string_view nearest = NearestName(name, names);
    return absl::NotFoundError(Concat(
        "no worker ", Quoted(name), " on the ring of ", list.size(),
        nearest.empty() ? std::string() : Concat("; did you mean ", nearest, "?")));
  }

  // The next ring of `list`; with `changes_` held, or in the constructor.
  Status Build(std::vector<Member> list) {
    const std::shared_ptr<const Members> last = members_.Load();
    auto next = std::make_shared<Members>();
    next->list = std::move(list);
    std::vector<HashRing::Node> nodes;
    uint64_t total = 0;
    for (uint32_t owner = 0; owner < next->list.size(); ++owner) {
      const Member& member = next->list[owner];
      if (!next->owner_of.emplace(member.name, owner).second) {
        return absl::AlreadyExistsError(
            Concat("worker ", Quoted(member.name), " is on the ring already; remove it first"));
      }
      const uint64_t points = HashRing::PointsOf(virtual_nodes_, member.weight);
      total += points;
      nodes.push_back({.name = member.name, .points = static_cast<uint32_t>(points)});
    }
    if (total > kMaxRingPoints) {
      return absl::InvalidArgumentError(Concat(
          "the ring would have ", total, " points; at most ", kMaxRingPoints,
          " are kept: lower virtual_nodes or the weights"));
    }
    next->ring = last->ring.Changed(nodes);
    members_.Publish(std::move(next));
    return absl::OkStatus();
  }

  void Publish(std::vector<Member> list) {
    Change([&](std::vector<Member>* next) -> Status {
      *next = std::move(list);
      return absl::OkStatus();
    });
  }

  // Other Python threads run while points are hashed.
  template <typename Edit>
  void Change(Edit edit) {
    Status status;
    {
      const py::gil_scoped_release release;
      const MutexLock lock(changes_);
      std::vector<Member> list = members_.Load()->list;
      status = edit(&list);
      if (status.ok()) status = Build(std::move(list));
    }
    ThrowIfError(status);
  }

  // The place of a key on the ring: the hash of a text, or an int itself.
  uint64_t HashOf(const py::object& key) const {
    if (PyLong_Check(key.ptr())) {
      const uint64_t hash = PyLong_AsUnsignedLongLong(key.ptr());
      if (PyErr_Occurred() == nullptr) return hash;
      PyErr_Clear();
      throw py::value_error("key is " + Show(key) + "; a position on the ring is between 0 and 2^64 - 1");
    }
    const std::optional<std::string_view> text = TextView(key);
    if (!text) throw py::type_error("key is of type " + TypeName(key) + "; it must be str, bytes or int");
    return RingHash(function_, *text);
  }

  static py::object NameOf(const Members& members, uint32_t owner) {
    if (owner != HashRing::kNone) return py::str(members.list[owner].name);
    Throw(absl::UnavailableError(Concat(
        "no worker can take the key: the ring has ", members.list.size(),
        members.list.size() == 1 ? " worker" : " workers",
        members.list.empty() ? "; add one with add(worker)" : ", all excluded; exclude fewer")));
  }

  static absl::flat_hash_set<uint32_t> Excluded(const py::object& names, const Members& members) {
    absl::flat_hash_set<uint32_t> excluded;
    if (names.is_none() || (PyTuple_Check(names.ptr()) && PyTuple_GET_SIZE(names.ptr()) == 0))
      return excluded;
    if (PyUnicode_Check(names.ptr()) || PyBytes_Check(names.ptr())) {
      throw py::type_error(
          "exclude is " + Show(names) + "; it must be a collection of workers: pass [" + Show(names) + "]");
    }
    for (const py::handle item : py::iter(names)) {
      const std::optional<std::string_view> name = TextView(item);
      if (!name) throw py::type_error("exclude holds " + Show(item) + "; it must hold workers as str");
      const auto found = members.owner_of.find(*name);
      if (found != members.owner_of.end()) excluded.insert(found->second);
    }
    return excluded;
  }

  static int64_t CheckedLoad(py::handle load, const std::string& whose) {
    if (!PyLong_Check(load.ptr())) {
      throw py::type_error("the load of " + whose + " is of type " + TypeName(load) + "; it must be an int");
    }
    int overflow = 0;
    const long long value = PyLong_AsLongLongAndOverflow(load.ptr(), &overflow);
    if (overflow == 0 && value >= 0 && static_cast<uint64_t>(value) <= LoadBound::kMaxTotal) return value;
    throw py::value_error(
        "the load of " + whose + " is " + Show(load) + "; it must be between 0 and " +
        std::to_string(LoadBound::kMaxTotal));
  }

  static std::vector<int64_t> Loads(const py::object& loads, const Members& members) {
    const size_t count = members.list.size();
    std::vector<int64_t> result(count, 0);
    if (PyDict_Check(loads.ptr())) {
      for (const auto& [name, load] : py::reinterpret_borrow<py::dict>(loads)) {
        const std::optional<std::string_view> text = TextView(name);
        const auto found = text ? members.owner_of.find(*text) : members.owner_of.end();
        if (found == members.owner_of.end()) {
          throw py::value_error(
              "loads names " + Show(name) + ", which is not on the ring; its workers are `ring.workers`");
        }
        result[found->second] = CheckedLoad(load, Show(name));
      }
      return result;
    }
    if (py::isinstance<py::array>(loads)) {
      const std::span<const int64_t> given = ArrayView<int64_t>(loads, "loads", "int64");
      CheckCount(given.size(), count);
      for (size_t i = 0; i < count; ++i) result[i] = CheckedLoad(py::int_(given[i]), members.list[i].name);
      return result;
    }
    if (!PyList_Check(loads.ptr()) && !PyTuple_Check(loads.ptr())) {
      throw py::type_error(
          "loads is of type " + TypeName(loads) +
          "; pass a dict of worker to load, or the loads in the order of `ring.workers`");
    }
    CheckCount(static_cast<size_t>(PySequence_Fast_GET_SIZE(loads.ptr())), count);
    for (size_t i = 0; i < count; ++i) {
      result[i] = CheckedLoad(
          PySequence_Fast_GET_ITEM(loads.ptr(), static_cast<Py_ssize_t>(i)), members.list[i].name);
    }
    return result;
  }

  static void CheckCount(size_t given, size_t wanted) {
    if (given == wanted) return;
    throw py::value_error(
        "loads has " + std::to_string(given) + " values and the ring " + std::to_string(wanted) +
        " workers; give one for each, in the order of `ring.workers`");
  }

  template <typename HashAt>
  static py::array_t<int32_t> FindAll(const Members& members, size_t count, HashAt hash_at) {
    py::array_t<int32_t> owners(static_cast<py::ssize_t>(count));
    if (count == 0) return owners;
    if (members.ring.empty()) NameOf(members, HashRing::kNone);
    int32_t* const out = owners.mutable_data();
    const py::gil_scoped_release release;
    for (size_t i = 0; i < count; ++i) out[i] = static_cast<int32_t>(members.ring.FindOwner(hash_at(i)));
    return owners;
  }

  const uint32_t virtual_nodes_;
  const HashFunction function_;
  Mutex changes_;  // one change at a time; Snapshot's own lock is taken inside it, nothing else
  Snapshot<Members> members_;
};

}  // namespace

void BindHashRing(py::module_& module) {
  py::class_<PyHashRing>(module, "HashRing", ClassDoc("HashRing"))
      .def(
          py::init<const py::object&, const py::object&, const std::string&>(), "workers"_a = py::tuple(),
          py::kw_only(), "virtual_nodes"_a = 160, "hash_function"_a = "furc")
      .def("add", &PyHashRing::Add, "Add a worker.", "worker"_a, "weight"_a = 1.0)
      .def("remove", &PyHashRing::Remove, "Remove a worker.", "worker"_a)
      .def(
          "lookup", &PyHashRing::Lookup, "The key's owner.", "key"_a, py::kw_only(),
          "exclude"_a = py::tuple())
      .def("lookup_batch", &PyHashRing::LookupBatch, "The owners of many keys.", "keys"_a)
      .def(
          "lookup_bounded", &PyHashRing::LookupBounded, "The first owner clockwise below its cap.", "key"_a,
          "loads"_a, "epsilon"_a = 0.25, py::kw_only(), "exclude"_a = py::tuple())
      .def_property_readonly("workers", &PyHashRing::Workers)
      .def_property_readonly("weights", &PyHashRing::Weights)
      .def_property_readonly("points", &PyHashRing::points)
      .def_property_readonly("virtual_nodes", &PyHashRing::virtual_nodes)
      .def_property_readonly("hash_function", &PyHashRing::hash_function)
      .def(
          "lookup_n", &PyHashRing::LookupN, "The first owners clockwise.", "key"_a, "n"_a, py::kw_only(),
          "exclude"_a = py::tuple())
      .def("__len__", &PyHashRing::size)
      .def("__iter__", [](const PyHashRing& self) { return py::iter(self.Workers()); })
      .def(
          "__eq__",
          [](const PyHashRing& self, const py::object& value) -> py::object {
            if (!py::isinstance<PyHashRing>(value))
              return py::reinterpret_borrow<py::object>(Py_NotImplemented);
            return py::bool_(self.IsEqual(value.cast<const PyHashRing&>()));
          },
          "value"_a)
      .def(
          "__reduce__",
          [](const py::object& self) {
            // Points are hashed again when it is loaded: only the constructor's arguments are stored.
            const auto& ring = self.cast<const PyHashRing&>();
            return py::make_tuple(
                py::module_::import("vllm_router.hash_ring").attr("_restored"),
                py::make_tuple(
                    py::type::of(self), ring.Weights(), ring.virtual_nodes(), ring.hash_function()));
          })
      .def("__contains__", &PyHashRing::Contains)
      .def("__repr__", &PyHashRing::Repr);
}

}  // namespace vllm_router
