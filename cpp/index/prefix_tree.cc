#include "index/prefix_tree.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>
#include <string>
#include <type_traits>

#include "base/check.h"
#include "base/mutex.h"
#include "hashing/hash.h"
#include "index/claim_table.h"
#include "index/leaf_heap.h"
#include "index/memory_pool.h"
#include "index/paged_array.h"

namespace vllm_router {
namespace {

constexpr uint32_t kRoot = 0;
constexpr uint32_t kNone = UINT32_MAX;
constexpr uint64_t kNoLeaf = std::numeric_limits<uint64_t>::max();

// Pairs evicted while others wait: 30 us, and 200 us in trees of a million nodes, where each is several
// cache misses.
constexpr size_t kPairsPerSlice = 64;
// Pairs of removed workers that an insert sweeps.
constexpr size_t kSweptPerInsert = 16;
// After so many turns an insert evicts without releasing the mutex: other inserts may be using up the
// freed space. A megabyte that evicts prompts of 64 bytes needs 300 turns.
constexpr int kMaxTurns = 1024;

// Length of the common prefix of the two, at most `count` units.
template <typename Unit>
size_t CommonUnits(const Unit* a, const Unit* b, size_t count) {
  const auto* const x = reinterpret_cast<const char*>(a);
  const auto* const y = reinterpret_cast<const char*>(b);
  const size_t bytes = count * sizeof(Unit);
  const auto differ = [&](size_t at) {
    uint64_t left = 0;
    uint64_t right = 0;
    std::memcpy(&left, x + at, sizeof(left));
    std::memcpy(&right, y + at, sizeof(right));
    return left ^ right;
  };
  size_t at = 0;
  while (at + 32 <= bytes && (differ(at) | differ(at + 8) | differ(at + 16) | differ(at + 24)) == 0) at += 32;
  for (; at + 8 <= bytes; at += 8) {
    const uint64_t difference = differ(at);
    if (difference == 0) continue;
    static_assert(std::endian::native == std::endian::little);
    return (at + static_cast<size_t>(std::countr_zero(difference)) / 8) / sizeof(Unit);
  }
  size_t unit = at / sizeof(Unit);
  while (unit < count && a[unit] == b[unit]) ++unit;
  return unit;
}

// The last place at or before `at` where a character starts. Each byte that is not UTF-8 is a character.
size_t CharacterStart(std::span<const char> text, size_t at) {
  if (at >= text.size()) return at;
  for (size_t back = 0; back < 4 && back <= at; ++back) {
    const auto byte = static_cast<unsigned char>(text[at - back]);
    if ((byte & 0xC0) == 0x80) continue;
    const size_t length = byte < 0xC0 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
    return back < length ? at - back : at;
  }
  return at;
}

// A worker that owns a node. If the worker owns children of the node, this counts them; else it is a
// leaf in the worker's heap.
class Owner {
 public:
  Owner() = default;
  Owner(WorkerSlot worker, uint64_t rank, uint32_t children, bool lasts = false)
      : rank(rank), state_(children), worker(worker), claims_(lasts ? kLasts : 0) {}

  bool is_leaf() const { return (state_ & kIsLeaf) != 0; }
  LeafHeap::Leaf leaf() const { return state_ & ~kIsLeaf; }
  uint32_t children() const { return state_; }  // REQUIRES: !is_leaf()
  void SetLeaf(LeafHeap::Leaf leaf) { state_ = leaf | kIsLeaf; }
  void SetChildren(uint32_t children) { state_ = children; }
  void AddChild() { ++state_; }
  uint32_t DropChild() { return --state_; }

  // True if a request that ended well passed here; the nodes above are permanent too.
  bool lasts() const { return (claims_ & kLasts) != 0; }
  void SetLasts() { claims_ |= kLasts; }
  // Open requests whose texts end here.
  uint16_t claims() const { return claims_ & ~kLasts; }
  bool MayAddClaim() const { return claims() < (kLasts - 1); }
  void AddClaim() { ++claims_; }
  void DropClaim() { --claims_; }

  uint64_t rank;

 private:
  static constexpr uint32_t kIsLeaf = uint32_t{1} << 31;
  static constexpr uint16_t kLasts = uint16_t{1} << 15;
  uint32_t state_;

 public:
  WorkerSlot worker;

 private:
  uint16_t claims_;
};
static_assert(sizeof(Owner) == 16);

// The number of starts that passed, as of the halving when they were last counted.
class StartCount {
 public:
  StartCount() = default;
  explicit StartCount(uint32_t word) : word_(word) {}

  uint32_t word() const { return word_; }
  uint32_t Get(uint32_t halvings) const {
    const uint32_t since = (halvings - (word_ & kHalvings)) & kHalvings;
    return since >= 12 ? 0 : (word_ >> kHalvingBits) >> since;
  }
  void Add(uint32_t halvings) { word_ = (Get(halvings) + 1) << kHalvingBits | (halvings & kHalvings); }

 private:
  static constexpr int kHalvingBits = 20;  // round once in 10^9 starts; 12 bits hold twice kStartsPerHalving
  static constexpr uint32_t kHalvings = (uint32_t{1} << kHalvingBits) - 1;
  uint32_t word_ = 0;
};

// The part of a prompt of token ids behind its last whole page: its length, and a hash. Never 0.
class Rest {
 public:
  static constexpr uint64_t kMarked = uint64_t{1} << 63;

  explicit Rest(uint64_t word) : word_(word) {}
  template <typename Unit>
  explicit Rest(std::span<const Unit> rest)
      : word_(kMarked | (Xxh3(rest.data(), rest.size_bytes()) << 16 & ~kMarked) | rest.size()) {}

  uint64_t word() const { return word_; }
  size_t length() const { return word_ & 0xFFFF; }

 private:
  uint64_t word_;
};
static_assert(kMaxBlockSize - 1 <= 0xFFFF);

// Several of them at one node; the newest replace the oldest.
struct Rests {
  static constexpr uint32_t kMost = 63;

  uint32_t count;
  uint32_t next;
  uint64_t words[kMost];
};

}  // namespace

template <typename Unit>
class PrefixTree<Unit>::Tree {
 public:
  explicit Tree(const PrefixTreeOptions& options);
  ~Tree();
  Tree(const Tree&) = delete;
  Tree& operator=(const Tree&) = delete;

  StatusOr<WorkerSlot> AddWorker();
  void RemoveWorker(WorkerSlot worker);
  void Match(Text text, PrefixMatches* matches);
  uint64_t Insert(Text text, WorkerSlot worker, const PrefixInsert& insert, const PrefixMatches* walked);
  void Confirm(uint64_t claim) { claims_.Confirm(claim); }
  void Save(ImageWriter* image);
  Status Load(ImageReader* image);
  bool Has(WorkerSlot worker);
  size_t slots();
  void Withdraw(uint64_t claim);
  uint64_t EvictWorker(WorkerSlot worker, uint64_t max_size);
  bool Trim(size_t pairs, uint64_t max_size);
  uint64_t size(WorkerSlot worker);
  void Sizes(std::span<const WorkerSlot> workers, std::span<uint64_t> sizes);
  uint64_t size();
  PrefixTreeStats stats();

