// The prefix trees as policies use them: owners by number, ends and starts, walks kept from match to insert.
#include <pybind11/stl.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bindings/bindings.h"
#include "bindings/errors.h"
#include "index/eviction_order.h"
#include "index/leaf_heap.h"
#include "index/paged_array.h"
#include "index/prefix_tree.h"

namespace vllm_router {

namespace py = pybind11;
using namespace py::literals;

namespace {

// bytes for the one, a list of ids for the other.
std::vector<char> Units(const py::bytes& text, const StringTree& /*tree*/) {
  const std::string_view view = text;
  return {view.begin(), view.end()};
}
std::vector<uint32_t> Units(const std::vector<uint32_t>& ids, const TokenTree& /*tree*/) { return ids; }

template <typename Tree, typename Text>
void BindTree(py::module_& testing, const char* name) {
  py::class_<Tree>(testing, name)
      .def(
          py::init([](uint64_t max_size, uint64_t max_memory, EvictionOrder eviction, uint32_t page_size) {
            return new Tree(
                {.max_size = max_size,
                 .max_memory = max_memory,
                 .eviction = eviction,
                 .page_size = page_size});
          }),
          "max_size"_a = 1 << 26, "max_memory"_a = UINT64_MAX, "eviction"_a = EvictionOrder::kLru,
          "page_size"_a = 16)
      .def("add_worker", [](Tree& tree) { return static_cast<uint32_t>(ValueOrThrow(tree.AddWorker())); })
      .def(
          "remove_worker",
          [](Tree& tree, uint32_t worker) { tree.RemoveWorker(static_cast<WorkerSlot>(worker)); })
      .def(
          "match",
          [](const Tree& tree, const Text& text, PrefixMatches* matches) {
            tree.Match(Units(text, tree), matches);
          },
          "text"_a, "matches"_a)
      .def(
          "insert",
          [](Tree& tree, const Text& text, uint32_t worker, bool is_start, int32_t priority,
             const PrefixMatches* walked, bool is_open) {
            return tree.Insert(
                Units(text, tree), static_cast<WorkerSlot>(worker),
                {.is_open = is_open, .is_start = is_start, .priority = priority}, walked);
          },
          "text"_a, "worker"_a, py::kw_only(), "is_start"_a = false, "priority"_a = 0, "walked"_a = nullptr,
          "is_open"_a = false)
      .def(
          "reloaded",
          [](Tree& tree) {
            ImageWriter writer;
            tree.Save(&writer);
            const IndexKind kind =
                std::is_same_v<Tree, StringTree> ? IndexKind::kStringTree : IndexKind::kTokenTree;
            const std::string image = SealIndexImage(kind, std::move(writer));
            ImageReader reader(OpenIndexImage(kind, image).value());
            return ValueOrThrow(Tree::Load(&reader));
          })
      .def("confirm", &Tree::Confirm)
      .def("withdraw", &Tree::Withdraw)
      .def(
          "evict_worker",
          [](Tree& tree, uint32_t worker, uint64_t max_size) {
            return tree.EvictWorker(static_cast<WorkerSlot>(worker), max_size);
          },
          "worker"_a, "max_size"_a = 0)
      .def("trim", &Tree::Trim, "pairs"_a, "max_size"_a = UINT64_MAX)
      .def(
          "size",
          [](const Tree& tree, uint32_t worker) { return tree.size(static_cast<WorkerSlot>(worker)); })
      .def(
          "sizes",
          [](const Tree& tree, const std::vector<uint32_t>& workers) {
            std::vector<WorkerSlot> owners;
            for (const uint32_t worker : workers) owners.push_back(static_cast<WorkerSlot>(worker));
            std::vector<uint64_t> sizes(owners.size());
            tree.Sizes(owners, sizes);
            return sizes;
          })
      .def("stats", [](const Tree& tree) {
        const PrefixTreeStats stats = tree.stats();
        return py::dict(
            "workers"_a = stats.workers, "nodes"_a = stats.nodes, "owners"_a = stats.owners,
            "size"_a = stats.size, "memory"_a = stats.memory, "starts"_a = stats.starts,
            "inserts"_a = stats.inserts, "evicted"_a = stats.evicted, "evicted_size"_a = stats.evicted_size,
            "removing"_a = stats.removing);
      });
}

}  // namespace

void BindTestingPrefixTree(py::module_& testing) {
  py::enum_<EvictionOrder>(testing, "EvictionOrder")
      .value("lru", EvictionOrder::kLru)
      .value("lfu", EvictionOrder::kLfu)
      .value("fifo", EvictionOrder::kFifo)
      .value("mru", EvictionOrder::kMru)
      .value("filo", EvictionOrder::kFilo)
      .value("priority", EvictionOrder::kPriority);
  py::class_<EvictionRanks>(testing, "EvictionRanks")
      .def(py::init<EvictionOrder>())
      .def("ended", &EvictionRanks::Ended, "tick"_a, "priority"_a = 0)
      .def("passed", &EvictionRanks::Passed)
      .def("upper", &EvictionRanks::Upper)
      .def("touched", &EvictionRanks::Touched, "rank"_a, "tick"_a, "priority"_a = 0)
      .def("inherited", &EvictionRanks::Inherited);
  py::class_<LeafHeap>(testing, "LeafHeap")
      .def(py::init<>())
      .def("__len__", &LeafHeap::size)
      .def("push", &LeafHeap::Push, "rank"_a, "node"_a)
      .def("remove", &LeafHeap::Remove)
      .def("update", &LeafHeap::Update)
      .def("top", [](const LeafHeap& heap) { return std::make_pair(heap.top_rank(), heap.top_node()); })
      .def_property_readonly("last_node", &LeafHeap::last_node)
      .def_property_readonly("bytes", &LeafHeap::bytes);
  using Pages = PagedArray<uint64_t, 4>;
  py::class_<Pages>(testing, "PagesOfFour")
      .def(py::init<>())
      .def("__len__", &Pages::size)
      .def("__getitem__", [](const Pages& pages, size_t i) { return pages[i]; })
      .def("push", &Pages::push_back)
      .def("pop", &Pages::pop_back)
      .def("address", [](const Pages& pages, size_t i) { return reinterpret_cast<uintptr_t>(&pages[i]); })
      .def_property_readonly("bytes", &Pages::bytes);
  py::class_<PrefixMatches>(testing, "PrefixMatches")
      .def(py::init<>())
      .def_property_readonly("total", &PrefixMatches::total)
      .def_property_readonly("best", &PrefixMatches::best)
      .def_property_readonly("starts", &PrefixMatches::starts)
      .def(
          "entries",
          [](const PrefixMatches& matches) {
            std::vector<std::pair<uint32_t, uint64_t>> entries;
            for (const PrefixMatches::Entry& entry : matches.entries())
              entries.emplace_back(static_cast<uint32_t>(entry.owner), entry.matched);
            return entries;
          })
      .def(
          "matched", [](const PrefixMatches& matches,
                        uint32_t owner) { return matches.matched(static_cast<WorkerSlot>(owner)); })
      .def(
          "ends",
          [](const PrefixMatches& matches) {
            return std::vector<uint64_t>(matches.ends().begin(), matches.ends().end());
          })
      .def("starts_at", &PrefixMatches::StartsAt);
  BindTree<StringTree, py::bytes>(testing, "StringTree");
  BindTree<TokenTree, std::vector<uint32_t>>(testing, "TokenTree");
}

}  // namespace vllm_router
