#include "response_cache/stored_response.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/check.h"
#include "hashing/hash.h"

namespace vllm_router {
namespace {

constexpr std::string_view kMagic = "VRC1";
constexpr uint8_t kVersion = 1;
constexpr uint16_t kSigned = 1;
constexpr uint32_t kUnknown = UINT32_MAX;
constexpr size_t kChecksumBytes = 8;
constexpr size_t kSignatureBytes = 32;

static_assert(std::endian::native == std::endian::little, "stored numbers are little-endian");

template <typename Number>
void Put(Number number, std::string* out) {
  out->append(reinterpret_cast<const char*>(&number), sizeof(Number));
}

template <typename Number>
Number Get(std::string_view blob, size_t at) {
  Number number;
  std::memcpy(&number, blob.data() + at, sizeof(Number));
  return number;
}

std::string Seal(std::string_view bytes, std::string_view integrity_key) {
  std::string seal;
  if (integrity_key.empty()) {
    Put(Xxh3(bytes), &seal);
  } else {
    const Digest256 digest = HmacSha256(integrity_key, bytes);
    seal.assign(digest.begin(), digest.end());
  }
  return seal;
}

// In constant time, so that a signature cannot be found byte by byte.
bool Equals(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  uint8_t difference = 0;
  for (size_t i = 0; i < a.size(); ++i) difference |= static_cast<uint8_t>(a[i] ^ b[i]);
  return difference == 0;
}

std::optional<uint32_t> Tokens(uint32_t told) {
  return told == kUnknown ? std::nullopt : std::optional<uint32_t>(told);
}

// "name: value" lines that end with CRLF and have no other line end inside: they become a part of a head.
bool AreFieldLines(std::string_view fields) {
  while (!fields.empty()) {
    const size_t end = fields.find("\r\n");
    if (end == std::string_view::npos) return false;
    const std::string_view line = fields.substr(0, end);
    const size_t colon = line.find(':');
    if (colon == 0 || colon == std::string_view::npos) return false;
    if (std::ranges::any_of(line, [](char c) { return c == '\r' || c == '\n' || c == '\0'; })) return false;
    fields.remove_prefix(end + 2);
  }
  return true;
}

}  // namespace

std::string EncodeStored(
    const CacheKey& key, const StoredResponse& response, std::string_view integrity_key) {
  ROUTER_CHECK(response.fields.size() <= kMaxStoredFields, "few header fields of a response are kept");
  std::string blob;
  blob.reserve(kStoredHeadBytes + response.fields.size() + response.body.size() + kSignatureBytes);
  blob.append(kMagic);
  Put<uint8_t>(kVersion, &blob);
  Put<uint8_t>(static_cast<uint8_t>(response.kind), &blob);
  Put<uint16_t>(integrity_key.empty() ? 0 : kSigned, &blob);
  Put<uint64_t>(static_cast<uint64_t>(response.stored_at_ms), &blob);
  Put<uint64_t>(static_cast<uint64_t>(response.expires_at_ms), &blob);
  Put<uint32_t>(response.prompt_tokens.value_or(kUnknown), &blob);
  Put<uint32_t>(response.completion_tokens.value_or(kUnknown), &blob);
  blob.append(reinterpret_cast<const char*>(key.data()), key.size());
  Put<uint32_t>(static_cast<uint32_t>(response.fields.size()), &blob);
  Put<uint32_t>(0, &blob);
  Put<uint64_t>(response.body.size(), &blob);
  blob.append(response.fields);
  blob.append(response.body);
  blob.append(Seal(blob, integrity_key));
  return blob;
}

StatusOr<StoredResponse> DecodeStored(
    const CacheKey& key, std::string_view blob, std::string_view integrity_key, int64_t now_ms) {
  const size_t seal_bytes = integrity_key.empty() ? kChecksumBytes : kSignatureBytes;
  const auto damaged = [](const char* what) { return absl::DataLossError(what); };
  if (blob.size() < kStoredHeadBytes + seal_bytes || !blob.starts_with(kMagic)) return damaged("no response");
  if (Get<uint8_t>(blob, 4) != kVersion) return damaged("another version");
  if (Get<uint16_t>(blob, 6) != (integrity_key.empty() ? 0 : kSigned)) {
    return damaged(integrity_key.empty() ? "signed, but there is no integrity key" : "not signed");
  }
  const std::string_view sealed = blob.substr(0, blob.size() - seal_bytes);
  if (!Equals(Seal(sealed, integrity_key), blob.substr(sealed.size()))) return damaged("another checksum");
  if (blob.substr(32, key.size()) !=
      std::string_view(reinterpret_cast<const char*>(key.data()), key.size())) {
    return damaged("of another key");
  }
  const uint8_t kind = Get<uint8_t>(blob, 5);
  if (kind > static_cast<uint8_t>(StoredResponse::Kind::kEventStream)) return damaged("of an unknown kind");
  const uint64_t fields = Get<uint32_t>(blob, 64);
  const uint64_t body = Get<uint64_t>(blob, 72);
  const uint64_t rest = sealed.size() - kStoredHeadBytes;
  if (Get<uint32_t>(blob, 68) != 0 || fields > kMaxStoredFields || fields > rest || body != rest - fields) {
    return damaged("of another length");
  }
  StoredResponse response{
      .kind = static_cast<StoredResponse::Kind>(kind),
      .stored_at_ms = Get<int64_t>(blob, 8),
      .expires_at_ms = Get<int64_t>(blob, 16),
      .prompt_tokens = Tokens(Get<uint32_t>(blob, 24)),
      .completion_tokens = Tokens(Get<uint32_t>(blob, 28)),
      .fields = blob.substr(kStoredHeadBytes, fields),
      .body = blob.substr(kStoredHeadBytes + fields, body)};
  if (!AreFieldLines(response.fields)) return damaged("with malformed header lines");
  if (response.expires_at_ms <= now_ms) return absl::NotFoundError("it has expired");
  return response;
}

}  // namespace vllm_router
