// Cacheability: whether a response may be given to a later request that is equal, by the request and by the response.
//
//   JudgeHead(head, rules) ─▶ JudgeBody(path, body, rules) ─▶ KeyOf(…) ─▶ … ─▶ JudgeResponse(path, is_stream, body)
//
// A request qualifies if engines respond to it greedily (temperature 0), if all that shapes the response is in its
// path, query and members, and if two JSON parsers cannot read it differently. What only looks harmless is not cached:
// a second request costs time, a wrong response costs trust.
//
// Pure; any thread. Cost: of a request some comparisons per member; a search through its text for media that it only
// names. Of a response one pass, after its last byte went to the client.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/header_field.h"
#include "response_cache/request_digest.h"
#include "routing/body_map.h"

namespace vllm_router {

// Why a request is not looked up in the response cache; labels of response_cache_bypass_total.
enum class CacheBypass : uint8_t {
  kNone,
  kRoute,              // not one that is cached
  kContent,            // not plain application/json, or a part of it
  kHeader,             // a header asks for it, or changes the response
  kTenant,             // the header that names the tenant is missing
  kBodySize,           // longer than max_request_size
  kNotJson,            // not one JSON object, or one of very many members
  kOddNames,           // a name twice, or with an escape
  kTemperature,        // not 0
  kTemperatureAbsent,  // engines do not default to 0
  kState,              // it reads or writes what outlives it
  kRemoteMedia,        // an image or file that only its URL or id names
  kUncoveredMember,    // of seed 004's key
  kStream,             // streams are not cached
  kStoreDown,          // Redis is, and memory does not serve in its place
  kMemory,             // a stored response is there, but no room to hold it while it is sent
};
inline constexpr size_t kCacheBypasses = 16;
std::string_view CacheBypassName(CacheBypass why);

enum class CacheKeyScheme : uint8_t { kCanonical, kSeed004 };
enum class CacheTenant : uint8_t { kCredential, kHeader, kHeaderAndCredential, kShared };

// Settings of the response cache that decide about requests; those of python/vllm_router/settings/table.py.
struct CacheRules {
  std::vector<std::string> routes = {"/v1/chat/completions", "/v1/completions"};
  bool absent_temperature = false;  // counts as 0
  CacheKeyScheme key_scheme = CacheKeyScheme::kCanonical;
  std::vector<std::string> ignored_members;  // of IgnorableMembers()
  CacheTenant tenant = CacheTenant::kCredential;
  std::string tenant_header;  // for kHeader and kHeaderAndCredential
  uint64_t max_request_bytes = 1 << 20;

  // They are part of the key, so that the responses of one model can be invalidated.
  bool has_generations() const { return key_scheme == CacheKeyScheme::kCanonical; }

  bool operator==(const CacheRules&) const = default;
};

// Members that change no response, which --response-cache-key-ignore may name.
std::span<const std::string_view> IgnorableMembers();
// Routes that may be cached at all; others keep state at a worker, or are not known to be deterministic.
std::span<const std::string_view> CacheableRoutes();

// Of a request's head, before its body is there. `body_bytes`: as announced.
struct CacheRequestHead {
  std::string_view method;
  std::string_view path;
  std::span<const HeaderField> fields;
  std::optional<uint64_t> body_bytes = {};

  // Where clients are told apart, whose tenants share no response, unless the rules say kShared.
  enum class Client : uint8_t {
    kUnknown,
    kOfKey,      // the credential tells it from others
    kOfPeer,     // several have the credential of a gateway
    kAmbiguous,  // the gateway names several
  };
  Client client = Client::kUnknown;
  std::string_view client_tenant = {};
};
CacheBypass JudgeHead(const CacheRequestHead& head, const CacheRules& rules);
CacheBypass JudgeBody(std::string_view path, const BodyMap& body, const CacheRules& rules);

// True: the client wants a response of a worker, though it may be kept (Cache-Control: no-cache).
bool WantsFresh(std::span<const HeaderField> fields);
// True: `stream` is true.
bool WantsStream(const BodyMap& body);

// `model`: that a body which names none is for, which is as if it named this one; empty: not known. REQUIRES: JudgeHead()
// and JudgeBody() were kNone.
CacheKey CacheKeyOf(
    const CacheRequestHead& head, std::string_view query, const BodyMap& body, const CacheRules& rules,
    uint64_t generation, std::string_view model = {});

// Why a response is not kept; labels of response_cache_not_stored_total.
enum class NotStored : uint8_t {
  kNone,
  kStatus,       // not 200
  kIncomplete,   // cut off, or its end cannot be seen
  kSize,         // longer than the limit
  kType,         // another type than the request asks for, encoded, or marked as private
  kErrorInside,  // an error, or a generation that was ended early
  kGeneration,   // invalidated meanwhile
  kMemory,       // too much is being captured or waits to be stored
};
inline constexpr size_t kNotStoredReasons = 8;
std::string_view NotStoredName(NotStored why);

// Of a response's head. `has_end`: its framing tells where the body ends.
struct CacheResponseHead {
  int status = 0;
  std::span<const HeaderField> fields;
  bool has_end = false;
  std::optional<uint64_t> body_bytes = {};  // as announced
};
NotStored JudgeResponseHead(const CacheResponseHead& head, bool is_stream, uint64_t max_bytes);
// Of its whole body, without framing. A stream has come to its end marker without an error in any event, and each of its
// choices has ended.
NotStored JudgeResponseBody(std::string_view path, bool is_stream, std::string_view body);

// The same of a stream, in steps: 1 MiB of small events takes some milliseconds. Path and body outlive it. One thread.
class StreamJudge {
 public:
  StreamJudge(std::string_view path, std::string_view body);
  // Looks at about so many bytes more. False: the verdict is there.
  bool Step(size_t bytes);
  NotStored verdict() const { return verdict_; }

 private:
  bool TakeEvent(std::string_view data);
  NotStored AtEnd() const;

  const std::string_view path_;
  std::string_view rest_;
  std::map<std::string_view, bool> ended_;  // by the index of a choice
  bool done_ = false;                       // the end marker came
  bool closed_ = false;                     // as [DONE], perhaps behind another one
  bool odd_ = false;                        // something is not as engines write it
  bool failed_ = false;                     // a choice ended otherwise than it should
  bool judged_ = false;
  NotStored verdict_ = NotStored::kNone;
};

}  // namespace vllm_router
