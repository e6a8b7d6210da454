// RemoteTokenizer gets the token IDs of a text prompt from a worker (POST /tokenize, or a render endpoint) and stores
// them in the router's TokenCache. For --tokenize worker.
//
//   RoutingKey::untokenized_prompt  -->  Tokenize: the worker with the fewest open calls --> TokenCache -->
//   MakeKey once more
//
// A request waits for at most --tokenize-timeout-ms, and then continues with blocks of bytes. It does so
// too if the response is unusable, if every worker is busy with kMaxTokenizeCalls calls, or if all are
// in back-off (backoff.h). A worker without the endpoint is in back-off as well; each endpoint has a back-off
// of its own. A rejected request, or one whose credentials the worker rejects, is the request's fault and
// starts no back-off. Two concurrent calls for one prompt are not merged. Never touches load. One thread.
//
// Only the prefix of a later turn has IDs in the cache, and no request waits for the rest unless a worker
// publishes KV events, which the rest would not match. TokenizeLater
// requests them, for the turn after, from the worker that responds to this turn. At most
// kMaxBackgroundTokenizeCalls run at once per worker; more are dropped, not queued. A worker that fails
// such a call gets no more of them during a back-off, but Tokenize may still use it; a worker without
// the endpoint gets neither.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/clock.h"
#include "base/random.h"
#include "net/task.h"
#include "policy/routing_key.h"
#include "proxy/client/backoff.h"
#include "proxy/client/http_client.h"
#include "proxy/telemetry/event_counts.h"
#include "routing/router.h"
#include "routing/token_cache.h"
#include "routing/tokenize_call.h"
#include "worker/fleet_view.h"

namespace vllm_router {

class RemoteTokenizer {
 public:
  // All outlive it. `ids`: random source for ties between equally loaded workers.
  RemoteTokenizer(HttpClient& http, TokenizeCounts& counts, Router& router, Random& ids)
      : http_(http), counts_(counts), router_(router), ids_(ids) {}

  // A client's request.
  struct Source {
    std::string_view body;    // with its padding
    std::string credentials;  // lines of a head, for workers that do not receive the router's key
  };

  // Returns true if the cache has the IDs afterwards. Ends soon after scope.Cancel(). `timeout_ms`:
  // --tokenize-timeout-ms.
  Task<bool> Tokenize(
      CancelScope& scope, RoutingKey::UntokenizedPrompt text, Source source, const FleetView& fleet,
      int64_t timeout_ms);

  // Returns at once; Router::LearnTokens gets the IDs when they arrive. `via`: of the request. `worker`:
  // got the request.
  void TokenizeLater(
      const RoutingKey::UntokenizedPrompt& text, Source source, std::span<const std::string_view> via,
      const Worker& worker, int64_t timeout_ms);

  // Returns true if Router::tool_orders() has the order of the body's model afterwards. Of requests at the same time one
  // waits, for two calls; if they fail, the next one waits after kToolOrderRetryNs.
  Task<bool> LearnToolOrder(CancelScope& scope, Source source, const FleetView& fleet, int64_t timeout_ms);

  // Calls in flight without a waiting connection, so a stopping server must wait for them. Any thread.
  uint32_t background_calls() const { return background_calls_.load(); }

 private:
  struct Host {
    struct Endpoint {
      Backoff backoff;
      Backoff background_backoff;
    };
    std::array<Endpoint, kTokenEndpoints.size()> endpoints;
    uint32_t open = 0;  // calls to any of them
    uint32_t background_open = 0;
  };
  struct BackgroundCall;
  struct Call;

  const Worker* Choose(const FleetView& fleet, size_t endpoint);
  // One call that the scope waits for. kNobody without `json`, or if no worker may get it.
  Task<TokenizeEnd> Fetch(
      CancelScope& scope, const FleetView& fleet, size_t endpoint, std::optional<std::string> json,
      std::string credentials, int64_t timeout_ms, PromptIds* ids);
  Task<void> Send(std::shared_ptr<Call> call);
  Task<void> SendLater(std::shared_ptr<BackgroundCall> call);
  static TokenizeEnd EndOf(const StatusOr<HttpResponse>& response, PromptIds* ids);

  HttpClient& http_;
  TokenizeCounts& counts_;
  Router& router_;
  Random& ids_;
  SteadyClock clock_;
  std::atomic<uint32_t> background_calls_{0};
  std::unordered_map<std::string, std::shared_ptr<Host>> hosts_;  // by base URL
  std::unordered_map<std::string, int64_t> tool_order_tries_;     // when a model may be tried next
  int64_t tool_order_pause_end_ = INT64_MIN;                      // and any model, since workers fail
};

}  // namespace vllm_router
