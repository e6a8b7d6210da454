#include "proxy/security/key_set.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>
#include <span>

#include "base/check.h"
#include "base/limits.h"
#include "base/random.h"
#include "base/text.h"

namespace vllm_router {
namespace {

constexpr std::string_view kDigestPrefix = "sha256:";

std::optional<Digest256> ParseDigest(std::string_view digits) {
  Digest256 digest;
  if (digits.size() != 2 * digest.size()) return std::nullopt;
  for (size_t i = 0; i < digest.size(); ++i) {
    const int high = HexDigit(digits[2 * i]);
    const int low = HexDigit(digits[2 * i + 1]);
    if (high < 0 || low < 0) return std::nullopt;
    digest[i] = static_cast<uint8_t>(high * 16 + low);
  }
  return digest;
}

template <typename... Parts>
Status Bad(std::string_view name, const Parts&... parts) {
  return absl::InvalidArgumentError(Concat(name, parts...));
}

// A line that is a key.
struct Line {
  size_t number;
  Digest256 digest;
  KeyGrant grant;
};

StatusOr<Line> ReadLine(
    std::string_view text, size_t number, std::string_view name, KeySet::Attributes attributes) {
  const std::string_view key = text.substr(0, text.find_first_of(" \t"));
  const std::string_view behind = text.substr(key.size());
  if (key.size() > kMaxApiKeyBytes) {
    return Bad(
        name, ", line ", number, ": the key has ", key.size(), " bytes; a key has at most ", kMaxApiKeyBytes);
  }
  const bool is_plain =
      std::ranges::all_of(text, [](char c) { return (c >= 0x20 && c < 0x7f) || c == '\t'; });
  if (!is_plain) {
    return Bad(
        name, ", line ", number,
        ": it has a character that is neither printable ASCII nor a blank; remove it");
  }
  Line line{.number = number, .digest = {}, .grant = {}};
  if (!behind.empty() && attributes == KeySet::Attributes::kRejected) {
    return Bad(
        name, ", line ", number,
        ": something follows the key, and admins' keys have no attributes; put each key on a line of its "
        "own");
  }
  StatusOr<KeyGrant> grant = ParseKeyAttributes(behind);
  if (!grant.ok()) return Bad(name, ", line ", number, ": ", std::string(grant.status().message()));
  line.grant = *std::move(grant);
  if (key.starts_with(kDigestPrefix)) {
    const std::optional<Digest256> digest = ParseDigest(key.substr(kDigestPrefix.size()));
    if (!digest.has_value()) {
      return Bad(name, ", line ", number, ": 64 hexadecimal digits must follow sha256:");
    }
    line.digest = *digest;
  } else {
    line.digest = Sha256({key});
  }
  return line;
}

}  // namespace

StatusOr<KeySet> KeySet::Parse(std::string_view text, std::string_view name, Attributes attributes) {
  if (text.size() > kMaxKeyFileBytes) {
    return Bad(name, " has ", text.size(), " bytes; a file of keys has at most ", kMaxKeyFileBytes);
  }
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);  // the byte order mark of some editors
  std::vector<Line> lines;
  for (size_t number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    line = TrimBlanks(line);
    if (line.empty() || line.front() == '#') continue;
    StatusOr<Line> read = ReadLine(line, number, name, attributes);
    if (!read.ok()) return read.status();
    lines.push_back(*std::move(read));
    if (lines.size() > kMaxApiKeys) {
      return Bad(name, " has more than ", kMaxApiKeys, " keys, which is the limit");
    }
  }
  if (lines.empty()) {
    return Bad(
        name,
        " has no key, so every request would be rejected; put at least one in it, on a line of its own");
  }
  std::ranges::stable_sort(lines, {}, &Line::digest);
  KeySet keys;
  const Line* before = nullptr;
  for (const Line& line : lines) {
    if (before != nullptr && before->digest == line.digest) {
      if (before->grant == line.grant) continue;
      return Bad(
          name, ", line ", line.number, ": the key is that of line ", before->number,
          " with other attributes; leave one of the two lines");
    }
    before = &line;
    keys.digests_.push_back(line.digest);
    keys.grants_.push_back(line.grant.empty() ? nullptr : std::make_shared<const KeyGrant>(line.grant));
    keys.has_attributes_ |= !line.grant.empty();
  }
  keys.MakeTable();
  return keys;
}

