// The prompt's token ids, from a worker. Its response goes to the router's cache, so the key is made once more; without
// one it stays as it is. What is worth knowing for later requests is asked for when the response has begun.
#include "proxy/api/settings.h"
#include "proxy/client/remote_tokenizer.h"
#include "proxy/exchange/connection.h"
#include "proxy/exchange/request.h"
#include "proxy/exchange/step.h"
#include "proxy/exchange/upstream_parts.h"
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

RemoteTokenizer::Source SourceOf(const Request& request) {
  return {request.body->held(), ForwardedCredentials(*request.head, request.client_side())};
}

Task<Verdict> FindTokens(Request& request) {
  const RoutingKey& key = request.key;
  const std::shared_ptr<const FleetView> fleet = request.fleet();
  const bool found = co_await request.thread.tokenizer.Tokenize(
      request.scope, key.untokenized_prompt ? *key.untokenized_prompt : *key.partly_tokenized_prompt,
      SourceOf(request), *fleet, request.settings.tokenize_timeout_ms);
  if (found && !request.is_cancelled()) MakeKey(request);
  co_return Verdict::kNext;
}

// The token ids of the prompt, for the next turn, and the order of tools in prompts of its model.
void LearnLater(Request& request, const ResponseHead& response) {
  const RoutingKey& key = request.key;
  if (!key.partly_tokenized_prompt && !key.lacks_tool_order) return;
  if (response.status != 200 || request.stream_body || !request.route().generates) return;
  if (key.lacks_tool_order) {
    request.thread.tokenizer.LearnToolOrder(
        SourceOf(request), request.head->via, *request.info.worker, request.settings.tokenize_timeout_ms);
  }
  if (!key.partly_tokenized_prompt) return;
  request.thread.tokenizer.TokenizeLater(
      *request.key.partly_tokenized_prompt, SourceOf(request), request.head->via, *request.info.worker,
      request.settings.tokenize_timeout_ms);
}

}  // namespace

extern constexpr Step kTokensStep = {
    .name = "tokens", .begin = &LacksTokens, .run = &FindTokens, .on_response = &LearnLater};

}  // namespace vllm_router