  const PrefixTreeOptions options;

 private:
  static constexpr bool kIsText = std::is_same_v<Unit, char>;

  // One cache line.
  struct Node {
    Unit* label;
    uint32_t length;  // of the label; whole pages
    uint32_t parent;
    uint32_t key;     // of the label's first page
    uint32_t next;    // in the chain of a bucket; of free nodes the next one
    uint32_t likely;  // the child that was found last
    uint32_t generation;
    StartCount starts;
    uint16_t owner_count;
    uint16_t owner_room;  // 1: the owner is stored here
    uint64_t ends;  // earlier requests ended here: 0 no, with Rest::kMarked one, else a pointer to Rests
    union {
      Owner owner;
      Owner* owners;  // by worker
    };

    std::span<Owner> all() { return {owner_room == 1 ? &owner : owners, owner_count}; }
  };

  // The position of a walk: the node's end is `depth` units from the root.
  struct Place {
    uint32_t node = kRoot;
    uint64_t depth = 0;
  };

  struct Worker {
    LeafHeap leaves;
  };

  uint64_t page() const { return kIsText ? 1 : options.page_size; }
  Worker* FindWorker(WorkerSlot worker) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const auto number = static_cast<size_t>(worker);
    return number < workers_.size() ? workers_[number].get() : nullptr;
  }
  uint64_t& SizeOf(WorkerSlot worker) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return sizes_[static_cast<size_t>(worker)];
  }
  bool IsActive(WorkerSlot worker) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const auto number = static_cast<size_t>(worker);
    return number < kMaxWorkers && active_[number];
  }

  // Children.
  uint32_t KeyOf(const Unit* label) const;
  size_t BucketOf(uint32_t parent, uint32_t key) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  uint32_t FindChild(uint32_t parent, const Unit* text) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Link(uint32_t child) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Unlink(uint32_t child) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AddBucket() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Nodes.
  uint32_t NewNode(uint32_t parent, const Unit* label, uint32_t length) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FreeNode(uint32_t number) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Unit* CopyLabel(const Unit* label, size_t length) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  uint32_t Split(uint32_t lower, uint32_t length) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Owners.
  Owner* FindOwner(Node* node, WorkerSlot worker) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Owner* AddOwner(Node* node, const Owner& owner) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void DropOwner(Node* node, Owner* owner) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Owner* Pin(uint32_t number, WorkerSlot worker, uint64_t tick) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Unpin(uint32_t number, WorkerSlot worker) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void MakeLeaf(uint32_t number, Owner* owner) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void GiveUp(uint32_t number, WorkerSlot worker) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // The end of a claim's text.
  struct Claimed {
    uint32_t node;
    WorkerSlot worker;
  };
  uint64_t AddClaim(uint32_t number, WorkerSlot worker, bool is_open) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void MakeLast(uint32_t number, WorkerSlot worker) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Settle(const Claimed& claimed) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Ends.
  void MarkEnd(Node* node, Text rest) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    AddEnd(node, kIsText ? Rest::kMarked : Rest(rest).word());
  }
  void AddEnd(Node* node, uint64_t word) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FreeEnds(Node* node) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::vector<uint64_t> EndsOf(const Node& node) const;
  void FindEnds(const Node& node, Text text, uint64_t depth, std::vector<uint64_t>* ends) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Limits.
  uint64_t memory() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool HasRoom(uint64_t bytes) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return size_ + bytes <= options.max_size && (options.max_memory == std::numeric_limits<uint64_t>::max() ||
                                                 memory() + bytes <= options.max_memory);
  }
  bool EvictOne() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool SweepOne() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Sweep(size_t pairs) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    while (pairs > 0 && SweepOne()) --pairs;
  }
  void GrowTournament() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Ranked(WorkerSlot worker) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);  // its first leaf may have changed

  std::vector<uint32_t> Preorder() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Status LoadNode(uint32_t number, ImageReader* image, std::vector<Unit>* label)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Place Resume(const PrefixMatches* walked) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Place Descend(Text text, uint64_t whole, Place place) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  uint64_t Finish(Place place, WorkerSlot worker, const PrefixInsert& insert, Text rest)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CountStart(uint32_t last) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const EvictionRanks ranks_;

  Mutex mutex_;                              // leaf
  MemoryPool pool_ ABSL_GUARDED_BY(mutex_);  // labels, owners beyond one, ends beyond one
  PagedArray<Node, 1024> nodes_ ABSL_GUARDED_BY(mutex_);
  uint32_t free_node_ ABSL_GUARDED_BY(mutex_) = kNone;
  uint64_t node_count_ ABSL_GUARDED_BY(mutex_) = 0;
  // The first child in each; one per node at most.
  PagedArray<uint32_t, 4096> buckets_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<Worker>> workers_ ABSL_GUARDED_BY(mutex_);  // null: no worker has the number
  // Bytes owned by each; contiguous, as Sizes() reads many.
  std::vector<uint64_t> sizes_ ABSL_GUARDED_BY(mutex_);
  WorkerSlotSet active_ ABSL_GUARDED_BY(mutex_);               // those that are not removed
  std::vector<uint64_t> first_ranks_ ABSL_GUARDED_BY(mutex_);  // of each worker's first leaf
  // A tournament: [i] has the smaller rank of [2i] and [2i + 1].
  std::vector<uint16_t> winners_ ABSL_GUARDED_BY(mutex_);
  std::vector<WorkerSlot> sweeping_ ABSL_GUARDED_BY(mutex_);
  ClaimTable<Claimed> claims_;  // its Confirm() needs no lock, the rest does
  uint64_t tick_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t size_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t pairs_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t inserts_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t evicted_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t evicted_size_ ABSL_GUARDED_BY(mutex_) = 0;
  uint32_t starts_ ABSL_GUARDED_BY(mutex_) = 0;
  uint32_t starts_since_halving_ ABSL_GUARDED_BY(mutex_) = 0;
  uint32_t halvings_ ABSL_GUARDED_BY(mutex_) = 0;
};

template <typename Unit>
PrefixTree<Unit>::Tree::Tree(const PrefixTreeOptions& options) : options(options), ranks_(options.eviction) {
  nodes_.push_back(Node{});
  nodes_[kRoot].parent = kNone;
  nodes_[kRoot].likely = kRoot;
  buckets_.push_back(kNone);
  GrowTournament();
}

