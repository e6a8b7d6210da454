#include "proxy/security/key_set.h"

#include <algorithm>
#include <optional>

#include "base/limits.h"
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

}  // namespace

StatusOr<KeySet> KeySet::Parse(std::string_view text, std::string_view name) {
  if (text.size() > kMaxKeyFileBytes) {
    return Bad(name, " has ", text.size(), " bytes; a file of keys has at most ", kMaxKeyFileBytes);
  }
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);  // the byte order mark of some editors
  KeySet keys;
  for (size_t number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    line = TrimBlanks(line);
    if (line.empty() || line.front() == '#') continue;
    if (line.size() > kMaxApiKeyBytes) {
      return Bad(
          name, ", line ", number, ": the key has ", line.size(), " bytes; a key has at most ",
          kMaxApiKeyBytes);
    }
    for (const char c : line) {
      if (c > 0x20 && c < 0x7f) continue;
      return Bad(
          name, ", line ", number,
          ": the key has a blank or a character that is not printable ASCII; put each key on a line of its "
          "own");
    }
    if (line.starts_with(kDigestPrefix)) {
      const std::optional<Digest256> digest = ParseDigest(line.substr(kDigestPrefix.size()));
      if (!digest.has_value()) {
        return Bad(name, ", line ", number, ": 64 hexadecimal digits must follow sha256:");
      }
      keys.digests_.push_back(*digest);
    } else {
      keys.digests_.push_back(Sha256({line}));
    }
    if (keys.digests_.size() > kMaxApiKeys) {
      return Bad(name, " has more than ", kMaxApiKeys, " keys, which is the limit");
    }
  }
  if (keys.digests_.empty()) {
    return Bad(
        name,
        " has no key, so every request would be rejected; put at least one in it, on a line of its own");
  }
  std::sort(keys.digests_.begin(), keys.digests_.end());
  keys.digests_.erase(std::unique(keys.digests_.begin(), keys.digests_.end()), keys.digests_.end());
  return keys;
}

bool KeySet::Contains(std::string_view key) const {
  const Digest256 digest = Sha256({key});
  uint64_t found = 0;
  for (const Digest256& known : digests_) {
    uint64_t difference = 0;
    for (size_t at = 0; at < digest.size(); at += 8) {
      difference |= DigestWord(digest, at) ^ DigestWord(known, at);
    }
    // 1 if there is no difference, without a branch.
    found |= ((difference | (0 - difference)) >> 63) ^ 1;
  }
  return found != 0;
}

}  // namespace vllm_router
