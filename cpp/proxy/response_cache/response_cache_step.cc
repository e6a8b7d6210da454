#include "proxy/response_cache/response_cache_feature.h"

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/limits.h"
#include "http/query.h"
#include "proxy/api/settings.h"
#include "proxy/exchange/connection.h"
#include "proxy/exchange/downstream.h"
#include "proxy/exchange/request.h"
#include "proxy/exchange/step.h"
#include "proxy/response_cache/cached_request.h"
#include "proxy/response_cache/response_cache.h"
#include "proxy/thread/io_thread.h"
#include "proxy/thread/server_limits.h"
#include "routing/body_map.h"

namespace vllm_router {
namespace {

// Null: this server has none.
ResponseCache* CacheOf(const Request& request) {
  return request.thread.limits.features.Find<ResponseCache>();
}

// ---- from the head

CachedRequest* CachedOf(const Request& request) { return request.state.Find<CachedRequest>(); }

bool BeginCached(Request& request) {
  const ResponseCacheSettings& settings = request.settings.response_cache;
  if (settings.enabled && request.route().inference && CacheOf(request) != nullptr) {
    const CachedRequest& cached = request.state.Emplace<CachedRequest>(
        request.thread, settings, *request.head, request.info.identity.get());
    request.may_need_no_worker = cached.may_hit();
  }
  return false;
}

uint64_t BytesNeeded(const Request& request) {
  if (!request.may_need_no_worker) return 0;
  return std::max(kRoutedBodyBytes, request.settings.response_cache.rules.max_request_bytes);
}

// ---- with the body

// A hit takes no permit, and neither a policy nor a worker hears of it.
bool MayHit(Request& request) {
  CachedRequest* const cached = CachedOf(request);
  if (cached == nullptr || !cached->may_hit()) return false;
  if (request.stream_body) {
    cached->Bypass(CacheBypass::kBodySize);
  } else {
    const auto model = request.workers.model != nullptr ? std::string_view(request.workers.model->name())
                                                        : std::string_view();
    cached->JudgeBody(*request.head, request.info.identity.get(), request.body->held(), model);
  }
  return cached->may_hit();
}

Task<void> ReplayStored(Request& request, CachedRequest& cached) {
  Downstream& client = request.client;
  RequestInfo& info = request.info;
  const StoredResponse& stored = cached.found().stored();
  const ResponseHead& response = cached.found().head();
  if (request.thread.draining) request.connection.keep = false;
  info.status = response.status;
  info.stream = response.event_stream;
  info.prompt_tokens = stored.prompt_tokens;
  info.completion_tokens = stored.completion_tokens;
  const bool chunked = info.stream && request.head->minor_version > 0;
  client.StopKeepalive();
  const std::string head =
      client.sent_head() ? client.TakeUnsent()
                         : client.HeadFor(response, chunked ? BodyFraming::kChunked : BodyFraming::kLength);
  info.responded_ns = info.first_body_ns = request.thread.clock.NowNanos();

  client.Begin();
  Timer client_timer;
  ClientSink sink(request.connection.socket, head, chunked, client.Stall(client_timer));
  request.Forget();  // the client may read for minutes
  const BodySink::Took took = co_await cached.Replay(sink, request.scope);
  info.bytes_out = cached.found().replayed_bytes();
  if (took == BodySink::Took::kGone) request.Cancel(CancelReason::kClientGone);
}

Task<Verdict> LookUp(Request& request) {
  CachedRequest& cached = *CachedOf(request);
  // A body that others wait for the memory of does not wait.
  const bool in_the_way =
      request.body->bytes() > kSmallBodyBytes && request.thread.limits.body_memory.waiting() != 0;
  const bool found = co_await cached.Find(request.scope, !in_the_way && !request.thread.draining);
  if (!found || request.is_cancelled()) co_return Verdict::kNext;
  co_await ReplayStored(request, cached);
  co_return Verdict::kEnd;
}

void AddFields(const Request& request, std::vector<HeaderField>* fields) {
  const CachedRequest* const cached = CachedOf(request);
  if (cached == nullptr) return;
  fields->push_back({"X-Cache", cached->label()});
  if (cached->found()) fields->push_back({"Age", cached->found().age()});
  const std::string_view reason = request.settings.decision_headers ? cached->reason() : std::string_view();
  if (!reason.empty()) fields->push_back({"x-vllm-router-cache-reason", reason});
}

BodySink* Capture(Request& request, const ResponseHead& response) {
  CachedRequest* const cached = CachedOf(request);
  return cached != nullptr && request.attempts->sent() ? cached->Capture(response) : nullptr;
}

// What was aborted is whole, and is not kept for what it says.
std::optional<Task<void>> EndCapture(Request& request, bool whole) {
  CachedRequest* const cached = CachedOf(request);
  if (cached == nullptr) return std::nullopt;
  const bool is_good =
      request.info.end == ExchangeEnd::kDone || request.info.end == ExchangeEnd::kWorkerAborted;
  return cached->End(whole && is_good, request.info.prompt_tokens, request.info.completion_tokens);
}

void EndCached(Request& request) {
  CachedRequest* const cached = CachedOf(request);
  if (cached == nullptr) return;
  constexpr std::array<std::string_view, ResponseCache::kResults> kNames = {"hit", "miss", "bypass"};
  cached->Count();
  request.info.cache = kNames[static_cast<size_t>(cached->result())];
  request.info.cache_reason = cached->reason();
  request.info.cache_ns = cached->lookup_ns();
}

// ---- requests that change what workers would respond

struct Outdated {
  std::string model;  // whose weights this request changes; empty: any
};

void Invalidate(const Request& request, const Outdated& outdated) {
  ResponseCache& cache = *CacheOf(request);
  const bool has_generations = request.settings.response_cache.rules.has_generations();
  if (outdated.model.empty() || !has_generations) {
    cache.InvalidateAll(!has_generations);
  } else {
    cache.InvalidateModel(outdated.model);
  }
}

// A request that changes weights or adapters, by its path: what was made before must not be used afterwards, nor what a
// worker makes before it has changed; so it counts again when it has ended. REQUIRES: its body has been read.
void OutdateCache(Request& request) {
  const RequestHead& head = *request.head;
  if (!request.settings.response_cache.enabled || head.method == "GET" || CacheOf(request) == nullptr) return;
  std::optional<std::string> decoded;  // as the worker reads it
  if (head.path.find('%') != std::string_view::npos) decoded = PercentDecoded(head.path, false);
  const std::string_view asked = decoded ? *decoded : head.path;
  const auto matches = [asked](std::string_view path) {
    const bool open = path.ends_with('*');
    if (open) path.remove_suffix(1);
    return open ? asked.starts_with(path) : asked == path;
  };
  if (std::ranges::none_of(request.settings.response_cache.invalidate_on, matches)) return;
  Outdated& outdated = request.state.Emplace<Outdated>();
  const BodyMap body = BodyMap::Read(request.body->complete() ? request.body->held() : std::string_view());
  const BodyMap::Member* const adapter = body.Find("lora_name");
  if (adapter != nullptr) outdated.model = adapter->Text().value_or("");
  Invalidate(request, outdated);
}

bool BeginInvalidation(Request& request) {
  if (CachedOf(request) == nullptr) OutdateCache(request);
  return false;
}

void EndInvalidation(Request& request) {
  const Outdated* const outdated = request.state.Find<Outdated>();
  if (outdated != nullptr) Invalidate(request, *outdated);
}

}  // namespace

extern constexpr Step kCacheableStep = {
    .name = "cacheable",
    .begin = &BeginCached,
    .needs = &BytesNeeded,
    .add_fields = &AddFields,
    .tap = &Capture,
    .on_relayed = &EndCapture,
    .on_end = &EndCached};

extern constexpr Step kInvalidateStep = {
    .name = "invalidate",
    .begin = &BeginInvalidation,
    .on_fan_out = &OutdateCache,
    .on_end = &EndInvalidation};

extern constexpr Step kResponseCacheStep = {
    .name = "response_cache", .span = "response_cache", .begin = &MayHit, .run = &LookUp};

}  // namespace vllm_router
