// The name under which the response to a request is kept: a SHA-256 over all that may change the response. Requests
// that could be responded to differently never share one.
//
//   F(x) = u64le(length of x) ++ x
//   key  = SHA256( "vllm-router/response-cache/1" 00
//                  F(path) F(query) F(tenant) F(u64le(generation))       tenant: 00, or 01 and its 32 bytes
//                  u32le(count)  and of each member, sorted by name: F(name) F(value) )
//
// Values are taken as they are spelled. So two spellings of one value are two keys: that costs a second request, and
// never a wrong response. Cost: 0.3 us and 0.6 ns per byte, with the processor's SHA instructions. Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "hashing/sha256.h"

namespace vllm_router {

using CacheKey = Digest256;

struct CacheKeyHash {
  size_t operator()(const CacheKey& key) const { return DigestWord(key, 0); }
};

// A top-level member of the request's JSON object.
struct RequestMember {
  std::string_view name;   // between its quotes, as spelled
  std::string_view value;  // as spelled
};

struct RequestIdentity {
  std::string_view path;   // of the request's target
  std::string_view query;  // without '?'; empty: none
  std::optional<Digest256> tenant = {};
  uint64_t generation = 0;  // grows when what is kept must not be used any more
};

// REQUIRES: no two members have one name, and no name has an escape.
CacheKey DigestRequest(const RequestIdentity& identity, std::vector<RequestMember> members);

// The key of seed 004, for --response-cache-key-scheme seed004:
//
//   SHA256( model 00 SHA256(messages) 00 temperature 00 max_tokens 00 top_p 00 tenant )
//
// temperature: binary64 in little-endian order, nothing if absent; max_tokens: 01 and u64le, or 00; top_p: 01 and
// binary64, or 00; tenant: 01 and its bytes, or 00. It holds only for requests without other members.
struct FiveParameters {
  std::string_view model;     // unescaped, UTF-8
  std::string_view messages;  // the raw value
  std::optional<double> temperature = {};
  std::optional<uint64_t> max_tokens = {};
  std::optional<double> top_p = {};
  std::optional<std::string_view> tenant = {};
};
CacheKey DigestFiveParameters(const FiveParameters& parameters);

// Who may share responses: all requests with the same credential, or the same value of the header that names a tenant.
Digest256 TenantOfCredential(std::string_view credential);
Digest256 TenantOfHeader(std::string_view value);
Digest256 TenantOfBoth(std::string_view value, std::string_view credential);

}  // namespace vllm_router
