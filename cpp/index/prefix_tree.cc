#include "index/prefix_tree.h"

#include <algorithm>
#include <array>
#include <bitset>
#include <list>
#include <mutex>
#include <string>
#include <type_traits>

namespace vllm_router {

// A list of what was inserted, looked through from one end to the other.
template <typename Unit>
class PrefixTree<Unit>::Tree {
 public:
  explicit Tree(const PrefixTreeOptions& options) : options(options) {}

  struct Seen {
    std::vector<Unit> text;  // whole pages
    std::vector<Unit> rest;
    OwnerId worker;
  };
  uint64_t Page() const { return std::is_same_v<Unit, char> ? 1 : options.page_size; }

  void Erase(typename std::list<Seen>::iterator it) {
    size -= it->text.size() * sizeof(Unit);
    owned[static_cast<size_t>(it->worker)] -= it->text.size() * sizeof(Unit);
    seen.erase(it);
  }

  const PrefixTreeOptions options;
  std::mutex mutex;
  std::list<Seen> seen;  // oldest first
  std::list<std::vector<Unit>> starts;
  std::bitset<kMaxWorkers> known;
  std::array<uint64_t, kMaxWorkers> owned{};
  uint64_t size = 0;
  uint64_t inserts = 0;
};

template <typename Unit>
PrefixTree<Unit>::PrefixTree(const PrefixTreeOptions& options) : tree_(std::make_unique<Tree>(options)) {}
template <typename Unit>
PrefixTree<Unit>::~PrefixTree() = default;

template <typename Unit>
StatusOr<OwnerId> PrefixTree<Unit>::AddWorker() {
  const std::lock_guard lock(tree_->mutex);
  for (size_t i = 0; i < kMaxWorkers; ++i) {
    if (tree_->known.test(i)) continue;
    tree_->known.set(i);
    return static_cast<OwnerId>(i);
  }
  return absl::ResourceExhaustedError(
      "a prefix tree knows at most " + std::to_string(kMaxWorkers) + " workers");
}

template <typename Unit>
void PrefixTree<Unit>::RemoveWorker(OwnerId worker) {
  EvictWorker(worker, 0);
  const std::lock_guard lock(tree_->mutex);
  tree_->known.reset(static_cast<size_t>(worker));
}

template <typename Unit>
void PrefixTree<Unit>::Match(Text text, PrefixMatches* matches) const {
  const std::lock_guard lock(tree_->mutex);
  matches->Clear(text.size());
  matches->starts_ = static_cast<uint32_t>(tree_->starts.size());
  const auto common = [&](const std::vector<Unit>& other) {
    size_t n = 0;
    while (n < text.size() && n < other.size() && text[n] == other[n]) ++n;
    n -= n % tree_->Page();
    if constexpr (std::is_same_v<Unit, char>) {
      while (n > 0 && n < text.size() && (text[n] & 0xC0) == 0x80) --n;
    }
    return n;
  };
  std::vector<PrefixMatches::Entry> found;
  for (const typename Tree::Seen& seen : tree_->seen) {
    if (const size_t n = common(seen.text); n > 0) found.push_back({seen.worker, n});
    const size_t whole = seen.text.size();
    if (common(seen.text) == whole && text.size() >= whole + seen.rest.size() && whole > 0 &&
        std::equal(seen.rest.begin(), seen.rest.end(), text.begin() + static_cast<ptrdiff_t>(whole))) {
      matches->ends_.push_back(whole + seen.rest.size());
    }
  }
  std::sort(found.begin(), found.end(), [](auto a, auto b) { return a.matched > b.matched; });
  for (const auto& entry : found) {
    if (!matches->Has(entry.owner)) matches->Add(entry.owner, entry.matched);
  }
  std::sort(matches->ends_.begin(), matches->ends_.end());
  std::vector<uint64_t> depths;
  for (const auto& start : tree_->starts) depths.push_back(common(start));
  for (const auto& entry : found) depths.push_back(entry.matched);
  std::sort(depths.begin(), depths.end());
  for (const uint64_t depth : depths) {
    uint32_t passed = 0;
    for (const auto& start : tree_->starts) passed += common(start) >= depth;
    matches->steps_.push_back({0, 0, depth, passed, true});
  }
}

template <typename Unit>
void PrefixTree<Unit>::Insert(
    Text text, OwnerId worker, const PrefixInsert& insert, const PrefixMatches* /*walked*/) {
  const std::lock_guard lock(tree_->mutex);
  if (!tree_->known.test(static_cast<size_t>(worker))) return;
  ++tree_->inserts;
  const size_t whole = text.size() - text.size() % tree_->Page();
  const uint64_t bytes = whole * sizeof(Unit);
  if (bytes > tree_->options.max_size || whole == 0) return;
  typename Tree::Seen seen{
      {text.begin(), text.begin() + static_cast<ptrdiff_t>(whole)},
      {text.begin() + static_cast<ptrdiff_t>(whole), text.end()},
      worker};
  for (auto it = tree_->seen.begin(); it != tree_->seen.end(); ++it) {
    if (it->worker != worker || it->text != seen.text || it->rest != seen.rest) continue;
    tree_->Erase(it);
    break;
  }
  while (tree_->size + bytes > tree_->options.max_size) tree_->Erase(tree_->seen.begin());
  tree_->size += bytes;
  tree_->owned[static_cast<size_t>(worker)] += bytes;
  if (insert.is_start) tree_->starts.push_back(seen.text);
  if (tree_->starts.size() > kStartsPerHalving) tree_->starts.pop_front();
  tree_->seen.push_back(std::move(seen));
}

template <typename Unit>
uint64_t PrefixTree<Unit>::EvictWorker(OwnerId worker, uint64_t max_size) {
  const std::lock_guard lock(tree_->mutex);
  uint64_t& owned = tree_->owned[static_cast<size_t>(worker)];
  const uint64_t before = owned;
  for (auto it = tree_->seen.begin(); it != tree_->seen.end() && owned > max_size;) {
    const auto next = std::next(it);
    if (it->worker == worker) tree_->Erase(it);
    it = next;
  }
  return before - owned;
}

template <typename Unit>
bool PrefixTree<Unit>::Trim(size_t pairs, uint64_t max_size) {
  const std::lock_guard lock(tree_->mutex);
  while (pairs-- > 0 && tree_->size > max_size) tree_->Erase(tree_->seen.begin());
  return tree_->size > max_size;
}

template <typename Unit>
uint64_t PrefixTree<Unit>::size(OwnerId worker) const {
  const std::lock_guard lock(tree_->mutex);
  return tree_->owned[static_cast<size_t>(worker)];
}

template <typename Unit>
uint64_t PrefixTree<Unit>::size() const {
  const std::lock_guard lock(tree_->mutex);
  return tree_->size;
}

template <typename Unit>
const PrefixTreeOptions& PrefixTree<Unit>::options() const {
  return tree_->options;
}

template <typename Unit>
PrefixTreeStats PrefixTree<Unit>::stats() const {
  const std::lock_guard lock(tree_->mutex);
  return {
      .workers = tree_->known.count(),
      .nodes = tree_->seen.size(),
      .size = tree_->size,
      .inserts = tree_->inserts};
}

template class PrefixTree<char>;
template class PrefixTree<uint32_t>;

}  // namespace vllm_router
