// What does each step of the response cache cost, by the length of the body? A miss takes all of them.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <benchmark/benchmark.h>

#include "response_cache/cacheability.h"
#include "response_cache/flight_table.h"
#include "response_cache/memory_store.h"
#include "response_cache/request_digest.h"
#include "response_cache/stored_response.h"

namespace vllm_router {
namespace {

constexpr std::string_view kPath = "/v1/chat/completions";
constexpr int64_t kNow = 1'000'000;
constexpr int64_t kExpires = 2'000'000;

void Sizes(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgName("bytes")->Arg(1'200)->Arg(4'096)->Arg(16'384)->Arg(131'072)->Arg(409'600);
}

// A chat of messages of a kilobyte.
std::string Request(size_t bytes) {
  const std::string tail = R"({"role":"user","content":"end"}],"temperature":0,"max_tokens":64})";
  const std::string message = R"({"role":"user","content":")" + std::string(974, 'x') + R"("},)";
  std::string body = R"({"model":"llama-3","messages":[)";
  while (body.size() + message.size() + tail.size() <= bytes) body += message;
  return body + tail;
}

std::string Response(size_t bytes) {
  return R"({"choices":[{"index":0,"message":{"role":"assistant","content":")" +
         std::string(bytes - 100, 'x') + R"("},"finish_reason":"stop"}]})";
}

std::vector<RequestMember> Members(const BodyMap& map) {
  std::vector<RequestMember> members;
  for (const BodyMap::Member& member : map.members()) members.push_back({member.name, member.value});
  return members;
}

CacheKey KeyOf(uint64_t number) {
  return DigestRequest({.path = kPath, .query = "", .generation = number}, {});
}

void BM_CacheDigest(benchmark::State& state) {
  const std::string body = Request(static_cast<size_t>(state.range(0)));
  const BodyMap map = BodyMap::Read(body);
  for (auto _ : state) benchmark::DoNotOptimize(DigestRequest({.path = kPath, .query = ""}, Members(map)));
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(body.size()));
}
BENCHMARK(BM_CacheDigest)->Apply(Sizes);

// Where its members are, and whether a response to it may be kept.
void BM_CacheJudgeRequest(benchmark::State& state) {
  const std::string body = Request(static_cast<size_t>(state.range(0)));
  const CacheRules rules;
  for (auto _ : state) {
    if (JudgeBody(kPath, BodyMap::Read(body), rules) == CacheBypass::kNone) continue;
    state.SkipWithError("it is not cacheable");
    break;
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(body.size()));
}
BENCHMARK(BM_CacheJudgeRequest)->Apply(Sizes);

void BM_CacheJudgeResponse(benchmark::State& state) {
  const std::string body = Response(static_cast<size_t>(state.range(0)));
  for (auto _ : state) {
    if (JudgeResponseBody(kPath, /*is_stream=*/false, body) == NotStored::kNone) continue;
    state.SkipWithError("it is not kept");
    break;
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(body.size()));
}
BENCHMARK(BM_CacheJudgeResponse)->Apply(Sizes);

void BM_CacheEncode(benchmark::State& state) {
  const std::string body = Response(static_cast<size_t>(state.range(0)));
  const StoredResponse response{.fields = "content-type: application/json\r\n", .body = body};
  const CacheKey key = KeyOf(0);
  for (auto _ : state) benchmark::DoNotOptimize(EncodeStored(key, response, ""));
  state.SetBytesProcessed(state.iterations() * state.range(0));
}
BENCHMARK(BM_CacheEncode)->Apply(Sizes);

void BM_CacheDecode(benchmark::State& state) {
  const std::string body = Response(static_cast<size_t>(state.range(0)));
  const CacheKey key = KeyOf(0);
  const std::string blob = EncodeStored(
      key, {.expires_at_ms = kExpires, .fields = "content-type: application/json\r\n", .body = body}, "");
  for (auto _ : state) {
    if (DecodeStored(key, blob, "", kNow).ok()) continue;
    state.SkipWithError("it was not read");
    break;
  }
  state.SetBytesProcessed(state.iterations() * state.range(0));
}
BENCHMARK(BM_CacheDecode)->Apply(Sizes);

// Values of a kilobyte, found in a store that holds so many.
void BM_CacheGet(benchmark::State& state) {
  const auto entries = static_cast<size_t>(state.range(0));
  MemoryStore store({.entries = entries, .bytes = size_t{1} << 40});
  const auto value = std::make_shared<const std::string>(1'000, 'x');
  std::vector<CacheKey> keys;
  for (size_t i = 0; i < entries / 2; ++i) {
    keys.push_back(KeyOf(i));
    store.Set(keys.back(), value, kExpires, kNow);
  }
  size_t at = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(store.Get(keys[at], kNow));
    at = (at + 7'919) % keys.size();
  }
}
BENCHMARK(BM_CacheGet)->ArgName("entries")->Arg(1'000)->Arg(100'000);

// Each time another key, so that the least recently used one leaves.
void BM_CacheSet(benchmark::State& state) {
  const auto entries = static_cast<size_t>(state.range(0));
  MemoryStore store({.entries = entries, .bytes = size_t{1} << 40});
  const auto value = std::make_shared<const std::string>(1'000, 'x');
  std::vector<CacheKey> keys;
  for (size_t i = 0; i < 2 * entries; ++i) keys.push_back(KeyOf(i));
  for (const CacheKey& key : keys) store.Set(key, value, kExpires, kNow);
  size_t at = 0;
  for (auto _ : state) {
    store.Set(keys[at], value, kExpires, kNow);
    at = (at + 1) % keys.size();
  }
  if (store.stats().evicted == 0) state.SkipWithError("the store was not full");
}
BENCHMARK(BM_CacheSet)->ArgName("entries")->Arg(1'000)->Arg(100'000);

// A request that leads and is followed by none, and one that ends for so many followers.
class Waiting final : public FlightTable::Follower {
 public:
  void Notify(FlightTable::News news, FlightTable::Response, FlightTable::Lead) override {
    told += news == FlightTable::News::kResponse ? 1 : 0;
  }
  int64_t told = 0;
};

void BM_CacheFlight(benchmark::State& state) {
  FlightTable flights(FlightTable::Limits{});
  const auto response = std::make_shared<const std::string>("response");
  const CacheKey key = KeyOf(0);
  std::vector<Waiting> followers(static_cast<size_t>(state.range(0)));
  for (auto _ : state) {
    FlightTable::Joined joined = flights.Join(key, nullptr, kNow);
    for (Waiting& follower : followers) flights.Join(key, &follower, kNow);
    flights.Finish(std::move(joined.lead), FlightTable::End::kShared, response, kNow);
  }
  for (const Waiting& follower : followers) {
    if (follower.told != state.iterations()) state.SkipWithError("a follower was not told");
  }
}
BENCHMARK(BM_CacheFlight)->ArgName("followers")->Arg(0)->Arg(1)->Arg(100);

}  // namespace
}  // namespace vllm_router
