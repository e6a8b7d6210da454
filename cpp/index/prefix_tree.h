// PrefixTree: how much of a prompt each worker has seen. StringTree remembers texts (bytes of UTF-8),
// TokenTree token ids in whole pages; both are this template, a radix tree whose nodes know every worker
// that owns them.
//
//   insert("You are kind. Hello", w1)      root --- "You are " ---+--- "kind. Hello"   owners w1       ends here
//   insert("You are a judge.", w2)              owners w1 w2      +--- "a judge."      owners w2       ends here
//
//   match("You are kind.")   w1: 13 bytes, w2: 8 bytes, from one walk
//
// A worker that owns a node owns its ancestors, so its match ends with the last node that it owns on
// the path. Memory is bounded: before a text is added, leaves of (worker, node) are evicted in the order
// of EvictionOrder until it fits. A worker's leaf is a node of which it owns no child, so prompts are
// forgotten from their ends. Ranks are kept in one heap of leaves per worker and a tournament of the
// heaps, and every structure grows in pieces: there is no walk over the tree and no rehash. Long texts
// are added in pieces of kMaxLabelBytes; between them other threads may enter.
//
// A text may be inserted as a claim (claim_table.h), for a request that has not ended. Every pair of
// worker and node knows whether it is permanent, because a request that ended well passed there, and how
// many claims end on it. Withdrawing a text evicts, from its end upwards, the worker's leaves that are
// not permanent and have no claim of another request.
//
// A tree also counts *starts*, the first requests of conversations, on every node that they pass,
// halved every kStartsPerHalving. It knows where earlier requests *ended*, so that a caller can tell a
// start from a turn that continues. PrefixMatches keeps the position of a match, so that the insert that
// follows it resumes there.
//
// Cost: a match reads the text once up to the first difference, about 0.1 us per node and 5 to 20 GB/s
// of label; an insert after it touches one or two nodes. 64 bytes per node and its label, 16 per further
// owner, 16 per leaf.
//
// Thread-safe: one mutex for all of it, a leaf lock, held for one walk. PrefixMatches: one per thread.
//
//   StringTree tree({.max_size = 64 << 20});
//   const WorkerSlot w1 = tree.AddWorker().value();
//   PrefixMatches matches;
//   tree.Match(text, &matches);                  // matches.best(), matches.entries(), matches.ends() ...
//   tree.Insert(text, w1, {}, &matches);
//
// Morrison, "PATRICIA" (1968), for the shape; Litwin, "Linear hashing" (VLDB 1980), for the table of
// children.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "base/limits.h"
#include "base/status.h"
#include "index/eviction_order.h"
#include "index/index_image.h"
#include "index/worker_slot.h"

namespace vllm_router {

struct PrefixTreeOptions {
  // Maximum bytes of distinct text, four per token, of all workers together. Never exceeded.
  uint64_t max_size = 64 * 1024 * 1024;
  // Maximum memory of the tree in bytes. Texts that share much but differ in short ends need more than
  // their size.
  uint64_t max_memory = std::numeric_limits<uint64_t>::max();
  EvictionOrder eviction = EvictionOrder::kLru;
  // TokenTree: the unit in which kernels cache; the part of a prompt behind its last whole page is not
  // remembered.
  uint32_t page_size = 16;
};

struct PrefixTreeStats {
  uint64_t workers = 0;
  uint64_t nodes = 0;
  uint64_t owners = 0;  // pairs of worker and node
  uint64_t size = 0;    // bytes of distinct text, four per token
  uint64_t memory = 0;  // bytes, all of it
  uint64_t starts = 0;  // with the halvings
  uint64_t inserts = 0;
  uint64_t evicted = 0;       // pairs evicted to keep a limit
  uint64_t evicted_size = 0;  // bytes of text that left with them
  uint64_t removing = 0;      // removed workers that are not yet swept
};

struct PrefixInsert {
  // The request has not ended: until Confirm() of the claim that Insert() returns, Withdraw() may take
  // the text back.
  bool is_open = false;
  bool is_start = false;  // counted on every node of the text
  int32_t priority = 0;   // kPriority: -2^19 .. 2^19 - 1, clamped
};

template <typename Unit>
class PrefixTree;

// The result of a match, in a buffer that its user keeps and reuses: no allocation once it has grown.
// Lengths are in units of the tree, bytes or tokens; those of text are rounded down to the start of a
// character.
class PrefixMatches {
 public:
  struct Entry {
    WorkerSlot owner;
    uint64_t matched;
  };

  PrefixMatches() : place_(std::make_unique<uint16_t[]>(kMaxWorkers)) { entries_.reserve(64); }

  uint64_t total() const { return total_; }  // length of the prompt
  // The longest match of any worker. 0: no worker has any part of it.
  uint64_t best() const { return entries_.empty() ? 0 : entries_.front().matched; }
  // Workers that own a part of it, the longest matches first, each once.
  std::span<const Entry> entries() const { return entries_; }
  // 0 for a worker that is not among them.
  uint64_t matched(WorkerSlot owner) const {
    const size_t place = place_[static_cast<size_t>(owner)];
    return place < entries_.size() && entries_[place].owner == owner ? entries_[place].matched : 0;
  }

