// RemoteTokenizer: finds out which token ids a prompt of text has, by asking a worker (POST /tokenize), and leaves them in the
// router's TokenCache. For --tokenize worker.
//
//   RoutingKey::untokenized_prompt  -->  Ask: the worker with the fewest open requests  -->  TokenCache  -->  MakeKey once more
//
// Nobody waits long for it: --tokenize-timeout-ms, and then the request goes on with blocks of bytes, as it does when the
// answer is no good, when every worker is busy with kMaxTokenizeCalls questions, or when all of them rest (backoff.h). One
// that does not know the call rests as well; a request that it refuses is the request's fault, and no reason to backoff.
// What is asked twice at the same time is asked twice. Never touches load. One thread.
//
// Of a later turn only the beginning has ids, and nobody waits for the rest: TokenizeLater asks the worker that responds to it,
// for the turn after. At most kMaxBackgroundTokenizeCalls at once of each worker, and what is more is dropped, not queued. One
// that fails so is not asked so for a while (Backoff), but Ask may ask it; one that does not know the call, neither.
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
#include "proxy/api/server_options.h"
#include "proxy/client/backoff.h"
#include "proxy/client/http_client.h"
#include "proxy/telemetry/telemetry.h"
#include "routing/router.h"
#include "routing/token_cache.h"
#include "worker/fleet_view.h"

namespace vllm_router {

class RemoteTokenizer {
 public:
  // All outlive it. `ids`: draws among workers that are equally loaded.
  RemoteTokenizer(
      HttpClient& http, Telemetry& telemetry, Router& router, const ServerOptions& options, Random& ids)
      : http_(http), telemetry_(telemetry), router_(router), options_(options), ids_(ids) {}

  // True when the cache has the ids afterwards. `body`: the client's, with its padding. Ends soon after scope.Cancel().
  Task<bool> Tokenize(
      CancelScope& scope, RoutingKey::UntokenizedPrompt text, std::string_view body, const FleetView& fleet);

  // Returns at once; Router::LearnTokens has the ids when they come. `via`: of the request. `worker`: which was sent it.
  void TokenizeLater(
      const RoutingKey::UntokenizedPrompt& text, std::string_view body, std::span<const std::string_view> via,
      const Worker& worker);

  // Calls under way that no connection waits for, so a server that stops has to. Any thread.
  uint32_t background_calls() const { return background_calls_.load(); }

 private:
  struct Host {
    Backoff backoff;
    uint32_t open = 0;  // questions
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
  const ServerOptions& options_;
  Random& ids_;
  SteadyClock clock_;
  std::atomic<uint32_t> background_calls_{0};
  std::unordered_map<std::string, std::shared_ptr<Host>> hosts_;  // by base URL
};

}  // namespace vllm_router