template <typename Unit>
PrefixTree<Unit>::Tree::~Tree() {
  for (uint32_t number = kRoot + 1; number < nodes_.size(); ++number) {
    Node& node = nodes_[number];
    if (node.parent == kNone) continue;
    pool_.Free(node.label, node.length * sizeof(Unit));
    if (node.owner_room > 1) pool_.Free(node.owners, node.owner_room * sizeof(Owner));
    FreeEnds(&node);
  }
}

// ---- children

template <typename Unit>
uint32_t PrefixTree<Unit>::Tree::KeyOf(const Unit* label) const {
  if constexpr (kIsText) {
    return static_cast<unsigned char>(*label);
  } else {
    return static_cast<uint32_t>(Xxh3(label, page() * sizeof(Unit)));
  }
}

// Linear hashing: the last buckets of the next power of two do not exist yet, and others hold their
// items.
template <typename Unit>
size_t PrefixTree<Unit>::Tree::BucketOf(uint32_t parent, uint32_t key) const {
  uint64_t hash = (uint64_t{parent} << 32 | key) * 0x9E3779B97F4A7C15;
  hash = (hash ^ hash >> 32) * 0xD6E8FEB86659FD93;
  const size_t size = std::bit_ceil(buckets_.size());
  const size_t bucket = (hash >> 32) & (size - 1);
  return bucket < buckets_.size() ? bucket : bucket - size / 2;
}

template <typename Unit>
uint32_t PrefixTree<Unit>::Tree::FindChild(uint32_t parent, const Unit* text) {
  const uint32_t key = KeyOf(text);
  const auto is_it = [&](const Node& node) {
    if (node.parent != parent || node.key != key) return false;
    return kIsText || CommonUnits(node.label, text, page()) == page();
  };
  Node& above = nodes_[parent];
  if (is_it(nodes_[above.likely])) return above.likely;
  for (uint32_t child = buckets_[BucketOf(parent, key)]; child != kNone; child = nodes_[child].next) {
    if (is_it(nodes_[child])) return above.likely = child;
  }
  return kNone;
}

template <typename Unit>
void PrefixTree<Unit>::Tree::Link(uint32_t child) {
  Node& node = nodes_[child];
  uint32_t& first = buckets_[BucketOf(node.parent, node.key)];
  node.next = first;
  first = child;
}

template <typename Unit>
void PrefixTree<Unit>::Tree::Unlink(uint32_t child) {
  const Node& node = nodes_[child];
  uint32_t* link = &buckets_[BucketOf(node.parent, node.key)];
  while (*link != child) link = &nodes_[*link].next;
  *link = node.next;
}

template <typename Unit>
void PrefixTree<Unit>::Tree::AddBucket() {
  const size_t added = buckets_.size();
  buckets_.push_back(kNone);
  const size_t split = added - std::bit_ceil(added + 1) / 2;
  uint32_t child = buckets_[split];
  buckets_[split] = kNone;
  while (child != kNone) {
    const uint32_t next = nodes_[child].next;
    Link(child);
    child = next;
  }
}

// ---- nodes

template <typename Unit>
Unit* PrefixTree<Unit>::Tree::CopyLabel(const Unit* label, size_t length) {
  auto* const copy = static_cast<Unit*>(pool_.Allocate(length * sizeof(Unit)));
  std::memcpy(copy, label, length * sizeof(Unit));
  return copy;
}

template <typename Unit>
uint32_t PrefixTree<Unit>::Tree::NewNode(uint32_t parent, const Unit* label, uint32_t length) {
  uint32_t number = free_node_;
  uint32_t generation = 0;
  Unit* const copy = CopyLabel(label, length);
  if (number == kNone) {
    number = static_cast<uint32_t>(nodes_.size());
    nodes_.push_back(Node{});
  } else {
    free_node_ = nodes_[number].next;
    generation = nodes_[number].generation;
  }
  Node& node = nodes_[number];
  node = Node{};
  node.label = copy;
  node.length = length;
  node.parent = parent;
  node.key = KeyOf(label);
  node.generation = generation;
  ++node_count_;
  if (node_count_ > buckets_.size()) AddBucket();
  return number;
}

// REQUIRES: it has no owner.
template <typename Unit>
void PrefixTree<Unit>::Tree::FreeNode(uint32_t number) {
  Unlink(number);
  Node& node = nodes_[number];
  size_ -= node.length * sizeof(Unit);
  pool_.Free(node.label, node.length * sizeof(Unit));
  FreeEnds(&node);
  node.parent = kNone;
  ++node.generation;
  node.next = free_node_;
  free_node_ = number;
  --node_count_;
}

//   parent --- [ a b c d e ] lower           parent --- [ a b ] upper --- [ c d e ] lower         length 2
//
// The lower one keeps its number, since its children know it by that.
template <typename Unit>
uint32_t PrefixTree<Unit>::Tree::Split(uint32_t lower_number, uint32_t length) {
  Unlink(lower_number);
  const uint32_t upper_number = NewNode(nodes_[lower_number].parent, nodes_[lower_number].label, length);
  Node& lower = nodes_[lower_number];
  Node& upper = nodes_[upper_number];
  Unit* const rest = CopyLabel(lower.label + length, lower.length - length);
  pool_.Free(lower.label, lower.length * sizeof(Unit));
  lower.label = rest;
  lower.length -= length;
  lower.parent = upper_number;
  lower.key = KeyOf(rest);
  upper.starts = lower.starts;
  upper.likely = lower_number;
  upper.owner_room = lower.owner_room;
  if (lower.owner_room > 1) {
    upper.owners = static_cast<Owner*>(pool_.Allocate(lower.owner_room * sizeof(Owner)));
  }
  upper.owner_count = lower.owner_count;
  const std::span<Owner> from = lower.all();
  const std::span<Owner> to = upper.all();
  for (size_t i = 0; i < from.size(); ++i) {
    to[i] = Owner(from[i].worker, ranks_.Upper(from[i].rank), 1, from[i].lasts());
  }
  pairs_ += from.size();
  Link(upper_number);
  Link(lower_number);
  if (nodes_[upper.parent].likely == lower_number) nodes_[upper.parent].likely = upper_number;
  return upper_number;
}

// ---- owners

template <typename Unit>
Owner* PrefixTree<Unit>::Tree::FindOwner(Node* node, WorkerSlot worker) {
  const std::span<Owner> owners = node->all();
  const auto found = std::lower_bound(
      owners.begin(), owners.end(), worker, [](const Owner& a, WorkerSlot b) { return a.worker < b; });
  return found != owners.end() && found->worker == worker ? &*found : nullptr;
}

