// The prefix digest: one name for all requests with the same text before the conversation proper.
//
//   SHA-256(model 00 'S' system[:L])    there is a system text: Anthropic's `system`, Responses' `instructions`, else
//                                       the first message with the role system or developer
//   SHA-256(model 00 'M' first[:L])     there is none: the first message of another role, or the prompt of a completion
//   SHA-256(model 00 'T' ids[:L])       the prompt is token ids: as little-endian u32, as many whole ones as fit in L
//
//   {"model": "llama-3", "messages": [{"role": "system", "content": "Be kind."}, …]}  ->  llama-3 00 S Be kind.
//
// L is in bytes; a text is cut back to a whole UTF-8 character. Of a list of parts the text parts count,
// one after the other without separator. An empty text counts as none; without any text there is no
// digest. Routers that agree on L agree on digests, whatever their version.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "hashing/sha256.h"

namespace vllm_router {

inline constexpr size_t kDefaultPrefixLength = 1024;
inline constexpr size_t kMaxPrefixLength = 1024 * 1024;

// The input of the digest, without the model.
struct PrefixAnchor {
  enum class Kind : char { kMissing = 0, kSystem = 'S', kMessage = 'M', kTokens = 'T' };
  Kind kind = Kind::kMissing;
  std::string bytes;  // cut at L; may be empty when the first character is longer than L
};

// Anchors of requests that are not JSON; missing when they are empty.
PrefixAnchor AnchorOfText(std::string_view prompt, size_t limit);
PrefixAnchor AnchorOfTokens(std::span<const uint32_t> ids, size_t limit);

// REQUIRES: the anchor is not missing.
Digest256 PrefixDigest(std::string_view model, const PrefixAnchor& anchor);

}  // namespace vllm_router