  // Positions on this prompt where earlier prompts ended, ascending, within the text of the tree. For
  // token ids, ends within a page are included if the rest of that page is in this prompt too; then the
  // end may lie behind best().
  std::span<const uint64_t> ends() const { return ends_; }

  // Of starts() starts so many passed the node with the unit before `depth`. REQUIRES: depth <= best().
  uint64_t StartsAt(uint64_t depth) const {
    if (depth == 0) return starts_;
    for (const Step& step : steps_) {
      if (step.depth >= depth) return step.starts;
    }
    return 0;
  }
  uint64_t starts() const { return starts_; }

 private:
  template <typename Unit>
  friend class PrefixTree;

  struct Step {
    uint32_t node;
    uint32_t generation;
    uint64_t depth;  // common with the prompt
    uint32_t starts;
    bool whole;  // the whole label matched
  };

  void Clear(uint64_t total) {
    total_ = total;
    starts_ = 0;
    entries_.clear();
    ends_.clear();
    steps_.clear();
  }
  bool Has(WorkerSlot owner) const {
    const size_t place = place_[static_cast<size_t>(owner)];
    return place < entries_.size() && entries_[place].owner == owner;
  }
  void Add(WorkerSlot owner, uint64_t matched) {
    place_[static_cast<size_t>(owner)] = static_cast<uint16_t>(entries_.size());
    entries_.push_back({owner, matched});
  }

  uint64_t total_ = 0;
  uint64_t starts_ = 0;
  std::vector<Entry> entries_;
  std::vector<uint64_t> ends_;
  std::vector<Step> steps_;
  std::unique_ptr<uint16_t[]> place_;  // valid only if the entry there is of that owner
};

template <typename Unit>
class PrefixTree {
 public:
  using Text = std::span<const Unit>;

  // A longer text becomes several nodes, so that no thread waits for a copy of all of it.
  static constexpr size_t kMaxLabelBytes = size_t{32} * 1024;
  static constexpr uint32_t kStartsPerHalving = 1024;

  // REQUIRES: max_size >= 1; 0 < page_size <= kMaxBlockSize.
  explicit PrefixTree(const PrefixTreeOptions& options = {});
  ~PrefixTree();
  PrefixTree(const PrefixTree&) = delete;
  PrefixTree& operator=(const PrefixTree&) = delete;

  // Everything but claims: texts of open requests count as permanent. Other calls wait meanwhile.
  void Save(ImageWriter* image);
  // Restores what Save() wrote: it matches and evicts as the saved one would, except that the memory it
  // counts may be less. DataLoss for anything that no tree writes; the message is to follow the name of
  // the file.
  static StatusOr<std::unique_ptr<PrefixTree>> Load(ImageReader* image);

  // A worker that owns nothing. kResourceExhausted when there are kMaxWorkers, those not yet swept included.
  StatusOr<WorkerSlot> AddWorker();
  // Matched no more from now on; its pairs are evicted in slices, by inserts and by Trim(). Unknown
  // ones: no effect.
  void RemoveWorker(WorkerSlot worker);

  // Refreshes nothing: the insert that follows a decision does.
  void Match(Text text, PrefixMatches* matches) const;

  // `worker` owns this text from now on, and the text ends an earlier request. A text larger than
  // max_size is not added, nor is the last, incomplete page of token ids. Unknown workers: no effect.
  // `walked` is the result of Match() for the same text, however old; it saves most of the walk. The
  // claim is 0 when the text cannot be taken back: too many are open, or the worker owned it
  // permanently.
  uint64_t Insert(
      Text text, WorkerSlot worker, const PrefixInsert& insert = {}, const PrefixMatches* walked = nullptr);
  // The request has ended, and the worker has the text. Any thread, without the lock.
  void Confirm(uint64_t claim);
  // The worker never had it: it owns what it owned before, and the parts of other texts that are not
  // withdrawn. Evicted pairs do not come back; starts and ends stay counted.
  void Withdraw(uint64_t claim);

  // Evicts leaves of the worker until it owns at most `max_size` bytes; returns the number of bytes
  // evicted.
  uint64_t EvictWorker(WorkerSlot worker, uint64_t max_size);

  // For a background thread: evicts up to `pairs` of worker and node: pairs of removed workers, then
  // leaves in order while size() > max_size. True while there is more. Works in slices of up to 200 us,
  // between which other threads may enter.
  bool Trim(size_t pairs, uint64_t max_size);

  bool Has(WorkerSlot worker) const;
  size_t slots() const;                    // ids given out so far are below
  uint64_t size(WorkerSlot worker) const;  // bytes that it owns, four per token; 0 for unknown ones
  // The same for many at once. REQUIRES: as many elements in `sizes` as workers.
  void Sizes(std::span<const WorkerSlot> workers, std::span<uint64_t> sizes) const;
  uint64_t size() const;  // bytes of distinct text, four per token
  const PrefixTreeOptions& options() const;
  PrefixTreeStats stats() const;

 private:
  class Tree;
  const std::unique_ptr<Tree> tree_;
};

// UTF-8, but any bytes are allowed: each byte that is not UTF-8 counts as a character.
using StringTree = PrefixTree<char>;
using TokenTree = PrefixTree<uint32_t>;

extern template class PrefixTree<char>;
extern template class PrefixTree<uint32_t>;

}  // namespace vllm_router