// REQUIRES: it is not there.
template <typename Unit>
Owner* PrefixTree<Unit>::Tree::AddOwner(Node* node, const Owner& owner) {
  const std::span<Owner> owners = node->all();
  const auto place = static_cast<size_t>(
      std::lower_bound(
          owners.begin(), owners.end(), owner.worker,
          [](const Owner& a, WorkerSlot b) { return a.worker < b; }) -
      owners.begin());
  SizeOf(owner.worker) += node->length * sizeof(Unit);
  ++pairs_;
  if (node->owner_count == 0) {
    node->owner_count = node->owner_room = 1;
    node->owner = owner;
    return &node->owner;
  }
  if (node->owner_count == node->owner_room) {
    const size_t room = MemoryPool::RoundUp((node->owner_room + size_t{1}) * sizeof(Owner)) / sizeof(Owner);
    auto* const larger = static_cast<Owner*>(pool_.Allocate(room * sizeof(Owner)));
    std::copy(owners.begin(), owners.end(), larger);
    if (node->owner_room > 1) pool_.Free(node->owners, node->owner_room * sizeof(Owner));
    node->owners = larger;
    node->owner_room = static_cast<uint16_t>(room);
  }
  Owner* const added = node->owners + place;
  std::copy_backward(added, node->owners + node->owner_count, node->owners + node->owner_count + 1);
  ++node->owner_count;
  *added = owner;
  return added;
}

template <typename Unit>
void PrefixTree<Unit>::Tree::DropOwner(Node* node, Owner* owner) {
  SizeOf(owner->worker) -= node->length * sizeof(Unit);
  --pairs_;
  if (node->owner_room == 1) {
    node->owner_count = 0;
    return;
  }
  std::copy(owner + 1, node->owners + node->owner_count, owner);
  --node->owner_count;
  // Shrinks by at least half, so that an owner that comes and goes does not copy each time.
  const size_t room = node->owner_count <= 1
                          ? node->owner_count
                          : MemoryPool::RoundUp(node->owner_count * sizeof(Owner)) / sizeof(Owner);
  if (room > node->owner_room / size_t{2}) return;
  Owner* const old = node->owners;
  const size_t old_room = node->owner_room;
  if (room <= 1) {
    const Owner last = *old;
    node->owner = last;
    node->owner_room = 1;
  } else {
    auto* const smaller = static_cast<Owner*>(pool_.Allocate(room * sizeof(Owner)));
    std::copy(old, old + node->owner_count, smaller);
    node->owners = smaller;
    node->owner_room = static_cast<uint16_t>(room);
  }
  pool_.Free(old, old_room * sizeof(Owner));
}

// The worker owns the node and all above it from now on. It counts as owning one more child, so that it
// does not lose the node. Null for the root.
template <typename Unit>
Owner* PrefixTree<Unit>::Tree::Pin(uint32_t number, WorkerSlot worker, uint64_t tick) {
  if (number == kRoot) return nullptr;
  Owner* owner = FindOwner(&nodes_[number], worker);
  if (owner != nullptr) {
    if (owner->is_leaf()) {
      FindWorker(worker)->leaves.Remove(owner->leaf());
      owner->SetChildren(1);
      Ranked(worker);
    } else {
      owner->AddChild();
    }
    return owner;
  }
  owner = AddOwner(&nodes_[number], Owner(worker, ranks_.Passed(tick), 1));
  for (uint32_t above = nodes_[number].parent; above != kRoot; above = nodes_[above].parent) {
    Owner* const known = FindOwner(&nodes_[above], worker);
    if (known == nullptr) {
      AddOwner(&nodes_[above], Owner(worker, ranks_.Passed(tick), 1));
      continue;
    }
    if (known->is_leaf()) {
      FindWorker(worker)->leaves.Remove(known->leaf());
      known->SetChildren(1);
      Ranked(worker);
    } else {
      known->AddChild();
    }
    break;
  }
  return owner;
}

template <typename Unit>
void PrefixTree<Unit>::Tree::Unpin(uint32_t number, WorkerSlot worker) {
  if (number == kRoot) return;
  Owner* const owner = FindOwner(&nodes_[number], worker);
  if (owner->DropChild() == 0) MakeLeaf(number, owner);
}

template <typename Unit>
void PrefixTree<Unit>::Tree::MakeLeaf(uint32_t number, Owner* owner) {
  owner->SetLeaf(FindWorker(owner->worker)->leaves.Push(owner->rank, number));
  Ranked(owner->worker);
}

// REQUIRES: a leaf of the worker.
template <typename Unit>
void PrefixTree<Unit>::Tree::GiveUp(uint32_t number, WorkerSlot worker) {
  Node& node = nodes_[number];
  Owner* const owner = FindOwner(&node, worker);
  FindWorker(worker)->leaves.Remove(owner->leaf());
  const uint64_t rank = owner->rank;
  const uint32_t above = node.parent;
  if (owner->claims() > 0) {
    // Claims that end here are dropped; the remaining part of their texts stays.
    claims_.DropIf(
        [&](const Claimed& claimed) { return claimed.node == number && claimed.worker == worker; });
    MakeLast(above, worker);
  }
  DropOwner(&node, owner);
  if (node.owner_count == 0) FreeNode(number);
  if (above != kRoot) {
    Owner* const parent = FindOwner(&nodes_[above], worker);
    parent->rank = ranks_.Inherited(parent->rank, rank);
    if (parent->DropChild() == 0) return MakeLeaf(above, parent);
  }
  Ranked(worker);
}

// ---- claims

template <typename Unit>
void PrefixTree<Unit>::Tree::MakeLast(uint32_t number, WorkerSlot worker) {
  for (; number != kRoot; number = nodes_[number].parent) {
    Owner* const owner = FindOwner(&nodes_[number], worker);
    if (owner->lasts()) return;
    owner->SetLasts();
  }
}

// For a confirmed claim. Its pair is there: an evicted pair takes its claims with it.
template <typename Unit>
void PrefixTree<Unit>::Tree::Settle(const Claimed& claimed) {
  FindOwner(&nodes_[claimed.node], claimed.worker)->DropClaim();
  MakeLast(claimed.node, claimed.worker);
}

template <typename Unit>
uint64_t PrefixTree<Unit>::Tree::AddClaim(uint32_t number, WorkerSlot worker, bool is_open) {
  Owner* const owner = FindOwner(&nodes_[number], worker);
  if (owner->lasts()) return 0;
  uint64_t claim = 0;
  if (is_open && owner->MayAddClaim()) {
    claim = claims_.Add(
        [&](Claimed& claimed) {
          claimed = {number, worker};
        },
        [&](const Claimed& done) ABSL_NO_THREAD_SAFETY_ANALYSIS { Settle(done); });
  }
  if (claim == 0) {
    MakeLast(number, worker);
  } else {
    owner->AddClaim();
  }
  return claim;
}

template <typename Unit>
void PrefixTree<Unit>::Tree::Withdraw(uint64_t claim) {
  const MutexLock lock(mutex_);
  const Claimed* const found = claims_.Find(claim);
  if (found == nullptr) return;
  const Claimed claimed = *found;
  claims_.Drop(claim);
  FindOwner(&nodes_[claimed.node], claimed.worker)->DropClaim();
  for (uint32_t number = claimed.node; number != kRoot;) {
    const Owner& owner = *FindOwner(&nodes_[number], claimed.worker);
    if (!owner.is_leaf() || owner.lasts() || owner.claims() > 0) return;
    const uint32_t above = nodes_[number].parent;
    GiveUp(number, claimed.worker);
    number = above;
  }
}

