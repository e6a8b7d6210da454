#include "proxy/response_cache/cached_request.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

#include "base/clock.h"
#include "base/text.h"
#include "base/time_units.h"
#include "policy/decision.h"
#include "proxy/api/settings.h"
#include "proxy/client/http_client.h"
#include "proxy/response_cache/redis_response_store.h"
#include "proxy/telemetry/request_info.h"
#include "proxy/thread/io_thread.h"
#include "proxy/thread/server_limits.h"
#include "routing/body_map.h"

namespace vllm_router {
namespace {

constexpr size_t kFirstCapture = 4 << 10;
constexpr size_t kUsualFields = 64;  // bytes of a content type
constexpr size_t kJudgedAtOnce = 64 << 10;

CacheRequestHead HeadOf(const RequestHead& head, const IdentityInfo* identity) {
  CacheRequestHead judged{.method = head.method, .path = head.path, .fields = head.fields};
  if (head.framing == BodyFraming::kLength) judged.body_bytes = head.content_length;
  if (identity != nullptr) {
    using Client = CacheRequestHead::Client;
    using Source = IdentityInfo::Source;
    judged.client = identity->source == Source::kOwn    ? Client::kOfKey
                    : identity->source == Source::kPeer ? Client::kOfPeer
                                                        : Client::kAmbiguous;
    judged.client_tenant = identity->tenant;
  }
  return judged;
}

std::optional<uint32_t> Fits(std::optional<uint64_t> tokens) {
  if (!tokens || *tokens >= UINT32_MAX) return std::nullopt;
  return static_cast<uint32_t>(*tokens);
}

// The base and the adapter that a request names; for most none. Engines take the name of an adapter as the model, as
// "base:adapter" or in a member of its own. Of several colons the first parts the two in SGLang; names of bases have
// some too. nullopt: the member is no name.
std::optional<std::vector<std::string>> PartsOf(std::string_view model, const BodyMap& map) {
  std::vector<std::string> parts;
  const BodyMap::Member* const path = map.Find("lora_path");
  if (path != nullptr && path->type == BodyMap::Type::kString) {
    parts.push_back(path->Text().value_or(""));
  } else if (path != nullptr && path->type != BodyMap::Type::kNull) {
    return std::nullopt;
  }
  const auto part_at = [&](size_t colon) {
    parts.emplace_back(TrimBlanks(model.substr(0, colon)));
    parts.emplace_back(TrimBlanks(model.substr(colon + 1)));
  };
  const size_t first = model.find(':');
  if (first == std::string_view::npos) return parts;
  part_at(first);
  if (const size_t last = model.rfind(':'); last != first) part_at(last);
  return parts;
}

}  // namespace

// The body that the client gets, while memory for it may be taken.
class CachedRequest::Captured final : public BodySink {
 public:
  Captured(ResponseCache& cache, uint64_t limit, uint64_t memory)
      : cache_(cache), limit_(limit), memory_(memory) {}
  ~Captured() { Stop(NotStored::kNone); }

  Took Write(std::string_view data, bool /*last*/) override {
    if (stopped_ || data.empty()) return Took::kAll;
    const size_t size = bytes_.size() + data.size();
    if (size > limit_) {
      Stop(NotStored::kSize);
    } else if (size > taken_ && !Grow(size)) {
      Stop(NotStored::kMemory);
    } else {
      bytes_.append(data);
    }
    return Took::kAll;
  }
  Task<Took> Flush() override { co_return Took::kAll; }

  void Stop(NotStored why) {
    stopped_ = true;
    why_ = why;
    std::string().swap(bytes_);
    cache_.ReturnCapture(taken_);
    taken_ = 0;
  }
  NotStored why() const { return why_; }  // kNone: all of it is here
  std::string_view bytes() const { return bytes_; }

 private:
  bool Grow(size_t size) {
    const size_t more = std::max({size, 2 * taken_, kFirstCapture}) - taken_;
    if (!cache_.TakeCapture(more, memory_)) return false;
    taken_ += more;
    bytes_.reserve(taken_);
    return true;
  }

  ResponseCache& cache_;
  const uint64_t limit_;
  const uint64_t memory_;
  std::string bytes_;
  size_t taken_ = 0;  // of the memory for captures
  bool stopped_ = false;
  NotStored why_ = NotStored::kNone;
};

// Waits for the leader of equal requests. It lives until the news has come, wherever that is sent from.
class CachedRequest::Waiter final : public FlightTable::Follower {
 public:
  Waiter(EventLoop& loop, CancelScope& scope) : loop_(loop), scope_(&scope) {}

