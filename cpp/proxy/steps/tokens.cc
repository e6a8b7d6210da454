// What a worker's tokenizer knows of the prompt: where the model's template prints tools, and its token ids. Both change
// the key, which is made once more; without a response it stays as it is.
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
bool LacksIds(const Request& request) {
  const RoutingKey& key = request.key;
  return key.untokenized_prompt || (key.partly_tokenized_prompt && request.thread.router->compares_ids());
}

bool LacksTokens(Request& request) {
  const bool lacks = request.key.lacks_tool_order || LacksIds(request);
  return lacks && !request.stream_body && request.route().generates;
}

RemoteTokenizer::Source SourceOf(const Request& request) {
  return {request.body->held(), ForwardedCredentials(*request.head, ClientSideOf(request))};
}

Task<Verdict> FindTokens(Request& request) {
  RemoteTokenizer& tokenizer = request.thread.tokenizer;
  const int64_t timeout_ms = request.settings.tokenize_timeout_ms;
  const std::shared_ptr<const FleetView> fleet = request.workers.Now(request.thread);
  if (request.key.lacks_tool_order) {
    const bool learned =
        co_await tokenizer.LearnToolOrder(request.scope, SourceOf(request), *fleet, timeout_ms);
    if (learned && !request.is_cancelled()) MakeKey(request);
  }
  if (request.is_cancelled() || !LacksIds(request)) co_return Verdict::kNext;
  const RoutingKey& key = request.key;
  const bool found = co_await tokenizer.Tokenize(
      request.scope, key.untokenized_prompt ? *key.untokenized_prompt : *key.partly_tokenized_prompt,
      SourceOf(request), *fleet, timeout_ms);
  if (found && !request.is_cancelled()) MakeKey(request);
  co_return Verdict::kNext;
}

// For a prompt whose response has begun; its token ids are for the next turn.
void FindTokensLater(Request& request, const ResponseHead& response) {
  const bool lacks = request.key.partly_tokenized_prompt && !request.stream_body && request.route().generates;
  if (!lacks || response.status != 200) return;
  request.thread.tokenizer.TokenizeLater(
      *request.key.partly_tokenized_prompt, SourceOf(request), request.head->via, *request.info.worker,
      request.settings.tokenize_timeout_ms);
}

}  // namespace

extern constexpr Step kTokensStep = {
    .name = "tokens",
    .span = "tokenize",
    .begin = &LacksTokens,
    .run = &FindTokens,
    .on_response = &FindTokensLater};

}  // namespace vllm_router