// ---- ends

template <typename Unit>
void PrefixTree<Unit>::Tree::AddEnd(Node* node, uint64_t word) {
  if (node->ends == 0) node->ends = word;
  if (node->ends == word) return;
  if ((node->ends & Rest::kMarked) != 0) {
    auto* const several = static_cast<Rests*>(pool_.Allocate(sizeof(Rests)));
    several->count = several->next = 1;
    several->words[0] = node->ends;
    node->ends = reinterpret_cast<uintptr_t>(several);
  }
  auto& several = *reinterpret_cast<Rests*>(node->ends);
  if (std::find(several.words, several.words + several.count, word) != several.words + several.count) return;
  several.words[several.next] = word;
  several.next = (several.next + 1) % Rests::kMost;
  several.count = std::min(several.count + 1, Rests::kMost);
}

template <typename Unit>
void PrefixTree<Unit>::Tree::FreeEnds(Node* node) {
  if (node->ends != 0 && (node->ends & Rest::kMarked) == 0) {
    pool_.Free(reinterpret_cast<Rests*>(node->ends), sizeof(Rests));
  }
  node->ends = 0;
}

template <typename Unit>
void PrefixTree<Unit>::Tree::FindEnds(
    const Node& node, Text text, uint64_t depth, std::vector<uint64_t>* ends) const {
  if (node.ends == 0) return;
  if constexpr (kIsText) {
    ends->push_back(depth);
  } else {
    const auto look = [&](Rest rest) {
      if (text.size() - depth < rest.length()) return;
      if (Rest(text.subspan(depth, rest.length())).word() == rest.word())
        ends->push_back(depth + rest.length());
    };
    if ((node.ends & Rest::kMarked) != 0) return look(Rest(node.ends));
    const auto& several = *reinterpret_cast<const Rests*>(node.ends);
    const auto before = static_cast<ptrdiff_t>(ends->size());
    for (uint32_t i = 0; i < several.count; ++i) look(Rest(several.words[i]));
    std::sort(ends->begin() + before, ends->end());
  }
}

// ---- limits

template <typename Unit>
uint64_t PrefixTree<Unit>::Tree::memory() const {
  // Leaves are counted as if every owner of a node had one.
  return pool_.live_bytes() + node_count_ * sizeof(Node) + buckets_.size() * sizeof(uint32_t) + pairs_ * 24;
}

template <typename Unit>
void PrefixTree<Unit>::Tree::Ranked(WorkerSlot worker) {
  const auto number = static_cast<size_t>(worker);
  const Worker& found = *workers_[number];
  const uint64_t rank =
      !IsActive(worker) || found.leaves.empty() ? kNoLeaf : std::min(found.leaves.top_rank(), kNoLeaf - 1);
  if (first_ranks_[number] == rank) return;
  first_ranks_[number] = rank;
  for (size_t i = (first_ranks_.size() + number) / 2; i > 0; i /= 2) {
    const uint16_t left = winners_[2 * i];
    const uint16_t right = winners_[2 * i + 1];
    winners_[i] = first_ranks_[right] < first_ranks_[left] ? right : left;
  }
}

// The pair to evict first; false if there is none.
template <typename Unit>
bool PrefixTree<Unit>::Tree::EvictOne() {
  const uint16_t worker = winners_[1];
  if (first_ranks_[worker] == kNoLeaf) return false;
  const uint64_t before = size_;
  GiveUp(workers_[worker]->leaves.top_node(), static_cast<WorkerSlot>(worker));
  ++evicted_;
  evicted_size_ += before - size_;
  return true;
}

template <typename Unit>
void PrefixTree<Unit>::Tree::GrowTournament() {
  const size_t size = std::max<size_t>(2 * first_ranks_.size(), 2);
  first_ranks_.resize(size, kNoLeaf);
  winners_.assign(2 * size, 0);
  for (size_t i = 0; i < size; ++i) winners_[size + i] = static_cast<uint16_t>(i);
  for (size_t i = size - 1; i > 0; --i) {
    const uint16_t left = winners_[2 * i];
    const uint16_t right = winners_[2 * i + 1];
    winners_[i] = first_ranks_[right] < first_ranks_[left] ? right : left;
  }
}

// One pair of a removed worker; false if there is none.
template <typename Unit>
bool PrefixTree<Unit>::Tree::SweepOne() {
  while (!sweeping_.empty()) {
    const WorkerSlot worker = sweeping_.back();
    Worker& found = *FindWorker(worker);
    if (!found.leaves.empty()) {
      GiveUp(found.leaves.last_node(), worker);
      return true;
    }
    workers_[static_cast<size_t>(worker)].reset();
    sweeping_.pop_back();
  }
  return false;
}

// ---- images

// Oldest first.
template <typename Unit>
std::vector<uint64_t> PrefixTree<Unit>::Tree::EndsOf(const Node& node) const {
  if (node.ends == 0) return {};
  if ((node.ends & Rest::kMarked) != 0) return {node.ends};
  const auto& several = *reinterpret_cast<const Rests*>(node.ends);
  std::vector<uint64_t> words;
  const uint32_t oldest = several.count < Rests::kMost ? 0 : several.next;
  for (uint32_t i = 0; i < several.count; ++i) words.push_back(several.words[(oldest + i) % several.count]);
  return words;
}

// All nodes but the root, each behind its parent. There is no table of a node's children, so lists are
// built first.
template <typename Unit>
std::vector<uint32_t> PrefixTree<Unit>::Tree::Preorder() {
  std::vector<uint32_t> first(nodes_.size(), kNone);
  std::vector<uint32_t> next(nodes_.size(), kNone);
  for (uint32_t number = kRoot + 1; number < nodes_.size(); ++number) {
    const uint32_t parent = nodes_[number].parent;
    if (parent == kNone) continue;
    next[number] = first[parent];
    first[parent] = number;
  }
  std::vector<uint32_t> order;
  order.reserve(node_count_);
  std::vector<uint32_t> open{first[kRoot]};
  while (!open.empty()) {
    const uint32_t number = open.back();
    open.pop_back();
    if (number == kNone) continue;
    order.push_back(number);
    open.push_back(next[number]);
    open.push_back(first[number]);
  }
  return order;
}

