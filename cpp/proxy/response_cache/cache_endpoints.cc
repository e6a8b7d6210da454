#include "proxy/response_cache/cache_endpoints.h"

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "base/time_units.h"
#include "net/task.h"
#include "proxy/admin/admin_context.h"
#include "proxy/admin/own_endpoint.h"
#include "proxy/admin/replies.h"
#include "proxy/api/settings.h"
#include "proxy/client/http_client.h"
#include "proxy/control/services.h"
#include "proxy/response_cache/cache_report.h"
#include "proxy/response_cache/redis_response_store.h"
#include "proxy/response_cache/response_cache_service.h"
#include "proxy/thread/io_thread.h"
#include "proxy/thread/server_limits.h"
#include "redis/redis_pool.h"

namespace vllm_router {
namespace {

AdminReply CacheStats(AdminContext& admin, const PageCall& call) {
  std::optional<SharedCacheFigures> shared;
  const TypeMap& features = call.thread.limits.features;
  if (auto* const service = admin.services->Find<ResponseCacheService>()) {
    const auto& responses = *features.Find<RedisResponses>();
    const RedisResponses::Stats stats = responses.stats();
    const std::optional<int64_t> entries = service->entries();
    shared = {
        .pool = admin.services->Find<RedisPool>(),
        .refused = responses.refused(),
        .entries = static_cast<uint64_t>(entries.value_or(0)),
        .late = stats.late,
        .dropped = stats.dropped};
  }
  return CacheStatsReply(
      *features.Find<ResponseCache>(), call.settings.response_cache, shared, !call.detail.empty());
}

// What Redis was told of an invalidation. It holds here at once in any case.
Task<SharedInvalidation> InvalidateShared(
    AdminContext& admin, IoThread& thread, CancelScope& scope, bool deletes) {
  struct Call {
    EventLoop& loop;
    CancelScope* waiting;  // null: not any more
    SharedInvalidation done;
  };
  const auto call = std::make_shared<Call>(Call{thread.loop, &scope, {}});
  admin.control->loop.Post([call, deletes, service = admin.services->Find<ResponseCacheService>()] {
    Spawn([](ResponseCacheService& service, std::shared_ptr<Call> call, bool deletes) -> Task<void> {
      SharedInvalidation done;
      if (deletes) {
        const StatusOr<int64_t> cleared = co_await service.Clear(nullptr);
        done.cleared = static_cast<uint64_t>(cleared.ok() ? *cleared : 0);
      }
      done.told = co_await service.Told();
      call->loop.Post([call, done] {
        call->done = done;
        if (call->waiting != nullptr) call->waiting->EndPause();
      });
    }(*service, call, deletes));
  });
  constexpr int64_t kToldNanos = kNanosPerSecond;
  const int64_t maximum_ns = deletes ? ResponseCacheService::kClearNanos + 5 * kNanosPerSecond : kToldNanos;
  co_await scope.Pause(thread.loop, maximum_ns);
  call->waiting = nullptr;
  co_return call->done;
}

Task<AdminReply> CacheInvalidate(AdminContext& admin, IoThread& thread, const AdminRequest& request) {
  if (!request.settings.response_cache.enabled) {
    co_return InvalidateRefused(409, "the response cache is off; set response_cache.enabled to true");
  }
  const StatusOr<InvalidateCall> call = ReadInvalidateCall(request.body);
  if (!call.ok()) co_return InvalidateRefused(400, std::string(call.status().message()));
  const TypeMap& features = thread.limits.features;
  auto& cache = *features.Find<ResponseCache>();
  const bool is_shared = admin.services->Find<ResponseCacheService>() != nullptr;
  uint64_t cleared = 0;
  SharedInvalidation shared;
  if (const auto* const one = std::get_if<InvalidateResponse>(&*call)) {
    cleared = cache.memory.Delete(one->key) ? 1 : 0;
    shared.told = is_shared && features.Find<RedisResponses>()->usable();
    if (auto* const redis = thread.features.Find<RedisResponseStore>()) redis->Delete(one->key);
  } else if (const auto* const model = std::get_if<InvalidateModelResponses>(&*call);
             model != nullptr && request.settings.response_cache.rules.has_generations()) {
    cache.InvalidateModel(model->model);
    // Requests for an alias are judged as ones for the model that they went to.
    if (const ModelAliases::Alias* const alias = request.settings.model_aliases.Find(model->model)) {
      for (const ModelAliases::Target& target : alias->targets) cache.InvalidateModel(target.model);
    }
    if (is_shared) shared = co_await InvalidateShared(admin, thread, request.scope, /*deletes=*/false);
  } else {
    cleared = cache.InvalidateAll(/*deletes=*/false);
    if (is_shared) shared = co_await InvalidateShared(admin, thread, request.scope, /*deletes=*/true);
    cleared += shared.cleared;
  }
  co_return InvalidatedReply(*call, cleared, is_shared ? std::optional(shared.told) : std::nullopt);
}

StatusOr<std::string> StatsDetail(const AdminRequest& request) {
  return std::string(request.query == "detail=1" ? request.query : std::string_view());
}

constexpr OwnEndpoint kCacheEndpoints[] = {
    {.path = "/admin/response-cache/stats",
     .methods = "GET, HEAD",
     .render = &CacheStats,
     .detail = &StatsDetail},
    {.path = "/admin/response-cache/invalidate", .methods = "POST", .serve = &CacheInvalidate},
};

}  // namespace

std::span<const OwnEndpoint> CacheEndpoints() { return kCacheEndpoints; }

}  // namespace vllm_router
