// RemoteTokenizer gets the token IDs of a text prompt from a worker (POST /tokenize) and stores them in
// the router's TokenCache. For --tokenize worker.
//
//   RoutingKey::untokenized_prompt  -->  Tokenize: the worker with the fewest open calls --> TokenCache -->
//   MakeKey once more
//
// A request waits for at most --tokenize-timeout-ms, and then continues with blocks of bytes. It does so
// too if the response is unusable, if every worker is busy with kMaxTokenizeCalls calls, or if all are
// in back-off (backoff.h). A worker without the endpoint is in back-off as well. A rejected request is
// the request's fault and starts no back-off. Two concurrent calls for one prompt are not merged. Never
// touches load. One thread.
//
// Only the prefix of a later turn has IDs in the cache, and no request waits for the rest unless a worker
// publishes KV events, which the rest would not match. TokenizeLater
// requests them, for the turn after, from the worker that responds to this turn. At most
// kMaxBackgroundTokenizeCalls run at once per worker; more are dropped, not queued. A worker that fails
// such a call gets no more of them during a back-off, but Tokenize may still use it; a worker without
// the endpoint gets neither.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
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
#include "proxy/telemetry/telemetry.h"
#include "routing/router.h"
#include "routing/token_cache.h"
#include "worker/fleet_view.h"

namespace vllm_router {

class RemoteTokenizer {
 public:
  // All outlive it. `ids`: random source for ties between equally loaded workers.
  RemoteTokenizer(HttpClient& http, Telemetry& telemetry, Router& router, Random& ids)
      : http_(http), telemetry_(telemetry), router_(router), ids_(ids) {}

  // Returns true if the cache has the IDs afterwards. `body`: the client's, with its padding. Ends soon
  // after scope.Cancel(). `timeout_ms`: --tokenize-timeout-ms.
  Task<bool> Tokenize(
      CancelScope& scope, RoutingKey::UntokenizedPrompt text, std::string_view body, const FleetView& fleet,
      int64_t timeout_ms);

  // Returns at once; Router::LearnTokens gets the IDs when they arrive. `via`: of the request. `worker`:
  // got the request.
  void TokenizeLater(
      const RoutingKey::UntokenizedPrompt& text, std::string_view body, std::span<const std::string_view> via,
      const Worker& worker, int64_t timeout_ms);

  // Calls in flight without a waiting connection, so a stopping server must wait for them. Any thread.
  uint32_t background_calls() const { return background_calls_.load(); }

 private:
  struct Host {
    Backoff backoff;
    uint32_t open = 0;  // calls
    Backoff background_backoff;
    uint32_t background_open = 0;
  };
  struct BackgroundCall;
  struct Call;

  const Worker* Choose(const FleetView& fleet);
  Task<void> Send(std::shared_ptr<Call> call);
  Task<void> SendLater(std::shared_ptr<BackgroundCall> call);
  static TokenizeEnd EndOf(const StatusOr<HttpResponse>& response, PromptIds* ids);

  HttpClient& http_;
  Telemetry& telemetry_;
  Router& router_;
  Random& ids_;
  SteadyClock clock_;
  std::atomic<uint32_t> background_calls_{0};
  std::unordered_map<std::string, std::shared_ptr<Host>> hosts_;  // by base URL
};

}  // namespace vllm_router
