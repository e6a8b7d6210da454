// Routes: the paths that mean something to the router, with their label in metrics and log, and whether the router or a
// worker responds.
//
//   named here     what workers serve, and what the path of a request asks for by name
//   AddRoute()     the router's other endpoints, each beside the code that serves it (proxy/admin/own_endpoint.h)
//
// The servers of a process share the added routes; one that does not serve a path responds 404. Any thread. Cost of
// FindRoute: a comparison of lengths for each route before the one that is found.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/limits.h"

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
  kInputTokens,    // of Responses
  kCompact,        // likewise
  kResponse,       // a stored one, by ID, and the paths below it
  kConversations,  // to be stored
  kConversation,   // a stored one, likewise
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
  // served by the router, and named here because the path of a request asks for them; AddRoute() has the others
  kRoot,  // only GET and HEAD: other methods go to a worker, as kOther
  kModels,
  kModel,
  kLoads,
  kScale,
  kMetrics,
  kServerOptions,  // OPTIONS *
  kFanOut,         // sent to all workers; FanOutPaths says which paths
  kUnknownAdmin,   // a path under /admin/ that is no endpoint: 404
  // everything else also goes to a worker
  kOther,
};
inline constexpr int kNamedRoutes = static_cast<int>(Route::kOther) + 1;
inline constexpr int kMaxAddedRoutes = 64;
inline constexpr int kRouteCount = kNamedRoutes + kMaxAddedRoutes;  // for arrays

// Which clients may request it (authorizer.h). kAdminPort: anybody who reaches the port of kAdmin.
enum class Access : uint8_t { kAnybody, kClient, kAdmin, kAdminPort };

struct RouteInfo {
  std::string_view label;   // metric label: the path, or "other"
  bool own = false;         // served by the router
  bool inference = false;   // work for a model
  bool computes = false;    // its engine does, not its HTTP server alone (routing/prompt_paths.h)
  bool generates = false;   // counted in generate_duration_seconds
  bool repeatable = false;  // a POST leaves no state behind, so another worker may get it as well
  bool (*leaves_nothing)(std::string_view) = nullptr;  // likewise, by its body, padded; null: no body says so
  std::string_view allow;                              // methods, for own routes: "GET, HEAD"
  std::string_view id_prefix = "req-";                 // of a generated request ID
  Access access = Access::kClient;
  uint64_t max_body = kSmallBodyBytes;  // of requests for own routes
};

// Adds an own endpoint. Its label is its path, or "/workers/{url}" for all paths that begin so and go on; label and `allow`
// live forever. A label that was added before keeps its route.
Route AddRoute(const RouteInfo& info);

// Routes below this number have a label: those named here and those added so far. Workers' requests have named ones.
size_t RoutesSoFar();

Route FindRoute(std::string_view path);
const RouteInfo& RouteOf(Route route);

// Of Anthropic's API, whose errors have a form of their own (error_response.h).
bool IsAnthropic(Route route);

// Whether `method` is one of the comma-separated `allow`.
bool MethodAllowed(std::string_view allow, std::string_view method);

}  // namespace vllm_router
