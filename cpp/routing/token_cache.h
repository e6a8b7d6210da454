// TokenCache: the token ids of texts that a worker has been asked about, so that it is asked once for a conversation and
// not for every turn.
//
//   turn 1   \x1Esystem..\x1Euser..                              asked, its ids kept under the name of the whole text
//   turn 2   \x1Esystem..\x1Euser..\x1Eassistant..\x1Euser..     begins with a text that is known: its ids are used again
//            `------ known ------'`------- the rest -------'
//
// Texts are known by names, 128-bit hashes chained from item to item (routing_text.h: an item begins with RS), so no text is
// kept and the names of all beginnings of a text cost one pass over it. Two texts share a name once in 2^128.
//
// Bounded in bytes: an entry counts its ids, 4 bytes each, and kEntryBytes besides; the least recently used go first, and a
// text that alone is over the bound is not kept. Cost of Find: one look-up in a hash table per item, from the last one back.
// Thread-safe: one mutex, a leaf, held for the look-ups.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "hashing/hash.h"

namespace vllm_router {

// A text's first `size` bytes, by name.
struct TextPrefix {
  Hash128 name;
  size_t size;
};

// A text of more items is named at the first of them and as a whole.
inline constexpr size_t kMaxNamedItems = 1024;

// The beginnings of `text` that are items whole, the text itself last. `is_chat` and `model` are part of every name, for
// the same bytes have other ids as a bare prompt or under another model. `out` is overwritten; never empty afterwards.
void NamePrefixes(std::string_view model, bool is_chat, std::string_view text, std::vector<TextPrefix>* out);

using PromptIds = std::vector<uint32_t>;

class TokenCache {
 public:
  static constexpr size_t kEntryBytes = 256;  // list and table nodes, and the vector

  explicit TokenCache(size_t capacity_bytes) : capacity_bytes_(capacity_bytes) {}

  // The longest of `prefixes` that is known; its ids are used once more. Null ids when none is.
  struct Known {
    std::shared_ptr<const PromptIds> ids;
    size_t text_size = 0;
  };
  // With `dry_run` it is not, and no figure of stats() moves.
  Known Find(std::span<const TextPrefix> prefixes, bool dry_run = false);

  // Replaces what was known under `name`.
  void Store(const Hash128& name, PromptIds ids);

  struct Stats {
    size_t entries = 0;
    size_t bytes = 0;
    uint64_t whole = 0;    // Find() knew the whole text
    uint64_t partial = 0;  // or what it begins with
    uint64_t unknown = 0;
    uint64_t evicted = 0;
  };
  Stats stats() const;

 private:
  struct Entry {
    Hash128 name;
    std::shared_ptr<const PromptIds> ids;
    size_t bytes() const { return kEntryBytes + ids->size() * sizeof(uint32_t); }
  };
  struct NameHash {
    size_t operator()(const Hash128& name) const { return name.low; }
  };
  struct NameEqual {
    bool operator()(const Hash128& a, const Hash128& b) const { return a.low == b.low && a.high == b.high; }
  };

  const size_t capacity_bytes_;
  mutable std::mutex mutex_;  // guards what follows
  std::list<Entry> entries_;  // the most recently used first
  std::unordered_map<Hash128, std::list<Entry>::iterator, NameHash, NameEqual> by_name_;
  Stats stats_;
};

}  // namespace vllm_router
