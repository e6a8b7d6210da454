// The workers that hold the request's prefix, as the Redis of several routers has them.
#include <utility>

#include "proxy/events/events_feature.h"
#include "proxy/events/redis_prefix_index.h"
#include "proxy/exchange/connection.h"
#include "proxy/exchange/request.h"
#include "proxy/exchange/step.h"
#include "proxy/thread/io_thread.h"
#include "worker/fleet_view.h"

namespace vllm_router {
namespace {

bool MayShare(Request& request) {
  return request.key.prefix_digest.has_value() && request.thread.features.Find<RedisPrefixIndex>() != nullptr;
}

Task<Verdict> FindHolders(Request& request) {
  std::shared_ptr<const FleetView> fleet = request.thread.fleet.Get();
  co_await request.thread.features.Find<RedisPrefixIndex>()->Find(
      &request.scope, *request.key.prefix_digest, std::move(fleet), &request.key.shared_holders);
  co_return Verdict::kNext;
}

}  // namespace

extern constexpr Step kSharedPrefixesStep = {
    .name = "shared_prefixes", .begin = &MayShare, .run = &FindHolders};

}  // namespace vllm_router
