// The prompt's token ids, from a worker's /tokenize. Its response goes to the router's cache, so the key is made once
// more; without one it stays as it is.
#include "proxy/api/settings.h"
#include "proxy/client/remote_tokenizer.h"
#include "proxy/exchange/connection.h"
#include "proxy/exchange/request.h"
#include "proxy/exchange/step.h"
#include "proxy/steps/key.h"
#include "proxy/thread/io_thread.h"
#include "routing/router.h"

namespace vllm_router {
namespace {

// The ids of a prefix are known, and the rest would match no KV events: or none at all.
bool LacksTokens(Request& request) {
  const RoutingKey& key = request.key;
  const bool lacks =
      key.untokenized_prompt || (key.partly_tokenized_prompt && request.thread.router->compares_ids());
  return lacks && !request.stream_body && request.route().generates;
}

Task<Verdict> FindTokens(Request& request) {
  const RoutingKey& key = request.key;
  const std::shared_ptr<const FleetView> fleet = request.fleet();
  const bool found = co_await request.thread.tokenizer.Tokenize(
      request.scope, key.untokenized_prompt ? *key.untokenized_prompt : *key.partly_tokenized_prompt,
      request.body->held(), *fleet, request.settings.tokenize_timeout_ms);
  if (found && !request.is_cancelled()) MakeKey(request);
  co_return Verdict::kNext;
}

// For a prompt whose response has begun; its token ids are for the next turn.
void FindTokensLater(Request& request, const ResponseHead& response) {
  const bool lacks = request.key.partly_tokenized_prompt && !request.stream_body && request.route().generates;
  if (!lacks || response.status != 200) return;
  request.thread.tokenizer.TokenizeLater(
      *request.key.partly_tokenized_prompt, request.body->held(), request.head->via, *request.info.worker,
      request.settings.tokenize_timeout_ms);
}

}  // namespace

extern constexpr Step kTokensStep = {
    .name = "tokens", .begin = &LacksTokens, .run = &FindTokens, .on_response = &FindTokensLater};

}  // namespace vllm_router