template <typename Unit>
void PrefixTree<Unit>::Tree::Save(ImageWriter* image) {
  const MutexLock lock(mutex_);
  while (SweepOne()) {
  }
  image->Number(options.max_size);
  image->Number(options.max_memory);
  image->Number(static_cast<uint32_t>(options.eviction));
  image->Number(options.page_size);
  for (const uint64_t count : {tick_, inserts_, evicted_, evicted_size_}) image->Number(count);
  for (const uint32_t count : {starts_, starts_since_halving_, halvings_}) image->Number(count);
  image->Number(uint64_t{workers_.size()});
  for (const std::unique_ptr<Worker>& worker : workers_) image->Number(uint8_t{worker != nullptr});

  const std::vector<uint32_t> order = Preorder();
  std::vector<uint32_t> place(nodes_.size());  // in the image, where the root is 0
  image->Number(uint64_t{order.size()});
  for (size_t i = 0; i < order.size(); ++i) {
    Node& node = nodes_[order[i]];
    place[order[i]] = static_cast<uint32_t>(i + 1);
    const std::vector<uint64_t> ends = EndsOf(node);
    image->Number(place[node.parent]);
    image->Number(node.length);
    image->Number(node.starts.word());
    image->Number(static_cast<uint16_t>(node.owner_count));
    image->Number(static_cast<uint8_t>(ends.size()));
    image->Array(std::span<const Unit>(node.label, node.length));
    for (const Owner& owner : node.all()) {
      image->Number(static_cast<uint16_t>(owner.worker));
      image->Number(owner.rank);
    }
    image->Array(std::span<const uint64_t>(ends));
  }
}

// The image behind the options. REQUIRES: the tree is unused.
template <typename Unit>
Status PrefixTree<Unit>::Tree::Load(ImageReader* image) {
  const MutexLock lock(mutex_);
  for (uint64_t* count : {&tick_, &inserts_, &evicted_, &evicted_size_}) *count = image->Number<uint64_t>();
  for (uint32_t* count : {&starts_, &starts_since_halving_, &halvings_}) *count = image->Number<uint32_t>();
  if (starts_since_halving_ >= kStartsPerHalving) {
    return BadImage(
        "it counts ", starts_since_halving_, " starts since a halving; there are fewer than ",
        kStartsPerHalving);
  }
  const uint64_t slots = image->Count(1);
  if (slots > kMaxWorkers) {
    return BadImage("it has ", slots, " places for workers; at most ", kMaxWorkers, " are known");
  }
  workers_.resize(slots);
  sizes_.resize(slots);
  while (first_ranks_.size() < slots) GrowTournament();
  for (size_t slot = 0; slot < slots; ++slot) {
    const auto state = image->Number<uint8_t>();
    if (state > 1)
      return BadImage("place ", slot, " for a worker has the state ", int{state}, "; it must be 0 or 1");
    if (state == 0) continue;
    workers_[slot] = std::make_unique<Worker>();
    active_.set(slot);
  }
  const uint64_t count = image->Count(15);
  if (count >= kNone) return BadImage("it has ", count, " nodes; there are fewer than ", kNone);
  std::vector<Unit> label;
  for (uint64_t number = 1; number <= count; ++number) {
    ROUTER_RETURN_IF_ERROR(LoadNode(static_cast<uint32_t>(number), image, &label));
  }
  for (uint32_t number = 1; number <= count; ++number) {
    for (Owner& owner : nodes_[number].all()) {
      if (owner.children() == 0) MakeLeaf(number, &owner);
    }
  }
  return image->End();
}

// A node whose parent exists already.
template <typename Unit>
Status PrefixTree<Unit>::Tree::LoadNode(uint32_t number, ImageReader* image, std::vector<Unit>* label) {
  const auto parent = image->Number<uint32_t>();
  const auto length = image->Number<uint32_t>();
  const auto starts = image->Number<uint32_t>();
  const auto owners = image->Number<uint16_t>();
  const auto ends = image->Number<uint8_t>();
  if (!image->ok()) return image->End();
  if (parent >= number)
    return BadImage("node ", number, " has the parent ", parent, ", which comes after it");
  if (length == 0 || length % page() != 0 || length > image->left() / sizeof(Unit)) {
    return BadImage(
        "node ", number, " has a label of ", length, " units; it must be whole pages of ", page(),
        ", and no longer than what is left of the payload");
  }
  const uint64_t bytes = length * sizeof(Unit);
  if (bytes > options.max_size - size_) {
    return BadImage("its texts take more than its limit (max_tree_size) of ", options.max_size, " bytes");
  }
  if (owners == 0 || owners > workers_.size()) {
    return BadImage("node ", number, " belongs to ", owners, " workers; it must be 1 to ", workers_.size());
  }
  if (ends > Rests::kMost || (kIsText && ends > 1)) {
    return BadImage(
        "node ", number, " has ", int{ends}, " ends; at most ", kIsText ? 1 : Rests::kMost, " are kept");
  }
  label->resize(length);
  image->Array(std::span<Unit>(*label));
  if (FindChild(parent, label->data()) != kNone) {
    return BadImage("node ", number, " begins as another child of node ", parent);
  }
  NewNode(parent, label->data(), length);  // gets `number`, since none was ever freed
  Link(number);
  size_ += bytes;
  Node& node = nodes_[number];
  node.starts = StartCount(starts);
  uint32_t above = 0;  // the previous worker, plus 1
  for (uint16_t i = 0; i < owners; ++i) {
    const auto worker = image->Number<uint16_t>();
    const auto rank = image->Number<uint64_t>();
    const auto id = static_cast<WorkerSlot>(worker);
    if (!IsActive(id) || worker < above) {
      return BadImage(
          "node ", number, " belongs to worker ", worker, ", which is not there, or is not in order");
    }
    above = uint32_t{worker} + 1;
    if (parent != kRoot) {
      Owner* const owner = FindOwner(&nodes_[parent], id);
      if (owner == nullptr) {
        return BadImage(
            "node ", number, " belongs to worker ", worker, ", and its parent ", parent, " does not");
      }
      owner->AddChild();
    }
    AddOwner(&node, Owner(id, rank, 0, /*lasts=*/true));
  }
  for (uint8_t i = 0; i < ends; ++i) {
    const auto word = image->Number<uint64_t>();
    if ((word & Rest::kMarked) == 0 || (kIsText && word != Rest::kMarked)) {
      return BadImage("node ", number, " has an end without its mark");
    }
    AddEnd(&node, word);
  }
  return absl::OkStatus();
}

// ---- the interface

template <typename Unit>
bool PrefixTree<Unit>::Tree::Has(WorkerSlot worker) {
  const MutexLock lock(mutex_);
  return IsActive(worker);
}

template <typename Unit>
size_t PrefixTree<Unit>::Tree::slots() {
  const MutexLock lock(mutex_);
  return workers_.size();
}

