// Routes: one table of the paths that mean something to the router: their label in metrics and log, and
// whether the router or a worker responds.
#pragma once

#include <cstdint>
#include <string_view>

namespace vllm_router {

enum class Route : uint8_t {
  // inference; served by workers
  kChatCompletions,
  kCompletions,
  kEmbeddings,
  kGenerate,
  kInferenceGenerate,
  kRerank,
  kV1Rerank,
  kResponses,
  kInputTokens,  // of Responses
  kCompact,      // likewise
  kResponse,     // a stored one, by ID, and the paths below it
  kMessages,
  kCountTokens,
  kScore,
  kV1Score,
  kV2Rerank,
  kClassify,
  kPooling,
  kV2Embed,
  kTranscriptions,
  kTranslations,
  kSpeech,
  kInvocations,
  kTokenize,
  kDetokenize,
  // served by the router
  kRoot,  // only GET and HEAD: other methods go to a worker, as kOther
  kHealth,
  kLiveness,
  kReadiness,
  kModels,
  kModel,
  kListWorkers,
  kWorkers,
  kWorker,
  kAddWorker,
  kRemoveWorker,
  kLoads,
  kDrain,
  kDrainStatus,
  kDiscovery,
  kDiscoveryAdopt,
  kPeerStatus,
  kPeerHealth,
  kPeerWorkers,
  kScale,
  kConfig,
  kReload,
  kPrefixRoutingStats,
  kIndexStats,
  kIndexClear,
  kKvEvents,
  kKvEventsResync,
  kKvEventsPush,
  kKvIndexStats,
  kKvIndexBackends,
  kKvIndexClear,
  kCacheStats,
  kCacheInvalidate,
  kFinishSession,
  kMetrics,
  kServerOptions,  // OPTIONS *
  kFanOut,         // sent to all workers; FanOutPaths says which paths
  kUnknownAdmin,   // a path under /admin/ that is none of the above: 404
  // everything else also goes to a worker
  kOther,
};
inline constexpr int kRouteCount = static_cast<int>(Route::kOther) + 1;

// Which clients may request it (authorizer.h).
enum class Access : uint8_t { kAnybody, kClient, kAdmin };

struct RouteInfo {
  std::string_view label;               // metric label: the path, or "other"
  bool own = false;                     // served by the router
  bool inference = false;               // work for a model
  bool computes = false;                // its engine does, not its HTTP server alone (routing/prompt_paths.h)
  bool generates = false;               // counted in generate_duration_seconds
  bool repeatable = false;              // a POST leaves no state behind, so another worker may get it as well
  std::string_view allow;               // methods, for own routes: "GET, HEAD"
  std::string_view id_prefix = "req-";  // of a generated request ID
  Access access = Access::kClient;
};

Route FindRoute(std::string_view path);
const RouteInfo& RouteOf(Route route);

// Of Anthropic's API, whose errors have a form of their own (error_response.h).
bool IsAnthropic(Route route);

// Whether `method` is one of the comma-separated `allow`.
bool MethodAllowed(std::string_view allow, std::string_view method);

}  // namespace vllm_router
