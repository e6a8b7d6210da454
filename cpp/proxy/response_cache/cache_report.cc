#include "proxy/response_cache/cache_report.h"

#include <boost/json.hpp>
#include <charconv>
#include <cstdio>

#include "base/text.h"
#include "proxy/api/error_response.h"
#include "proxy/api/json_text.h"
#include "redis/redis_pool.h"
#include "routing/json_scanner.h"

namespace vllm_router {
namespace {

namespace json = boost::json;

uint64_t Of(const std::atomic<uint64_t>& count) { return count.load(std::memory_order_relaxed); }

uint64_t ResultsOf(const ResponseCache& cache, ResponseCache::Result result) {
  return Of(cache.counts.results[static_cast<size_t>(result)]);
}

// As an operator writes it: "5m", "90s", "1500ms".
std::string Duration(int64_t ms) {
  struct Unit {
    int64_t ms;
    std::string_view name;
  };
  for (const Unit& unit : {Unit{86'400'000, "d"}, {3'600'000, "h"}, {60'000, "m"}, {1'000, "s"}}) {
    if (ms % unit.ms == 0) return Concat(ms / unit.ms, unit.name);
  }
  return Concat(ms, "ms");
}

std::string FourDecimals(double value) {
  char text[32];
  const int size = std::snprintf(text, sizeof text, "%.4f", value);
  return {text, static_cast<size_t>(size)};
}

template <size_t kCount>
json::object Reasons(
    const std::array<std::atomic<uint64_t>, kCount>& counts, std::string_view (*name)(size_t)) {
  json::object reasons;
  for (size_t i = 1; i < kCount; ++i) {
    if (const uint64_t count = Of(counts[i]); count != 0) reasons[name(i)] = count;
  }
  return reasons;
}

bool IsHexDigit(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); }

std::optional<CacheKey> KeyOf(std::string_view hex) {
  CacheKey key{};
  if (hex.size() != 2 * key.size()) return std::nullopt;
  for (size_t i = 0; i < key.size(); ++i) {
    const std::string_view byte = hex.substr(2 * i, 2);
    if (!IsHexDigit(byte[0]) || !IsHexDigit(byte[1])) return std::nullopt;
    std::from_chars(byte.data(), byte.data() + 2, key[i], 16);
  }
  return key;
}

constexpr std::string_view kCalls =
    R"(send {"clear_all": true}, {"model": "name"} or {"key": "64 hexadecimal digits"})";

Status NotACall(std::string_view what) { return absl::InvalidArgumentError(Concat(what, "; ", kCalls)); }

}  // namespace

