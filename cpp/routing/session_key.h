// The session key: the session or user of a request, as one string. First hit wins
// (docs/reference/policies.md, "Keys of the hash policies"):
//
//   headers   x-session-id (and aliases), x-user-id, x-tenant-id, x-request-id, x-correlation-id, x-trace-id
//   body      session_params.session_id, metadata.user_id's session, prompt_cache_key, conversation,
//             conversation_id, user, session_id, user_id               top-level JSON members only
//   opening   opening:<16 hex> over a conversation's routing text before the model's first item: the same in
//             all its turns
//   digest    request_hash:<16 hex> over the raw body, else prompt, else token ids
//
// If a header is sent twice the first counts; blanks at both ends are trimmed; an empty value is no
// hit.
//
//   SessionKeyFinder finder({});
//   finder.FindInHeaders({{"X-Session-ID", "abc"}})     ->  "header:x-session-id:abc"
//
// Cost: one pass over the headers, 5 ns each (names are told apart by length first), and the key's
// bytes; without a header one pass over the body, of which the opening is copied. A const finder may be
// shared; any thread.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/header_field.h"
#include "hashing/hash.h"
#include "policy/routing_key.h"
#include "routing/request_fields.h"
#include "routing/request_view.h"
#include "routing/routing_text.h"

namespace vllm_router {

// A list of header names longer than this is a mistake; Router::Create rejects it.
inline constexpr size_t kMaxKeyHeaders = 64;

struct SessionKeyOptions {
  enum class Order : uint8_t { kSeed, kReference };
  Order order = Order::kSeed;        // which of x-request-id and x-correlation-id comes first
  std::vector<std::string> headers;  // not empty: replaces the header ranks, aliases included
  bool aliases = true;  // x-claude-code-session-id and friends count as x-session-id when it is absent
  enum class Fallback : uint8_t { kOpening, kBody };
  Fallback fallback = Fallback::kOpening;  // the digest that is the key of a request that names no session
  bool compat =
      false;  // keys as the reference's: its order and members, no aliases, "request:S", the body's digest
  HashFunction digest_function = HashFunction::kFurc;
};

class SessionKeyFinder {
 public:
  explicit SessionKeyFinder(const SessionKeyOptions& options);

  // True if the headers are enough, so that the body need not be read.
  bool HasHeader(std::span<const HeaderField> headers) const { return Locate(headers).has_value(); }

  // From the headers alone; empty if none of them has a value.
  std::string FindInHeaders(std::span<const HeaderField> headers) const;

  // Headers, then body; false if neither names a session. Fills key->hash_key and hash_key_source then.
  // `fields` as below.
  bool FindSession(
      const RequestView& request, RoutingKey* key, std::optional<RequestFields>* fields = nullptr) const;

  // The keys of all requests that name this session, by any header or member.
  std::vector<std::string> KeysOf(std::string_view session_id) const;

  // Headers, then body, then a digest. Fills key->hash_key and hash_key_source. `fields` is set if this
  // had to parse the body.
  void Find(
      const RequestView& request, RoutingKey* key, std::optional<RequestFields>* fields = nullptr) const;

 private:
  struct Hit {
    std::string_view name;  // lower case
    std::string_view value;
  };
  std::optional<Hit> Locate(std::span<const HeaderField> headers) const;
  std::string CompatKey(std::string_view session) const;
  // As FindSession(). `opening`: to be filled as well, if the body has to be parsed; null: not wanted.
  bool FindNamed(
      const RequestView& request, RoutingKey* key, std::optional<RequestFields>* fields,
      RoutingText* opening) const;
  bool FindInFields(const RequestFields& fields, std::string_view path, std::string* key) const;
  bool FindDigest(const RequestView& request, std::string* key) const;

  std::vector<std::string> ranked_headers_;  // lower case, best first, aliases in their place
  uint64_t lengths_ = 0;                     // bit n: some ranked header's name has n bytes
  const bool compat_;
  const bool by_opening_;
  HashFunction digest_function_;
};

}  // namespace vllm_router
