// The session key: who a request belongs to, as one string (policies.md 2.1). First hit wins:
//
//   headers   x-session-id (and aliases), x-user-id, x-tenant-id, x-request-id, x-correlation-id, x-trace-id
//   body      session_params.session_id, user, session_id, user_id     top-level JSON members only
//   digest    request_hash:<16 hex> over the raw body, else prompt, else token ids
//
// Pure functions; any thread.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/header_field.h"
#include "hashing/hash.h"
#include "policy/routing_key.h"
#include "routing/request_view.h"

namespace vllm_router {

struct SessionKeyOptions {
  enum class Order : uint8_t { kSeed, kReference };
  Order order = Order::kSeed;         // which of x-request-id and x-correlation-id comes first
  std::vector<std::string> headers;   // not empty: replaces the header ranks
  bool aliases = true;                // x-claude-code-session-id and friends count as x-session-id when it is absent
  bool compat = false;                // places keys as the reference does (policies.md 3.5)
  HashFunction digest_function = HashFunction::kFurc;
};

class SessionKeyFinder {
 public:
  explicit SessionKeyFinder(const SessionKeyOptions& options);

  // From the headers alone; empty if none of them has a value.
  std::string FindInHeaders(std::span<const HeaderField> headers) const;

  // Headers, then body, then digest. Fills key->hash_key and hash_key_source.
  void Find(const RequestView& request, RoutingKey* key) const;

 private:
  std::vector<std::string> ranked_headers_;  // lower case, aliases in their place
  size_t first_rank_end_ = 0;                // [0, first_rank_end_) are x-session-id and its aliases
  bool compat_;
  HashFunction digest_function_;
};

}  // namespace vllm_router
