#include "proxy/api/routes.h"

#include <array>
#include <atomic>

#include "base/check.h"
#include "base/mutex.h"
#include "routing/prompt_paths.h"
#include "routing/stored_path.h"

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
  return {
      .label = path,
      .inference = true,
      .computes = true,
      .generates = true,
      .leaves_nothing = &StoresNothing};
}
constexpr RouteInfo Own(std::string_view path, std::string_view allow, Access access = Access::kAdmin) {
  return {.label = path, .own = true, .allow = allow, .access = access};
}

constexpr RouteInfo FannedOut(std::string_view label, std::string_view allow) {
  return {
      .label = label, .own = true, .allow = allow, .access = Access::kAdmin, .max_body = kRoutedBodyBytes};
}

// Indexed by Route.
constexpr std::array<Row, kNamedRoutes> kRoutes = {{
    {Route::kChatCompletions, Generates("/v1/chat/completions", "chatcmpl-")},
    {Route::kCompletions, Generates("/v1/completions", "cmpl-")},
    {Route::kEmbeddings, Inference("/v1/embeddings")},
    {Route::kGenerate, Generates("/generate", "gnt-")},
    {Route::kInferenceGenerate, Generates("/inference/v1/generate", "gnt-")},
    {Route::kRerank, Inference("/rerank")},
    {Route::kV1Rerank, Inference("/v1/rerank")},
    {Route::kResponses, Stores(kResponsesPath)},
    {Route::kInputTokens, Inference("/v1/responses/input_tokens")},
    {Route::kCompact, Generates("/v1/responses/compact")},
    {Route::kResponse, {.label = "/v1/responses/{id}"}},
    {Route::kConversations, {.label = kConversationsPath}},
    {Route::kConversation, {.label = "/v1/conversations/{id}"}},
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
    {Route::kModels, Own("/v1/models", "GET, HEAD", Access::kClient)},
    {Route::kModel, Own("/v1/models/{id}", "GET, HEAD", Access::kClient)},
    {Route::kLoads, Own("/get_loads", "GET, HEAD")},
    {Route::kScale, Own("/scale", "GET, HEAD")},
    {Route::kMetrics, Own("/metrics", "GET, HEAD")},
    {Route::kServerOptions, Own("*", "OPTIONS", Access::kAnybody)},
    {Route::kFanOut, FannedOut("fan_out", "GET, POST, PUT, DELETE")},
    {Route::kUnknownAdmin, Own("/admin/{path}", "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS")},
    {Route::kOther, {.label = "other"}},
}};

// Rows are complete before they are counted, and never change afterwards.
struct AddedRoutes {
  Mutex mutex;  // leaf; held while a row is added
  std::atomic<size_t> count{0};
  std::array<RouteInfo, kMaxAddedRoutes> rows;
};
constinit AddedRoutes g_added;

Route RouteOfAdded(size_t number) { return static_cast<Route>(kNamedRoutes + number); }

// "/workers/{url}" is every path that begins with "/workers/" and goes on.
bool Names(std::string_view label, std::string_view path) {
  if (label.back() != '}') return label == path;
  const std::string_view prefix = label.substr(0, label.rfind('{'));
  return path.size() > prefix.size() && path.starts_with(prefix);
}

}  // namespace

Route AddRoute(const RouteInfo& info) {
  MutexLock lock(g_added.mutex);
  const size_t count = g_added.count.load(std::memory_order_relaxed);
  for (size_t i = 0; i < count; ++i) {
    if (g_added.rows[i].label == info.label) return RouteOfAdded(i);
  }
  ROUTER_CHECK(count < g_added.rows.size(), "there are fewer endpoints than kMaxAddedRoutes");
  g_added.rows[count] = info;
  g_added.count.store(count + 1, std::memory_order_release);
  return RouteOfAdded(count);
}

size_t RoutesSoFar() { return kNamedRoutes + g_added.count.load(std::memory_order_acquire); }

Route FindRoute(std::string_view path) {
  constexpr std::string_view kModelPrefix = "/v1/models/";
  if (path.starts_with(kModelPrefix) && path.size() > kModelPrefix.size()) return Route::kModel;
  if (const std::string_view stored = StoredPathOf(path); !stored.empty())
    return IsConversation(stored) ? Route::kConversation : Route::kResponse;
  for (const Row& row : kRoutes) {
    if (row.info.label == path) return row.route;
  }
  const size_t added = g_added.count.load(std::memory_order_acquire);
  for (size_t i = 0; i < added; ++i) {
    if (Names(g_added.rows[i].label, path)) return RouteOfAdded(i);
  }
  // A request meant for an admin endpoint, perhaps with a key, must not reach any worker.
  if (path == "/admin" || path.starts_with("/admin/")) return Route::kUnknownAdmin;
  return Route::kOther;
}

const RouteInfo& RouteOf(Route route) {
  const auto number = static_cast<size_t>(route);
  return number < kRoutes.size() ? kRoutes[number].info : g_added.rows[number - kRoutes.size()];
}

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
