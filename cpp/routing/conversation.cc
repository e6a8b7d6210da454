#include "routing/conversation.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "base/text.h"
#include "hashing/hash.h"
#include "routing/request_fields.h"
#include "routing/routing_text.h"
#include "routing/session_names.h"

namespace vllm_router {
namespace {

constexpr size_t kPromptBytes = kMinRoutingTextLimit;
static_assert(kPromptBytes == 1024);

// A thread that has read a longer opening does not keep its memory.
constexpr size_t kKeptBytes = 1024 * 1024;

// Added to a hash, so that a name and a prompt of equal bytes are two conversations.
enum class Kind : uint64_t { kName = 1, kOpening = 2, kText = 3, kTokens = 4 };

uint64_t HashOf(Kind kind, std::string_view bytes) { return Xxh3(bytes) + static_cast<uint64_t>(kind); }

uint64_t HashOfPrompt(std::string_view text) { return HashOf(Kind::kText, text.substr(0, kPromptBytes)); }

uint64_t HashOfPrompt(std::span<const uint32_t> ids) {
  const size_t bytes = std::min(ids.size_bytes(), kPromptBytes);
  return HashOf(Kind::kTokens, {reinterpret_cast<const char*>(ids.data()), bytes});
}

const std::string* NameIn(const RequestFields& fields) {
  for (const std::optional<std::string>* const member :
       {&fields.session_params_session_id, &fields.metadata_session_id, &fields.prompt_cache_key,
        &fields.conversation, &fields.conversation_id, &fields.session_id}) {
    if (*member) return &**member;
  }
  return nullptr;
}

}  // namespace

std::optional<uint64_t> ConversationInHeaders(std::span<const HeaderField> headers) {
  const std::string_view name = SessionNamesIn(headers).session;
  return name.empty() ? std::nullopt : std::optional(HashOf(Kind::kName, name));
}

std::optional<uint64_t> ConversationInBody(const RequestView& request) {
  thread_local RoutingText read;
  read.kind = RoutingText::Kind::kMissing;
  const PromptWanted opening{
      request.path, kDefaultRoutingTextLimit, &read, /*scoped=*/false, /*opening=*/true};
  const RequestFields fields = ParseRequestFields(*request.body, request.body_is_padded, &opening);
  std::optional<uint64_t> found;
  if (const std::string* const name = NameIn(fields)) {
    found = HashOf(Kind::kName, *name);
  } else if (read.kind == RoutingText::Kind::kText) {
    found = HashOf(Kind::kOpening, read.text);
  } else {
    const PromptWanted prompt{request.path, kPromptBytes, &read};
    ParseRequestFields(*request.body, request.body_is_padded, &prompt);
    if (read.kind == RoutingText::Kind::kText) found = HashOfPrompt(read.text);
    if (read.kind == RoutingText::Kind::kTokens) found = HashOfPrompt(read.token_ids);
  }
  if (read.text.capacity() > kKeptBytes) read = {};
  return found;
}

bool HeadersNameConversation(std::span<const HeaderField> headers) {
  return !SessionNamesIn(headers).session.empty();
}

std::optional<uint64_t> ConversationOf(const RequestView& request) {
  if (request.session_id) {
    const std::string_view name = TrimBlanks(*request.session_id);
    if (!name.empty()) return HashOf(Kind::kName, name);
  }
  if (const auto named = ConversationInHeaders(request.headers)) return named;
  if (request.body && !request.body->empty()) return ConversationInBody(request);
  if (request.prompt && !request.prompt->empty()) return HashOfPrompt(*request.prompt);
  if (request.token_ids && !request.token_ids->empty()) return HashOfPrompt(*request.token_ids);
  return std::nullopt;
}

}  // namespace vllm_router