AdminReply CacheStatsReply(
    const ResponseCache& cache, const ResponseCacheSettings& settings,
    const std::optional<SharedCacheFigures>& shared, bool detail) {
  if (!settings.enabled) return {.body = JsonText(json::object{{"enabled", false}})};
  const MemoryStore::Stats memory = cache.memory.stats();
  const uint64_t hits = ResultsOf(cache, ResponseCache::Result::kHit);
  const uint64_t misses = ResultsOf(cache, ResponseCache::Result::kMiss);
  const uint64_t bypasses = ResultsOf(cache, ResponseCache::Result::kBypass);
  const uint64_t lookups = hits + misses;
  const std::string_view backend = cache.fixed().redis ? "redis" : "memory";
  const double rate = lookups == 0 ? 0 : static_cast<double>(hits) / static_cast<double>(lookups);
  json::object reply = {
      {"enabled", true},
      {"backend_type", backend},
      {"entries", shared ? shared->entries : memory.entries},
      {"capacity", settings.capacity},
      {"requests",
       {{"hit", hits}, {"miss", misses}, {"skip", bypasses}, {"total", hits + misses + bypasses}}},
      {"hit_rate", FourDecimals(rate)},
      {"evictions", shared ? 0 : memory.evicted},
      {"size_bytes", shared ? 0 : memory.bytes},
      {"config",
       {{"backend", backend},
        {"ttl", Duration(settings.ttl_ms)},
        {"capacity", settings.capacity},
        {"max_response_size", settings.max_response_bytes},
        {"max_stream_buffer_size", settings.max_stream_bytes}}}};
  if (shared) {
    const RedisPool::Stats redis = shared->pool->stats();
    const auto errors = [&redis](RedisErrorType type) { return redis.errors[static_cast<size_t>(type)]; };
    reply["redis"] = {
        {"connections", {{"active", redis.active}, {"idle", redis.idle}}},
        {"fallback_active", redis.fallback || shared->refused},
        {"errors",
         {{"connection", errors(RedisErrorType::kConnection)},
          {"timeout", errors(RedisErrorType::kTimeout)},
          {"other", errors(RedisErrorType::kOther)}}}};
  }
  if (detail) {
    const FlightTable::Stats flights = cache.flights.stats();
    json::object more = {
        {"generation", cache.generations.Of("")},
        {"bypass",
         Reasons<kCacheBypasses>(
             cache.counts.bypasses, [](size_t i) { return CacheBypassName(static_cast<CacheBypass>(i)); })},
        {"not_stored",
         Reasons<kNotStoredReasons>(
             cache.counts.not_stored, [](size_t i) { return NotStoredName(static_cast<NotStored>(i)); })},
        {"coalesced", flights.shared},
        {"promotions", flights.promoted},
        {"flights", flights.flights},
        {"followers", flights.followers},
        {"corrupt", Of(cache.counts.corrupt)},
        {"capture_bytes", cache.captured_bytes()},
        {"memory", {{"entries", memory.entries}, {"bytes", memory.bytes}, {"expired", memory.expired}}}};
    if (shared) {
      more["late"] = shared->late;
      more["dropped"] = shared->dropped;
    }
    reply["detail"] = std::move(more);
  }
  return {.body = JsonText(reply)};
}

StatusOr<InvalidateCall> ReadInvalidateCall(std::string_view body) {
  boost::system::error_code error;
  const json::value value = json::parse(WithoutByteOrderMark(body), error);
  if (error || !value.is_object()) return NotACall("the body is no JSON object");
  const json::object& call = value.as_object();
  if (call.size() != 1) return NotACall(Concat("the body has ", call.size(), " members, and takes one"));
  const auto& member = *call.begin();
  const std::string_view name = member.key();
  if (name == "clear_all") {
    if (member.value() != true) return NotACall("'clear_all' is not true");
    return InvalidateCall(InvalidateAllResponses{});
  }
  if (name == "model") {
    if (!member.value().is_string() || member.value().as_string().empty())
      return NotACall("'model' is no name of a model");
    return InvalidateCall(InvalidateModelResponses{std::string(member.value().as_string())});
  }
  if (name == "key") {
    const std::optional<CacheKey> key =
        member.value().is_string() ? KeyOf(std::string_view(member.value().as_string())) : std::nullopt;
    if (!key) return NotACall("'key' is not 64 hexadecimal digits in lower case");
    return InvalidateCall(InvalidateResponse{*key});
  }
  return NotACall("the body has a member of another name");
}

AdminReply InvalidatedReply(const InvalidateCall& call, uint64_t cleared, std::optional<bool> shared) {
  const std::string_view action = std::holds_alternative<InvalidateAllResponses>(call)     ? "clear_all"
                                  : std::holds_alternative<InvalidateModelResponses>(call) ? "model"
                                                                                           : "key";
  json::object reply = {{"success", true}, {"action", action}, {"cleared_entries", cleared}};
  if (shared) {
    reply["shared"] = *shared;
    // Generations are told as soon as that is possible; one response expires there.
    reply["pending"] = !*shared && !std::holds_alternative<InvalidateResponse>(call);
  }
  return {.body = JsonText(reply)};
}

AdminReply InvalidateRefused(int status, std::string_view message) {
  return {
      .status = status,
      .body = JsonText(json::object{{"success", false}, {"error", message}}),
      .error_code = ErrorOf(HttpError::kInvalidArgument).code};
}

}  // namespace vllm_router
