// What a Mooncake pool holds of the prompt. A decision that counts the pool's blocks waits for it; else it is for the
// metrics.
#include <optional>
#include <utility>

#include "proxy/client/http_client.h"
#include "proxy/exchange/connection.h"
#include "proxy/exchange/request.h"
#include "proxy/exchange/step.h"
#include "proxy/shared_pool/mooncake_pool.h"
#include "proxy/shared_pool/shared_pool_counts.h"
#include "proxy/shared_pool/shared_pool_feature.h"
#include "proxy/thread/io_thread.h"
#include "proxy/thread/server_limits.h"
#include "routing/router.h"

namespace vllm_router {
namespace {

MooncakePool* PoolOf(Request& request) { return request.thread.limits.features.Find<MooncakePool>(); }

// REQUIRES: there is a pool.
SharedPoolCounts& CountsOf(Request& request) { return *request.thread.features.Find<SharedPoolCounts>(); }

PagedPrompt TakePrompt(Request& request) {
  RoutingKey& key = request.key;
  PagedPrompt prompt{
      .form = key.page_form,
      .pages = std::move(key.pages),
      .block_tokens = request.thread.router->options().policy.block_size,
      .blocks = key.blocks.size()};
  key.pages.clear();
  return prompt;
}

bool MayQuery(Request& request) {
  IoThread& thread = request.thread;
  if (request.key.pages.empty() || !request.route().generates) return false;
  MooncakePool* const pool = PoolOf(request);
  if (pool == nullptr) return false;
  double multiplier = thread.router->options().policy.shared_cache_multiplier;
  if (const auto& given = request.key.cost_override)
    multiplier = given->shared_cache_multiplier.value_or(multiplier);
  if (multiplier != 0 && Has(thread.router->needs(), KeyParts::kSharedHits)) return true;
  pool->QueryLater(thread.http, CountsOf(request), TakePrompt(request));
  return false;
}

// The pool has responded, and the choice of a worker goes by it.
struct Queried {};

Task<Verdict> Query(Request& request) {
  IoThread& thread = request.thread;
  PagedPrompt prompt = TakePrompt(request);
  request.key.shared_hits =
      co_await PoolOf(request)->Query(thread.http, CountsOf(request), request.scope, std::move(prompt));
  if (request.key.shared_hits) request.state.Emplace<Queried>();
  co_return Verdict::kNext;
}

// How much of the pool's the chosen worker lacks.
void CountBeyond(Request& request) {
  if (request.state.Find<Queried>() == nullptr || !request.info.decision) return;
  CountsOf(request).beyond_blocks.Add(static_cast<int64_t>(request.info.decision->shared_beyond));
}

}  // namespace

extern constexpr Step kSharedPoolStep = {
    .name = "shared_pool", .span = "shared_pool", .begin = &MayQuery, .run = &Query, .on_end = &CountBeyond};

}  // namespace vllm_router
