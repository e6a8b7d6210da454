#include "routing/prefix_digest.h"

#include <algorithm>
#include <bit>

#include "base/text.h"

namespace vllm_router {

PrefixAnchor AnchorOfText(std::string_view prompt, size_t limit) {
  if (prompt.empty()) return {};
  return {PrefixAnchor::Kind::kMessage, std::string(CutAtCharacter(prompt, limit))};
}

PrefixAnchor AnchorOfTokens(std::span<const uint32_t> ids, size_t limit) {
  static_assert(std::endian::native == std::endian::little, "token ids are hashed as little-endian u32");
  if (ids.empty()) return {};
  const auto fit = ids.first(std::min(ids.size(), limit / sizeof(uint32_t)));
  return {
      PrefixAnchor::Kind::kTokens, std::string(reinterpret_cast<const char*>(fit.data()), fit.size_bytes())};
}

Digest256 PrefixDigest(std::string_view model, const PrefixAnchor& anchor) {
  const char tag[2] = {'\0', static_cast<char>(anchor.kind)};
  return Sha256({model, {tag, sizeof tag}, anchor.bytes});
}

}  // namespace vllm_router
