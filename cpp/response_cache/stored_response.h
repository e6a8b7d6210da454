// StoredResponse: a whole response to a request, as it is kept in memory and in Redis.
//
//    0  "VRC1"         4  version u8 = 1      5  kind u8: 0 body, 1 event stream    6  flags u16: 1 = signed
//    8  stored at, Unix ms u64               16  expires at, Unix ms u64
//   24  prompt tokens u32                    28  completion tokens u32              2^32-1: unknown
//   32  the key, 32 bytes                    64  h u32                 68  zero u32        72  n u64
//   80  h bytes of header lines, each with CRLF; n bytes of body without framing;
//       XXH3-64 of all before, 8 bytes; or, signed, HMAC-SHA256 of it, 32 bytes
//
// Numbers are little-endian. Whoever may write to the Redis of a router can put anything under any key. So a blob
// is used only if every byte of it is as a router of this version writes it: magic, key, lengths, expiry and checksum;
// with an integrity key, only if it is signed with that key. Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "response_cache/request_digest.h"

namespace vllm_router {

struct StoredResponse {
  enum class Kind : uint8_t { kBody = 0, kEventStream = 1 };

  Kind kind = Kind::kBody;
  int64_t stored_at_ms = 0;   // Unix time
  int64_t expires_at_ms = 0;  // Unix time
  std::optional<uint32_t> prompt_tokens = {};
  std::optional<uint32_t> completion_tokens = {};
  std::string_view fields;  // "content-type: application/json\r\n"
  std::string_view body;
};

inline constexpr size_t kStoredHeadBytes = 80;
inline constexpr size_t kMaxStoredFields = 4096;  // bytes of header lines

// `integrity_key`: empty for none. REQUIRES: at most kMaxStoredFields bytes of header lines.
std::string EncodeStored(const CacheKey& key, const StoredResponse& response, std::string_view integrity_key);

// Views into `blob`. An error says what is wrong with it: NotFound if it has expired, else DataLoss.
StatusOr<StoredResponse> DecodeStored(
    const CacheKey& key, std::string_view blob, std::string_view integrity_key, int64_t now_ms);

}  // namespace vllm_router
