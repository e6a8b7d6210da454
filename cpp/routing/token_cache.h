// TokenCache: the token ids of texts that a worker has tokenized, so that one call serves a
// conversation and not every turn needs one.
//
//   turn 1   \x1Esystem..\x1Euser..                              a call; its ids are kept for the whole text
//   turn 2   \x1Esystem..\x1Euser..\x1Eassistant..\x1Euser..     starts with a known text: its ids are reused
//            `------ known ------'`------- the rest -------'
//
// Texts are known by names, 128-bit hashes chained from item to item (routing_text.h: an item begins
// with RS), so no text is kept and the names of all prefixes of a text cost one pass over it. Two texts
// share a name with probability 2^-128.
//
// Bounded in bytes: an entry counts its ids, 4 bytes each, and kEntryBytes besides; the least recently
// used are evicted first, and a text that alone is over the bound is not kept. Cost of Find: one look-up
// in a hash table per item, from the last one back. Thread-safe: one mutex, a leaf, held for the
// look-ups.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"
#include "hashing/hash.h"
#include "policy/routing_key.h"

namespace vllm_router {

// A text's first `size` bytes, by name.
struct TextPrefix {
  Hash128 name;
  size_t size;
};

// A text of more items has names for the first so many of them and for the whole.
inline constexpr size_t kMaxNamedItems = 1024;

// The prefixes of `text` that consist of whole items, the text itself last. `model`, `call` and `options`
// (RoutingText::render_options) are part of every name, because the same bytes have other ids under another
// model, as a bare prompt, or with other options. `out` is overwritten; never empty afterwards.
void NamePrefixes(
    std::string_view model, TokenCall call, std::string_view options, std::string_view text,
    std::vector<TextPrefix>* out);

using PromptIds = std::vector<uint32_t>;

class TokenCache {
 public:
  static constexpr size_t kEntryBytes = 256;  // list and table nodes, and the vector

  explicit TokenCache(size_t capacity_bytes) : capacity_bytes_(capacity_bytes) {}

  // The longest of `prefixes` that is known; this counts as a use of its ids. Null ids when none is.
  struct Known {
    std::shared_ptr<const PromptIds> ids;
    size_t text_size = 0;
  };
  // With `dry_run` it does not count as a use, and no figure of stats() changes.
  Known Find(std::span<const TextPrefix> prefixes, bool dry_run = false);

  // Replaces the ids under `name`.
  void Store(const Hash128& name, PromptIds ids);

  struct Stats {
    size_t entries = 0;
    size_t bytes = 0;
    uint64_t whole = 0;    // Find() knew the whole text
    uint64_t partial = 0;  // or a prefix of it
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

  const size_t capacity_bytes_;
  mutable Mutex mutex_;
  std::list<Entry> entries_ ABSL_GUARDED_BY(mutex_);  // the most recently used first
  std::unordered_map<Hash128, std::list<Entry>::iterator, HashOf128> by_name_ ABSL_GUARDED_BY(mutex_);
  Stats stats_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace vllm_router