bool operator==(const KeySet& a, const KeySet& b) {
  return a.digests_ == b.digests_ &&
         std::ranges::equal(a.grants_, b.grants_, [](const auto& one, const auto& other) {
           return one == other || (one != nullptr && other != nullptr && *one == *other);
         });
}

// ---- the table

// Of all bytes, since a file may have digests that begin alike.
uint64_t KeySet::HashOf(const Digest256& digest, const Salt& salt) {
  __extension__ using Wide = unsigned __int128;
  Salt words;
  std::memcpy(words.data(), digest.data(), sizeof words);
  uint64_t hash = 0;
  for (size_t i = 0; i < words.size(); i += 2) {
    const Wide product = static_cast<Wide>(words[i] ^ salt[i]) * (words[i + 1] ^ salt[i + 1]);
    hash ^= static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
  }
  return hash;
}

size_t KeySet::SlotOf(uint64_t hash, uint32_t seed) const {
  // Each seed gives other slots.
  return Mix64(hash + seed * 0x9e3779b97f4a7c15u) & (slots_.size() - 1);
}

// A salt fails if it gives two digests one hash, or a bucket that no seed serves: once in many thousands of sets.
void KeySet::MakeTable() {
  constexpr int kTries = 100;
  uint64_t salt = Random::EntropySeed();
  for (int i = 0; i < kTries; ++i, ++salt) {
    if (TryTable(salt)) return;
  }
  ROUTER_CHECK(false, "some salt tells all digests apart");
}

bool KeySet::TryTable(uint64_t salt) {
  constexpr uint32_t kSeeds = 10'000;
  constexpr size_t kKeysPerBucket = 4;
  Random random(salt);
  for (uint64_t& word : salt_) word = random.Next();
  slots_.assign(std::bit_ceil(2 * size()), kNone);
  const size_t buckets = std::bit_ceil(size() / kKeysPerBucket + 2);
  bucket_shift_ = 64 - std::countr_zero(buckets);
  seeds_.assign(buckets, 0);

  std::vector<uint64_t> hashes(digests_.size());
  std::vector<std::vector<uint32_t>> places(buckets);
  for (uint32_t place = 1; place < digests_.size(); ++place) {
    hashes[place] = HashOf(digests_[place], salt_);
    places[BucketOf(hashes[place])].push_back(place);
  }
  std::vector<size_t> order(buckets);
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(
      order, [&places](size_t a, size_t b) { return places[a].size() > places[b].size(); });

  const auto fill = [&](std::span<const uint32_t> members, uint32_t seed) {
    for (size_t i = 0; i < members.size(); ++i) {
      uint32_t& slot = slots_[SlotOf(hashes[members[i]], seed)];
      if (slot == kNone) {
        slot = members[i];
        continue;
      }
      while (i-- > 0) slots_[SlotOf(hashes[members[i]], seed)] = kNone;
      return false;
    }
    return true;
  };
  for (const size_t bucket : order) {
    uint32_t seed = 0;
    while (seed < kSeeds && !fill(places[bucket], seed)) ++seed;
    if (seed == kSeeds) return false;
    seeds_[bucket] = seed;
  }
  return true;
}

uint32_t KeySet::PlaceOf(const Digest256& digest) const {
  const uint64_t hash = HashOf(digest, salt_);
  const uint32_t place = slots_[SlotOf(hash, seeds_[BucketOf(hash)])];
  const Digest256& known = digests_[place];
  uint64_t difference = 0;
  for (size_t at = 0; at < digest.size(); at += 8) {
    uint64_t a;
    uint64_t b;
    std::memcpy(&a, digest.data() + at, sizeof a);
    std::memcpy(&b, known.data() + at, sizeof b);
    difference |= a ^ b;
  }
  // All ones if there is no difference, without a branch.
  const uint64_t is_equal = ((difference | (0 - difference)) >> 63) - 1;
  return place & static_cast<uint32_t>(is_equal);
}

std::optional<KeyMatch> KeySet::Find(std::string_view key) const {
  const Digest256 digest = Sha256({key});
  const uint32_t place = PlaceOf(digest);
  if (place == kNone) return std::nullopt;
  return KeyMatch{.digest = digest, .grant = grants_[place], .in_file = true};
}

}  // namespace vllm_router
