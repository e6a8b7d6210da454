#include "proxy/api/routes.h"

#include <array>

#include "routing/prompt_paths.h"
#include "routing/response_id.h"

namespace vllm_router {
namespace {

struct Row {
  Route route;
  RouteInfo info;
};

constexpr RouteInfo Inference(std::string_view path) {
  return {.label = path, .inference = true, .computes = ComputesPrompt(path), .repeatable = true};
}
constexpr RouteInfo Generates(std::string_view path, std::string_view id_prefix = "req-") {
  return {
      .label = path,
      .inference = true,
      .computes = true,
      .generates = true,
      .repeatable = true,
      .id_prefix = id_prefix};
}
// Stores its responses, for later requests to refer to.
constexpr RouteInfo Stores(std::string_view path) {
  return {.label = path, .inference = true, .computes = true, .generates = true};
}
constexpr RouteInfo Own(std::string_view path, std::string_view allow, Access access = Access::kAdmin) {
  return {.label = path, .own = true, .allow = allow, .access = access};
}

// Indexed by Route.
constexpr std::array<Row, kRouteCount> kRoutes = {{
    {Route::kChatCompletions, Generates("/v1/chat/completions", "chatcmpl-")},
    {Route::kCompletions, Generates("/v1/completions", "cmpl-")},
    {Route::kEmbeddings, Inference("/v1/embeddings")},
    {Route::kGenerate, Generates("/generate", "gnt-")},
    {Route::kInferenceGenerate, Generates("/inference/v1/generate", "gnt-")},
    {Route::kRerank, Inference("/rerank")},
    {Route::kV1Rerank, Inference("/v1/rerank")},
    {Route::kResponses, Stores("/v1/responses")},
    {Route::kInputTokens, Inference("/v1/responses/input_tokens")},
    {Route::kCompact, Generates("/v1/responses/compact")},
    {Route::kResponse, {.label = "/v1/responses/{id}"}},
    {Route::kMessages, Generates("/v1/messages")},
    {Route::kCountTokens, Inference("/v1/messages/count_tokens")},
    {Route::kScore, Inference("/score")},
    {Route::kV1Score, Inference("/v1/score")},
    {Route::kV2Rerank, Inference("/v2/rerank")},
    {Route::kClassify, Inference("/classify")},
    {Route::kPooling, Inference("/pooling")},
    {Route::kV2Embed, Inference("/v2/embed")},
    {Route::kTranscriptions, Inference("/v1/audio/transcriptions")},
    {Route::kTranslations, Inference("/v1/audio/translations")},
    {Route::kSpeech, Inference("/v1/audio/speech")},
    {Route::kInvocations, Inference("/invocations")},
    {Route::kTokenize, Inference("/tokenize")},
    {Route::kDetokenize, Inference("/detokenize")},
    {Route::kRoot, Own("/", "GET, HEAD", Access::kAnybody)},
    {Route::kHealth, Own("/health", "GET, HEAD", Access::kAnybody)},
    {Route::kLiveness, Own("/liveness", "GET, HEAD", Access::kAnybody)},
    {Route::kReadiness, Own("/readiness", "GET, HEAD", Access::kAnybody)},
    {Route::kModels, Own("/v1/models", "GET, HEAD", Access::kClient)},
    {Route::kModel, Own("/v1/models/{id}", "GET, HEAD", Access::kClient)},
    {Route::kListWorkers, Own("/list_workers", "GET, HEAD")},
    {Route::kWorkers, Own("/workers", "GET, HEAD, POST")},
    {Route::kWorker, Own("/workers/{url}", "GET, HEAD, DELETE")},
    {Route::kAddWorker, Own("/add_worker", "POST")},
    {Route::kRemoveWorker, Own("/remove_worker", "POST")},
    {Route::kLoads, Own("/get_loads", "GET, HEAD")},
    {Route::kDrain, Own("/admin/drain", "POST, DELETE")},
    {Route::kDrainStatus, Own("/admin/drain/status", "GET, HEAD")},
    {Route::kDiscovery, Own("/admin/discovery", "GET, HEAD")},
    {Route::kDiscoveryAdopt, Own("/admin/discovery/adopt", "POST")},
    {Route::kPeerStatus, Own("/ha/status", "GET, HEAD")},
    {Route::kPeerHealth, Own("/ha/health", "GET, HEAD", Access::kAnybody)},
    {Route::kPeerWorkers, Own("/ha/workers", "GET, HEAD")},
    {Route::kScale, Own("/scale", "GET, HEAD")},
    {Route::kConfig, Own("/admin/config", "GET, HEAD")},
    {Route::kReload, Own("/admin/reload", "POST")},
    {Route::kPrefixRoutingStats, Own("/admin/prefix-routing/stats", "GET, HEAD")},
    {Route::kIndexStats, Own("/admin/index/stats", "GET, HEAD")},
    {Route::kIndexClear, Own("/admin/index/clear", "POST")},
    {Route::kKvEvents, Own("/admin/kv-events", "GET, HEAD")},
    {Route::kKvEventsResync, Own("/admin/kv-events/resync", "POST")},
    {Route::kKvEventsPush, Own("/admin/kv-events/push", "POST")},
    {Route::kKvIndexStats, Own("/admin/kv-index/stats", "GET, HEAD")},
    {Route::kKvIndexBackends, Own("/admin/kv-index/backends", "GET, HEAD")},
    {Route::kKvIndexClear, Own("/admin/kv-index/clear", "POST")},
    {Route::kCacheStats, Own("/admin/response-cache/stats", "GET, HEAD")},
    {Route::kCacheInvalidate, Own("/admin/response-cache/invalidate", "POST")},
    {Route::kFinishSession, Own("/finish_session", "POST", Access::kClient)},
    {Route::kMetrics, Own("/metrics", "GET, HEAD")},
    {Route::kServerOptions, Own("*", "OPTIONS", Access::kAnybody)},
    {Route::kFanOut, Own("fan_out", "GET, POST, PUT, DELETE")},
    {Route::kUnknownAdmin, Own("/admin/{path}", "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS")},
    {Route::kOther, {.label = "other"}},
}};

}  // namespace

Route FindRoute(std::string_view path) {
  constexpr std::string_view kWorkerPrefix = "/workers/";
  constexpr std::string_view kModelPrefix = "/v1/models/";
  if (path.starts_with(kWorkerPrefix) && path.size() > kWorkerPrefix.size()) return Route::kWorker;
  if (path.starts_with(kModelPrefix) && path.size() > kModelPrefix.size()) return Route::kModel;
  if (!ResponseIdOfPath(path).empty()) return Route::kResponse;
  for (const Row& row : kRoutes) {
    if (row.info.label == path) return row.route;
  }
  // A request meant for an admin endpoint, perhaps with a key, must not reach any worker.
  if (path == "/admin" || path.starts_with("/admin/")) return Route::kUnknownAdmin;
  return Route::kOther;
}

const RouteInfo& RouteOf(Route route) { return kRoutes[static_cast<size_t>(route)].info; }

bool IsAnthropic(Route route) { return route == Route::kMessages || route == Route::kCountTokens; }

bool MethodAllowed(std::string_view allow, std::string_view method) {
  while (!allow.empty()) {
    const size_t comma = allow.find(", ");
    if (allow.substr(0, comma) == method) return true;
    if (comma == std::string_view::npos) break;
    allow.remove_prefix(comma + 2);
  }
  return false;
}

}  // namespace vllm_router
