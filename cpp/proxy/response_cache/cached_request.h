// CachedRequest: what the response cache does for one request of an inference route.
//
//   head ──▶ may_hit() ──▶ JudgeBody() ──▶ Find() ─┬─ found: Replay()
//     │ no       │ no                              └─ not: a worker responds; Capture() ──▶ End()
//     ▼          ▼
//   BYPASS, and the reason                         HIT or MISS; equal requests may be waiting for this one
//
// A fault of the cache is a miss: the request goes on to a worker. Belongs to one exchange.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "http/head.h"
#include "net/task.h"
#include "proxy/exchange/body_sink.h"
#include "proxy/response_cache/found_response.h"
#include "proxy/response_cache/response_cache.h"
#include "response_cache/flight_table.h"

namespace vllm_router {

class CancelScope;
class RedisResponseStore;
struct IdentityInfo;
struct IoThread;

class CachedRequest {
 public:
  // Judges the head, which is not needed any more after JudgeBody(). The others outlive this. `identity`: null if clients
  // are not told apart.
  CachedRequest(
      IoThread& thread, const ResponseCacheSettings& settings, const RequestHead& head,
      const IdentityInfo* identity);
  ~CachedRequest();

  bool may_hit() const { return bypass_ == CacheBypass::kNone; }
  void Bypass(CacheBypass why) { bypass_ = why; }
  // `identity`: as above. `model`: that the request is for, if its body does not say; may be empty. REQUIRES: may_hit().
  void JudgeBody(
      const RequestHead& head, const IdentityInfo* identity, std::string_view body, std::string_view model);

  // True: found. Waits for Redis, and for an equal request if `may_follow`; ends soon after scope.Cancel().
  // REQUIRES: JudgeBody(), may_hit().
  Task<bool> Find(CancelScope& scope, bool may_follow);

  const FoundResponse& found() const { return found_; }
  // REQUIRES: found(). Whole events of a stream may be held back, by the settings.
  Task<BodySink::Took> Replay(BodySink& client, CancelScope& scope);

  // Of a worker's final response: takes the body that its client gets, without framing; null: it is not kept. At most one.
  BodySink* Capture(const ResponseHead& response);
  // The response has ended; `whole`: its framing says so, and nothing went wrong before. Other work has its turn meanwhile.
  Task<void> End(
      bool whole, std::optional<uint64_t> prompt_tokens, std::optional<uint64_t> completion_tokens);

  // For headers and logs.
  ResponseCache::Result result() const;
  std::string_view label() const;   // "HIT", "MISS", "BYPASS"
  std::string_view reason() const;  // why it was no hit, if there is more to say
  int64_t lookup_ns() const { return lookup_ns_; }
  void Count();

 private:
  class Captured;
  class Waiter;

  bool Use(std::shared_ptr<const std::string> blob);
  Task<std::shared_ptr<const std::string>> LookUp(CancelScope& scope);
  bool UsesRedis() const;
  void Keep(std::shared_ptr<const std::string> blob);
  Task<bool> JoinEqual(CancelScope& scope, bool may_follow, int64_t now);
  Task<NotStored> JudgeStream();
  uint64_t Generation() const;
  void Forget(NotStored why);
  void EndFlight(FlightTable::End end, FlightTable::Response response);

  IoThread& thread_;
  ResponseCache& cache_;
  RedisResponseStore* const redis_;  // null: responses are not in Redis
  const ResponseCacheSettings& settings_;
  CacheBypass bypass_;
  bool fresh_ = false;   // the client wants no stored response
  bool stream_ = false;  // the request is for a stream
  bool shared_ = false;  // the response came from an equal request
  bool judged_ = false;
  std::string path_;
  std::string model_;               // empty: not known
  std::vector<std::string> parts_;  // the base and the adapter that it names; for most none
  uint64_t generation_ = 0;
  CacheKey key_{};
  int64_t began_ns_ = 0;
  int64_t lookup_ns_ = 0;
  FlightTable::Lead lead_;

  FoundResponse found_;
  std::string fields_;  // of a worker's response, to be kept
  std::unique_ptr<Captured> captured_;
  NotStored not_stored_ = NotStored::kNone;
};

}  // namespace vllm_router