template <typename Unit>
StatusOr<WorkerSlot> PrefixTree<Unit>::Tree::AddWorker() {
  const MutexLock lock(mutex_);
  Sweep(kPairsPerSlice);
  const auto free = std::find(workers_.begin(), workers_.end(), nullptr);
  const auto number = static_cast<size_t>(free - workers_.begin());
  if (number == kMaxWorkers) {
    return absl::ResourceExhaustedError(
        "a prefix tree knows at most " + std::to_string(kMaxWorkers) +
        " workers, those not yet swept included");
  }
  if (number == workers_.size()) {
    workers_.emplace_back();
    sizes_.push_back(0);
  }
  workers_[number] = std::make_unique<Worker>();
  active_.set(number);
  if (workers_.size() > first_ranks_.size()) GrowTournament();
  return static_cast<WorkerSlot>(number);
}

template <typename Unit>
void PrefixTree<Unit>::Tree::RemoveWorker(WorkerSlot worker) {
  const MutexLock lock(mutex_);
  if (!IsActive(worker)) return;
  active_.reset(static_cast<size_t>(worker));
  if (FindWorker(worker)->leaves.empty()) {
    workers_[static_cast<size_t>(worker)].reset();
    return;
  }
  Ranked(worker);
  sweeping_.push_back(worker);
}

template <typename Unit>
void PrefixTree<Unit>::Tree::Match(Text text, PrefixMatches* matches) {
  const MutexLock lock(mutex_);
  matches->Clear(text.size());
  matches->starts_ = starts_;
  Place place;
  while (text.size() - place.depth >= page()) {
    const uint32_t child = FindChild(place.node, text.data() + place.depth);
    if (child == kNone) break;
    const Node& node = nodes_[child];
    const uint64_t left = std::min<uint64_t>(node.length, text.size() - place.depth);
    const uint64_t common = CommonUnits(node.label, text.data() + place.depth, left) / page() * page();
    place = {child, place.depth + common};
    const bool whole = common == node.length;
    matches->steps_.push_back({child, node.generation, place.depth, node.starts.Get(halvings_), whole});
    if (!whole) break;
    FindEnds(node, text, place.depth, &matches->ends_);
  }
  // From the end, so that the first match of a worker is its longest. As many as below are the same.
  size_t seen = 0;
  for (size_t i = matches->steps_.size(); i-- > 0;) {
    Node& node = nodes_[matches->steps_[i].node];
    if (node.owner_count == seen) continue;
    uint64_t depth = matches->steps_[i].depth;
    if constexpr (kIsText) depth = CharacterStart(text, depth);
    if (depth == 0) continue;
    seen = node.owner_count;
    for (const Owner& owner : node.all()) {
      if (!matches->Has(owner.worker) && IsActive(owner.worker)) matches->Add(owner.worker, depth);
    }
  }
}

// The deepest node of that walk that still exists.
template <typename Unit>
typename PrefixTree<Unit>::Tree::Place PrefixTree<Unit>::Tree::Resume(const PrefixMatches* walked) const {
  if (walked == nullptr) return {};
  for (size_t i = walked->steps_.size(); i-- > 0;) {
    const PrefixMatches::Step& step = walked->steps_[i];
    if (step.whole && nodes_[step.node].generation == step.generation) return {step.node, step.depth};
  }
  return {};
}

// From `place` to the last node on the text; a label that is only partly on it is split.
template <typename Unit>
typename PrefixTree<Unit>::Tree::Place PrefixTree<Unit>::Tree::Descend(
    Text text, uint64_t whole, Place place) {
  while (place.depth < whole) {
    const uint32_t child = FindChild(place.node, text.data() + place.depth);
    if (child == kNone) break;
    const uint32_t length = nodes_[child].length;
    const uint64_t left = std::min<uint64_t>(length, whole - place.depth);
    const uint64_t common =
        CommonUnits(nodes_[child].label, text.data() + place.depth, left) / page() * page();
    place.depth += common;
    if (common < length) return {Split(child, static_cast<uint32_t>(common)), place.depth};
    place.node = child;
  }
  return place;
}

template <typename Unit>
uint64_t PrefixTree<Unit>::Tree::Insert(
    Text text, WorkerSlot worker, const PrefixInsert& insert, const PrefixMatches* walked) {
  const uint64_t whole = text.size() / page() * page();
  const size_t most = std::max<size_t>(kMaxLabelBytes / sizeof(Unit) / page(), 1) * page();
  MutexLock lock(mutex_);
  if (!IsActive(worker)) return 0;
  ++inserts_;
  Sweep(kSweptPerInsert);
  if (whole == 0 || whole * sizeof(Unit) > options.max_size) return 0;
  const uint64_t tick = ++tick_;
  Place place = Resume(walked);
  bool is_new = false;  // this insert made the node
  int turns = 0;
  for (;;) {
    const uint32_t from = place.node;
    place = Descend(text, whole, place);
    is_new = is_new && place.node == from;
    Owner* const owner = Pin(place.node, worker, tick);
    if (place.depth == whole) {
      if (!is_new) owner->rank = ranks_.Touched(owner->rank, tick, insert.priority);
      Unpin(place.node, worker);
      return Finish(place, worker, insert, text.subspan(whole));
    }
    const uint64_t length = std::min<uint64_t>(whole - place.depth, most);
    bool exhausted = false;
    for (size_t pairs = 0; !exhausted && !HasRoom(length * sizeof(Unit)); ++pairs) {
      if (pairs == kPairsPerSlice && turns < kMaxTurns) break;
      exhausted = !SweepOne() && !EvictOne();
    }
    if (exhausted) {
      if (place.node != kRoot && !is_new) {
        Owner* const last = FindOwner(&nodes_[place.node], worker);
        last->rank = ranks_.Touched(last->rank, tick, insert.priority);
      }
      Unpin(place.node, worker);
      MakeLast(place.node, worker);
      return 0;
    }
    if (HasRoom(length * sizeof(Unit))) {
      // This insert added the pair, and has only passed it.
      if (is_new) FindOwner(&nodes_[place.node], worker)->rank = ranks_.Passed(tick);
      const uint32_t child = NewNode(place.node, text.data() + place.depth, static_cast<uint32_t>(length));
      Link(child);
      size_ += length * sizeof(Unit);
      Node& node = nodes_[child];
      MakeLeaf(child, AddOwner(&node, Owner(worker, ranks_.Ended(tick, insert.priority), 0)));
      nodes_[place.node].likely = child;
      place = {child, place.depth + length};
      is_new = true;
      if (place.depth == whole) return Finish(place, worker, insert, text.subspan(whole));
    } else {
      Unpin(place.node, worker);
    }
    ++turns;
    const uint32_t generation = nodes_[place.node].generation;
    lock.Unlock();
    lock.Lock();
    if (!IsActive(worker)) return 0;
    if (nodes_[place.node].generation != generation) {
      place = Resume(walked);
      is_new = false;
    }
  }
}

template <typename Unit>
uint64_t PrefixTree<Unit>::Tree::Finish(
    Place place, WorkerSlot worker, const PrefixInsert& insert, Text rest) {
  MarkEnd(&nodes_[place.node], rest);
  if (insert.is_start) CountStart(place.node);
  return AddClaim(place.node, worker, insert.is_open);
}

