// KeySet: the API keys in a file, one per line, with what each may claim (admission/key_grant.h):
//
//   # team search
//   sk-search-5f0c
//   sk-chat-77aa      tenant=chat max_class=interactive
//   sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08     a key's digest, for a file
//                                                                               that others may read
//
// Only SHA-256 digests are kept, in a table without collisions:
//
//   digest --salted hash--> bucket --its seed--> slot --> the one digest that it is compared with, to its last byte
//
// So a lookup does the same for every key, present or not, and however many there are. The salt is drawn for each set, so
// nobody can choose keys by their slots. Cost: 0.15 us, of which nearly all is the digest; Parse() takes 6 ms for 10,000
// keys (benchmarks/micro/key_set.cc). Immutable; any thread.
//
// "Hash, displace, and compress" (Belazzougui, Botelho and Dietzfelbinger, ESA 2009), without the compression.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "admission/key_grant.h"
#include "base/status.h"
#include "hashing/sha256.h"

namespace vllm_router {

// A key that was found.
struct KeyMatch {
  Digest256 digest{};
  std::shared_ptr<const KeyGrant> grant = {};  // null: it has no attributes
  bool in_file = false;                        // false: a validator knows it
};

class KeySet {
 public:
  enum class Attributes : uint8_t { kTaken, kRejected };
  // `name`: of the file, for messages, which give the line number and never its content. InvalidArgument
  // for a key that no header can carry or that is too long, for attributes that are wrong or rejected, for a key that is
  // there twice with different ones, for too many keys, and for a file without any.
  static StatusOr<KeySet> Parse(
      std::string_view text, std::string_view name, Attributes attributes = Attributes::kTaken);

  std::optional<KeyMatch> Find(std::string_view key) const;
  bool Contains(std::string_view key) const { return PlaceOf(Sha256({key})) != kNone; }
  size_t size() const { return digests_.size() - 1; }
  // Of any key.
  bool has_attributes() const { return has_attributes_; }
  friend bool operator==(const KeySet& a, const KeySet& b);

 private:
  static constexpr uint32_t kNone = 0;

  void MakeTable();
  bool TryTable(uint64_t salt);
  using Salt = std::array<uint64_t, 4>;  // a word for each of a digest

  static uint64_t HashOf(const Digest256& digest, const Salt& salt);
  size_t BucketOf(uint64_t hash) const { return hash >> bucket_shift_; }
  size_t SlotOf(uint64_t hash, uint32_t seed) const;
  // Its place among the digests.
  uint32_t PlaceOf(const Digest256& digest) const;

  // Each key once, in their order, behind one that is none.
  std::vector<Digest256> digests_{Digest256{}};
  std::vector<std::shared_ptr<const KeyGrant>> grants_{nullptr};  // of each
  bool has_attributes_ = false;
  Salt salt_{};
  std::vector<uint32_t> seeds_;  // of each bucket
  std::vector<uint32_t> slots_;  // places; kNone where there is no key
  int bucket_shift_ = 0;
};

}  // namespace vllm_router