  void Notify(FlightTable::News news, FlightTable::Response response, FlightTable::Lead lead) override {
    news_ = news;
    response_ = std::move(response);
    lead_ = std::move(lead);
    loop_.Post([self = std::move(self_)] { self->Arrive(); });
  }

  void Keep(std::shared_ptr<Waiter> self) { self_ = std::move(self); }
  // It has left its flight: no news will come.
  void Release() { self_.reset(); }
  // The request goes on. News are on their way, perhaps being written by another thread: they are dropped when they
  // arrive, and a lead then passes to the next.
  void Ignore() { scope_ = nullptr; }
  bool arrived() const { return arrived_; }
  FlightTable::News news() const { return news_; }
  FlightTable::Response TakeResponse() { return std::move(response_); }
  FlightTable::Lead TakeLead() { return std::move(lead_); }

 private:
  void Arrive() {
    arrived_ = true;
    if (scope_ != nullptr) {
      scope_->EndPause();
    } else {
      lead_ = {};
    }
  }

  EventLoop& loop_;
  CancelScope* scope_;
  std::shared_ptr<Waiter> self_;
  FlightTable::News news_ = FlightTable::News::kAlone;
  FlightTable::Response response_;
  FlightTable::Lead lead_;
  bool arrived_ = false;
};

CachedRequest::CachedRequest(
    IoThread& thread, const ResponseCacheSettings& settings, const RequestHead& head,
    const IdentityInfo* identity)
    : thread_(thread),
      cache_(*thread.limits.features.Find<ResponseCache>()),
      redis_(thread.features.Find<RedisResponseStore>()),
      settings_(settings),
      bypass_(JudgeHead(HeadOf(head, identity), settings.rules)),
      found_(thread, cache_) {}

CachedRequest::~CachedRequest() = default;

void CachedRequest::JudgeBody(
    const RequestHead& head, const IdentityInfo* identity, std::string_view body, std::string_view model) {
  began_ns_ = thread_.clock.NowNanos();
  const BodyMap map = BodyMap::Read(body);
  bypass_ = vllm_router::JudgeBody(head.path, map, settings_.rules);
  stream_ = WantsStream(map);
  if (may_hit() && stream_ && settings_.max_stream_bytes == 0) bypass_ = CacheBypass::kStream;
  if (may_hit()) {
    const BodyMap::Member* const named = map.Find("model");
    std::optional<std::string> text = named != nullptr ? named->Text() : std::nullopt;
    model_ = text ? *std::move(text) : std::string(model);
    std::optional<std::vector<std::string>> parts = PartsOf(model_, map);
    if (parts) {
      parts_ = *std::move(parts);
    } else {
      bypass_ = CacheBypass::kState;
    }
    const bool by_seed = settings_.rules.key_scheme == CacheKeyScheme::kSeed004;
    if (by_seed && !head.query.empty()) bypass_ = CacheBypass::kUncoveredMember;
  }
  if (may_hit()) {
    fresh_ = WantsFresh(head.fields);
    path_ = head.path;
    generation_ = Generation();
    key_ = CacheKeyOf(HeadOf(head, identity), head.query, map, settings_.rules, generation_, model);
    judged_ = true;
  } else {
    lookup_ns_ = thread_.clock.NowNanos() - began_ns_;
  }
}

// Of the model and its parts; all only grow, so a sum never comes back.
uint64_t CachedRequest::Generation() const {
  uint64_t sum = cache_.generations.Of(model_.empty() ? ResponseCache::kUnnamed : model_);
  for (const std::string& part : parts_) sum += cache_.generations.Of(part);
  return sum;
}

Task<bool> CachedRequest::Find(CancelScope& scope, bool may_follow) {
  if (!fresh_) {
    std::shared_ptr<const std::string> blob = co_await LookUp(scope);
    if (blob != nullptr) Use(std::move(blob));
  }
  const int64_t now = thread_.clock.NowNanos();
  lookup_ns_ = now - began_ns_;
  if (found()) co_return true;
  if (scope.cancelled() || !may_hit() || settings_.coalesce == CacheCoalesce::kOff) co_return false;
  const bool shared = co_await JoinEqual(scope, may_follow && !fresh_ && !stream_, now);
  co_return shared;
}

Task<std::shared_ptr<const std::string>> CachedRequest::LookUp(CancelScope& scope) {
  using Outcome = RedisResponseStore::Outcome;
  if (UsesRedis()) {
    RedisResponseStore::Found found = co_await redis_->Find(&scope, key_);
    if (found.outcome != Outcome::kDown) co_return std::move(found.blob);
  }
  if (cache_.fixed().redis && !cache_.fixed().fallback) {
    bypass_ = CacheBypass::kStoreDown;
    co_return nullptr;
  }
  co_return cache_.memory.Get(key_, began_ns_);
}

bool CachedRequest::UsesRedis() const { return redis_ != nullptr && redis_->usable(); }

void CachedRequest::Keep(std::shared_ptr<const std::string> blob) {
  if (UsesRedis()) return redis_->Set(key_, std::move(blob), settings_.ttl_ms);
  if (cache_.fixed().redis && !cache_.fixed().fallback) return;
  const int64_t now = thread_.clock.NowNanos();
  cache_.memory.Set(key_, std::move(blob), now + cache_.MemoryTtlMs(settings_) * kNanosPerMs, now);
  // Redis may have come back meanwhile, and memory been cleared for it before this response was there.
  if (UsesRedis()) cache_.memory.Delete(key_);
}

Task<bool> CachedRequest::JoinEqual(CancelScope& scope, bool may_follow, int64_t now) {
  FlightTable::Joined joined = cache_.flights.Join(key_, nullptr, now);
  std::shared_ptr<Waiter> waiter;
  if (joined.role == FlightTable::Role::kAlone && may_follow) {
    waiter = std::make_shared<Waiter>(thread_.loop, scope);
    waiter->Keep(waiter);
    joined = cache_.flights.Join(key_, waiter.get(), now);
  }
  lead_ = std::move(joined.lead);
  if (joined.role != FlightTable::Role::kFollows) {
    if (waiter != nullptr) waiter->Release();
    // The last leader may have ended since the lookup.
    if (joined.role != FlightTable::Role::kLeads || fresh_) co_return false;
    std::shared_ptr<const std::string> blob = cache_.memory.Get(key_, now);
    const bool used = blob != nullptr && Use(blob);
    if (used || !may_hit()) EndFlight(FlightTable::End::kShared, std::move(blob));
    co_return used;
  }
  co_await scope.Pause(thread_.loop, settings_.coalesce_wait_ms * kNanosPerMs);
  if (!waiter->arrived()) {
    if (cache_.flights.Leave(waiter.get())) {
      waiter->Release();
    } else {
      waiter->Ignore();
    }
    co_return false;
  }
  lead_ = waiter->TakeLead();
  if (scope.cancelled() || waiter->news() != FlightTable::News::kResponse) co_return false;
  shared_ = Use(waiter->TakeResponse());
  co_return shared_;
}

bool CachedRequest::Use(std::shared_ptr<const std::string> blob) {
  switch (found_.Take(key_, std::move(blob), stream_)) {
    case FoundResponse::Taken::kTaken:
      return true;
    case FoundResponse::Taken::kUnfit:
      return false;
    case FoundResponse::Taken::kNoMemory:
      bypass_ = CacheBypass::kMemory;
      return false;
    case FoundResponse::Taken::kCorrupt:
      cache_.counts.corrupt.fetch_add(1, std::memory_order_relaxed);
      cache_.memory.Delete(key_);
      if (UsesRedis()) redis_->Delete(key_);
      return false;
  }
  return false;
}

Task<BodySink::Took> CachedRequest::Replay(BodySink& client, CancelScope& scope) {
  return found_.Replay(client, scope, stream_ ? settings_.replay_events_per_second : 0);
}

BodySink* CachedRequest::Capture(const ResponseHead& response) {
  if (!judged_ || !may_hit() || captured_ != nullptr) return nullptr;
  const uint64_t limit = stream_ ? settings_.max_stream_bytes : settings_.max_response_bytes;
  CacheResponseHead judged{
      .status = response.status,
      .fields = response.fields,
      .has_end = response.framing == BodyFraming::kLength || response.framing == BodyFraming::kChunked};
  if (response.framing == BodyFraming::kLength) judged.body_bytes = response.content_length;
  not_stored_ = JudgeResponseHead(judged, stream_, limit);
  if (not_stored_ != NotStored::kNone) return nullptr;
  fields_.reserve(kUsualFields);
  for (const HeaderField& field : response.fields) {
    const auto is_it = [&field](std::string_view name) { return EqualsIgnoreCase(field.name, name); };
    if (is_it("content-type") || std::ranges::any_of(settings_.store_headers, is_it)) {
      fields_.append(field.name).append(": ").append(field.value).append("\r\n");
    }
  }
  if (fields_.size() > kMaxStoredFields) {
    not_stored_ = NotStored::kSize;
    return nullptr;
  }
  captured_ = std::make_unique<Captured>(cache_, limit, settings_.capture_memory_bytes);
  return captured_.get();
}

Task<void> CachedRequest::End(
    bool whole, std::optional<uint64_t> prompt_tokens, std::optional<uint64_t> completion_tokens) {
  if (!judged_ || !may_hit()) co_return;
  NotStored why = captured_ != nullptr ? captured_->why() : not_stored_;
  if (captured_ != nullptr && why == NotStored::kNone) {
    why = NotStored::kIncomplete;
    if (whole && stream_) why = co_await JudgeStream();
    if (whole && !stream_) why = JudgeResponseBody(path_, stream_, captured_->bytes());
  }
  if (why == NotStored::kNone && captured_ == nullptr) why = NotStored::kIncomplete;
  if (why == NotStored::kNone && Generation() != generation_) why = NotStored::kGeneration;
  if (why != NotStored::kNone) {
    Forget(why);
    co_return;
  }
  const int64_t now_ms = UnixMicros() / 1000;
  StoredResponse response{
      .kind = stream_ ? StoredResponse::Kind::kEventStream : StoredResponse::Kind::kBody,
      .stored_at_ms = now_ms,
      .expires_at_ms = now_ms + settings_.ttl_ms,
      .prompt_tokens = Fits(prompt_tokens),
      .completion_tokens = Fits(completion_tokens),
      .fields = fields_,
      .body = captured_->bytes()};
  auto blob = std::make_shared<const std::string>(EncodeStored(key_, response, cache_.integrity_key()));
  captured_.reset();
  Keep(blob);
  EndFlight(FlightTable::End::kShared, std::move(blob));
}

// A long stream is looked through in steps of half a millisecond.
Task<NotStored> CachedRequest::JudgeStream() {
  StreamJudge judge(path_, captured_->bytes());
  while (judge.Step(kJudgedAtOnce)) co_await thread_.loop.Yield();
  co_return judge.verdict();
}

// What is wrong may be so for all equal requests, or for this one only.
void CachedRequest::Forget(NotStored why) {
  not_stored_ = why;
  captured_.reset();
  cache_.counts.not_stored[static_cast<size_t>(why)].fetch_add(1, std::memory_order_relaxed);
  const bool for_all = why == NotStored::kSize || why == NotStored::kType || why == NotStored::kGeneration;
  EndFlight(for_all ? FlightTable::End::kNotShareable : FlightTable::End::kFailed, nullptr);
}

void CachedRequest::EndFlight(FlightTable::End end, FlightTable::Response response) {
  if (!lead_) return;
  // The time is that of a key which is not shared.
  const int64_t now = end == FlightTable::End::kNotShareable ? thread_.clock.NowNanos() : 0;
  cache_.flights.Finish(std::move(lead_), end, std::move(response), now);
  lead_ = {};
}

ResponseCache::Result CachedRequest::result() const {
  if (found()) return ResponseCache::Result::kHit;
  return may_hit() ? ResponseCache::Result::kMiss : ResponseCache::Result::kBypass;
}

std::string_view CachedRequest::label() const {
  constexpr std::array<std::string_view, ResponseCache::kResults> kLabels = {"HIT", "MISS", "BYPASS"};
  return kLabels[static_cast<size_t>(result())];
}

std::string_view CachedRequest::reason() const {
  if (found()) return shared_ ? "equal_request" : std::string_view();
  if (!may_hit()) return CacheBypassName(bypass_);
  if (not_stored_ != NotStored::kNone) return NotStoredName(not_stored_);
  return fresh_ ? "no_cache" : std::string_view();
}

void CachedRequest::Count() {
  if (may_hit() && !judged_) return;  // rejected before it was looked up
  cache_.Count(result(), bypass_, lookup_ns_, thread_.clock.NowNanos());
  if (!found()) return;
  cache_.counts.saved_prompt_tokens.fetch_add(
      found_.stored().prompt_tokens.value_or(0), std::memory_order_relaxed);
  cache_.counts.saved_completion_tokens.fetch_add(
      found_.stored().completion_tokens.value_or(0), std::memory_order_relaxed);
}

}  // namespace vllm_router