template <typename Unit>
void PrefixTree<Unit>::Tree::CountStart(uint32_t last) {
  for (uint32_t number = last; number != kRoot; number = nodes_[number].parent) {
    nodes_[number].starts.Add(halvings_);
  }
  ++starts_;
  if (++starts_since_halving_ == kStartsPerHalving) {
    starts_since_halving_ = 0;
    starts_ /= 2;
    ++halvings_;
  }
}

template <typename Unit>
uint64_t PrefixTree<Unit>::Tree::EvictWorker(WorkerSlot worker, uint64_t max_size) {
  uint64_t evicted = 0;
  for (bool more = true; more;) {
    const MutexLock lock(mutex_);
    if (!IsActive(worker)) return evicted;
    Worker& found = *FindWorker(worker);
    const uint64_t& size = SizeOf(worker);
    const uint64_t before = size;
    for (size_t i = 0; i < kPairsPerSlice && size > max_size; ++i) {
      GiveUp(found.leaves.top_node(), worker);
    }
    evicted += before - size;
    more = size > max_size;
  }
  return evicted;
}

template <typename Unit>
bool PrefixTree<Unit>::Tree::Trim(size_t pairs, uint64_t max_size) {
  for (;;) {
    const MutexLock lock(mutex_);
    const size_t slice = std::min(pairs, kPairsPerSlice);
    size_t done = 0;
    while (done < slice && SweepOne()) ++done;
    while (done < slice && size_ > max_size && EvictOne()) ++done;
    pairs -= done;
    if (done < slice) return false;
    if (pairs == 0) return !sweeping_.empty() || size_ > max_size;
  }
}

template <typename Unit>
uint64_t PrefixTree<Unit>::Tree::size(WorkerSlot worker) {
  const MutexLock lock(mutex_);
  return IsActive(worker) ? SizeOf(worker) : 0;
}

template <typename Unit>
void PrefixTree<Unit>::Tree::Sizes(std::span<const WorkerSlot> workers, std::span<uint64_t> sizes) {
  const MutexLock lock(mutex_);
  for (size_t i = 0; i < workers.size(); ++i) {
    sizes[i] = IsActive(workers[i]) ? SizeOf(workers[i]) : 0;
  }
}

template <typename Unit>
uint64_t PrefixTree<Unit>::Tree::size() {
  const MutexLock lock(mutex_);
  return size_;
}

template <typename Unit>
PrefixTreeStats PrefixTree<Unit>::Tree::stats() {
  const MutexLock lock(mutex_);
  return {
      .workers = active_.count(),
      .nodes = node_count_,
      .owners = pairs_,
      .size = size_,
      .memory = memory(),
      .starts = starts_,
      .inserts = inserts_,
      .evicted = evicted_,
      .evicted_size = evicted_size_,
      .removing = sweeping_.size()};
}

// ---- dispatch

template <typename Unit>
PrefixTree<Unit>::PrefixTree(const PrefixTreeOptions& options) : tree_(std::make_unique<Tree>(options)) {
  ROUTER_CHECK(
      options.page_size > 0 && options.page_size <= kMaxBlockSize,
      "page_size of a prefix tree must be 1 to kMaxBlockSize");
}
template <typename Unit>
PrefixTree<Unit>::~PrefixTree() = default;
template <typename Unit>
void PrefixTree<Unit>::Save(ImageWriter* image) {
  tree_->Save(image);
}
template <typename Unit>
StatusOr<std::unique_ptr<PrefixTree<Unit>>> PrefixTree<Unit>::Load(ImageReader* image) {
  PrefixTreeOptions options;
  options.max_size = image->Number<uint64_t>();
  options.max_memory = image->Number<uint64_t>();
  const auto eviction = image->Number<uint32_t>();
  options.page_size = image->Number<uint32_t>();
  if (options.max_size == 0) return BadImage("its limit (max_tree_size) is 0; it must be 1 or more bytes");
  if (eviction > static_cast<uint32_t>(EvictionOrder::kPriority)) {
    return BadImage("its order of eviction is ", eviction, "; it must be 0 to 5");
  }
  if (options.page_size == 0 || options.page_size > kMaxBlockSize) {
    return BadImage("its page size is ", options.page_size, "; it must be 1 to ", kMaxBlockSize, " tokens");
  }
  options.eviction = static_cast<EvictionOrder>(eviction);
  auto tree = std::make_unique<PrefixTree>(options);
  ROUTER_RETURN_IF_ERROR(tree->tree_->Load(image));
  return tree;
}
template <typename Unit>
bool PrefixTree<Unit>::Has(WorkerSlot worker) const {
  return tree_->Has(worker);
}
template <typename Unit>
size_t PrefixTree<Unit>::slots() const {
  return tree_->slots();
}
template <typename Unit>
StatusOr<WorkerSlot> PrefixTree<Unit>::AddWorker() {
  return tree_->AddWorker();
}
template <typename Unit>
void PrefixTree<Unit>::RemoveWorker(WorkerSlot worker) {
  tree_->RemoveWorker(worker);
}
template <typename Unit>
void PrefixTree<Unit>::Match(Text text, PrefixMatches* matches) const {
  tree_->Match(text, matches);
}
template <typename Unit>
uint64_t PrefixTree<Unit>::Insert(
    Text text, WorkerSlot worker, const PrefixInsert& insert, const PrefixMatches* walked) {
  return tree_->Insert(text, worker, insert, walked);
}
template <typename Unit>
void PrefixTree<Unit>::Confirm(uint64_t claim) {
  tree_->Confirm(claim);
}
template <typename Unit>
void PrefixTree<Unit>::Withdraw(uint64_t claim) {
  tree_->Withdraw(claim);
}
template <typename Unit>
uint64_t PrefixTree<Unit>::EvictWorker(WorkerSlot worker, uint64_t max_size) {
  return tree_->EvictWorker(worker, max_size);
}
template <typename Unit>
bool PrefixTree<Unit>::Trim(size_t pairs, uint64_t max_size) {
  return tree_->Trim(pairs, max_size);
}
template <typename Unit>
uint64_t PrefixTree<Unit>::size(WorkerSlot worker) const {
  return tree_->size(worker);
}
template <typename Unit>
void PrefixTree<Unit>::Sizes(std::span<const WorkerSlot> workers, std::span<uint64_t> sizes) const {
  tree_->Sizes(workers, sizes);
}
template <typename Unit>
uint64_t PrefixTree<Unit>::size() const {
  return tree_->size();
}
template <typename Unit>
const PrefixTreeOptions& PrefixTree<Unit>::options() const {
  return tree_->options;
}
template <typename Unit>
PrefixTreeStats PrefixTree<Unit>::stats() const {
  return tree_->stats();
}

template class PrefixTree<char>;
template class PrefixTree<uint32_t>;

}  // namespace vllm_router
