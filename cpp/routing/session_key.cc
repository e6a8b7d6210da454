#include "routing/session_key.h"

#include <algorithm>
#include <bit>

#include "base/check.h"
#include "base/text.h"
#include "routing/session_names.h"

namespace vllm_router {
namespace {

// A thread that has read a longer opening does not keep its memory.
constexpr size_t kKeptOpeningBytes = 1024 * 1024;

// The reference replaces a routing text longer than this by its digest.
constexpr size_t kLongestPlainText = 100;

std::vector<std::string> RankedHeaders(const SessionKeyOptions& options) {
  std::vector<std::string> ranked;
  for (const std::string& name : options.headers) ranked.push_back(AsciiLower(name));
  ROUTER_CHECK(ranked.size() <= kMaxKeyHeaders, "Router::Create lets no longer list through");
  if (!ranked.empty()) return ranked;
  const bool aliases = options.aliases && !options.compat;
  ranked.assign(kSessionHeaders.begin(), aliases ? kSessionHeaders.end() : kSessionHeaders.begin() + 1);
  ranked.emplace_back("x-user-id");
  ranked.emplace_back("x-tenant-id");
  const bool reference_order = options.compat || options.order == SessionKeyOptions::Order::kReference;
  ranked.emplace_back(reference_order ? "x-correlation-id" : "x-request-id");
  ranked.emplace_back(reference_order ? "x-request-id" : "x-correlation-id");
  ranked.emplace_back("x-trace-id");
  return ranked;
}

void Compose(std::string* key, std::string_view kind, std::string_view value) {
  key->assign(kind).append(value);  // in place: a reused key keeps its memory
}

// The members by which agents and their APIs name a conversation, best first; null: none is there.
const std::string* ConversationIn(const RequestFields& fields) {
  for (const std::optional<std::string>* member :
       {&fields.metadata_session_id, &fields.prompt_cache_key, &fields.conversation,
        &fields.conversation_id}) {
    if (*member) return &**member;
  }
  return nullptr;
}

}  // namespace

SessionKeyFinder::SessionKeyFinder(const SessionKeyOptions& options)
    : ranked_headers_(RankedHeaders(options)),
      compat_(options.compat),
      by_opening_(!options.compat && options.fallback == SessionKeyOptions::Fallback::kOpening),
      digest_function_(options.digest_function) {
  for (const std::string& name : ranked_headers_) lengths_ |= LengthBit(name.size());
}

std::optional<SessionKeyFinder::Hit> SessionKeyFinder::Locate(std::span<const HeaderField> headers) const {
  BestHeader best;
  for (const HeaderField& header : headers) {
    if ((lengths_ & LengthBit(header.name.size())) == 0) continue;
    best.Take(header, ranked_headers_);
    if (best.rank == 0) break;
  }
  if (best.rank == SIZE_MAX) return std::nullopt;
  return Hit{ranked_headers_[best.rank], best.value};
}

std::string SessionKeyFinder::FindInHeaders(std::span<const HeaderField> headers) const {
  std::string key;
  if (const std::optional<Hit> hit = Locate(headers)) {
    Compose(&key, "header:", hit->name);
    key.append(":").append(hit->value);
  }
  return key;
}

std::vector<std::string> SessionKeyFinder::KeysOf(std::string_view session_id) const {
  std::vector<std::string> keys;
  const std::string_view trimmed = TrimBlanks(session_id);
  for (const std::string& name : ranked_headers_) keys.push_back(Concat("header:", name, ":", trimmed));
  // In a body blanks count.
  for (const std::string_view kind : {"session:", "user:"}) keys.push_back(Concat(kind, session_id));
  if (compat_) keys.push_back(CompatKey(session_id));
  return keys;
}

// The reference routes typed chat by this one string instead of a text.
std::string SessionKeyFinder::CompatKey(std::string_view session) const {
  if (session.size() <= kLongestPlainText) return Concat("request:", session);
  return Concat("request_hash:", Hex16(RingHash(digest_function_, session)));
}

bool SessionKeyFinder::FindInFields(
    const RequestFields& fields, std::string_view path, std::string* key) const {
  if (fields.session_params_session_id) {
    const std::string& session = *fields.session_params_session_id;
    if (compat_ && path == "/v1/chat/completions") {
      *key = CompatKey(session);
    } else {
      Compose(key, "session:", session);
    }
  } else if (const std::string* conversation = compat_ ? nullptr : ConversationIn(fields)) {
    Compose(key, "session:", *conversation);
  } else if (fields.user) {
    Compose(key, "user:", *fields.user);
  } else if (fields.session_id) {
    Compose(key, "session:", *fields.session_id);
  } else if (fields.user_id) {
    Compose(key, "user:", *fields.user_id);
  } else {
    return false;
  }
  return true;
}

bool SessionKeyFinder::FindDigest(const RequestView& request, std::string* key) const {
  std::string_view bytes;
  if (request.body && !request.body->empty()) {
    bytes = *request.body;
  } else if (request.prompt && !request.prompt->empty()) {
    bytes = *request.prompt;
  } else if (request.token_ids && !request.token_ids->empty()) {
    static_assert(std::endian::native == std::endian::little, "token ids are hashed as little-endian u32");
    bytes = {reinterpret_cast<const char*>(request.token_ids->data()), request.token_ids->size_bytes()};
  } else {
    return false;
  }
  Compose(key, "request_hash:", Hex16(RingHash(digest_function_, bytes)));
  return true;
}

bool SessionKeyFinder::FindSession(
    const RequestView& request, RoutingKey* key, std::optional<RequestFields>* fields) const {
  return FindNamed(request, key, fields, nullptr);
}

bool SessionKeyFinder::FindNamed(
    const RequestView& request, RoutingKey* key, std::optional<RequestFields>* fields,
    RoutingText* opening) const {
  key->hash_key_source = RoutingKey::HashKeySource::kSession;
  if (request.session_id) {
    const std::string_view session = TrimBlanks(*request.session_id);
    if (!session.empty()) {
      Compose(&key->hash_key, "header:x-session-id:", session);
      return true;
    }
  }
  if (const std::optional<Hit> hit = Locate(request.headers)) {
    Compose(&key->hash_key, "header:", hit->name);
    key->hash_key.append(":").append(hit->value);
    return true;
  }
  if (request.fields != nullptr && FindInFields(*request.fields, request.path, &key->hash_key)) return true;
  if (!request.body || (request.fields != nullptr && opening == nullptr)) return false;
  const PromptWanted wanted{
      request.path, kDefaultRoutingTextLimit, opening, /*scoped=*/false, /*opening=*/true};
  RequestFields parsed =
      ParseRequestFields(*request.body, request.body_is_padded, opening != nullptr ? &wanted : nullptr);
  const bool found = FindInFields(parsed, request.path, &key->hash_key);
  if (fields != nullptr) *fields = std::move(parsed);
  return found;
}

void SessionKeyFinder::Find(
    const RequestView& request, RoutingKey* key, std::optional<RequestFields>* fields) const {
  using Source = RoutingKey::HashKeySource;
  thread_local RoutingText opening;
  opening.kind = RoutingText::Kind::kMissing;
  const bool is_named = FindNamed(request, key, fields, by_opening_ ? &opening : nullptr);
  const bool has_opening = opening.kind == RoutingText::Kind::kText;
  if (!is_named && has_opening) {
    key->hash_key_source = Source::kBody;
    Compose(&key->hash_key, "opening:", Hex16(Xxh3(opening.text)));
  }
  if (opening.text.capacity() > kKeptOpeningBytes) opening = {};
  if (is_named || has_opening) return;
  key->hash_key_source = Source::kBody;
  if (FindDigest(request, &key->hash_key)) return;
  key->hash_key.clear();
  key->hash_key_source = Source::kMissing;
}

}  // namespace vllm_router
