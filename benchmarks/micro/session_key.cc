// What does it cost to find a session key in the headers, in the body, or to make one from the body's digest?
#include "routing/session_key.h"

#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "usual_headers.h"

namespace vllm_router {
namespace {

// `count` headers as clients send them; the last one is the session's, or none is.
std::vector<HeaderField> Headers(int64_t count, bool with_session) {
  std::vector<HeaderField> headers;
  for (int64_t i = 0; i + 1 < count; ++i)
    headers.push_back(kUsualHeaders[static_cast<size_t>(i) % std::size(kUsualHeaders)]);
  headers.push_back(with_session ? HeaderField{"X-Session-ID", "conversation-12345"} : kUsualHeaders[0]);
  return headers;
}

void BM_SessionKeyFind(benchmark::State& state, const RequestView& request, const char* expected) {
  const SessionKeyFinder finder({});
  RoutingKey key;
  for (auto _ : state) {
    finder.Find(request, &key);
    benchmark::DoNotOptimize(key);
  }
  if (key.hash_key != expected) state.SkipWithError("another key was found");
}

void BM_SessionKeyInHeaders(benchmark::State& state) {
  const std::vector<HeaderField> headers = Headers(state.range(0), true);
  BM_SessionKeyFind(state, {.headers = headers}, "header:x-session-id:conversation-12345");
}
BENCHMARK(BM_SessionKeyInHeaders)->ArgName("headers")->Arg(1)->Arg(10)->Arg(30);

void BM_SessionKeyInBody(benchmark::State& state) {
  const std::vector<HeaderField> headers = Headers(10, false);
  const std::string body =
      R"({"prompt":")" + std::string(static_cast<size_t>(state.range(0)), 'x') + R"(","user":"ann"})";
  BM_SessionKeyFind(state, {.headers = headers, .body = body}, "user:ann");
}
BENCHMARK(BM_SessionKeyInBody)->ArgName("bytes")->Arg(100)->Arg(4096)->Arg(65'536);

void BM_SessionKeyDigest(benchmark::State& state) {
  const std::string prompt(static_cast<size_t>(state.range(0)), 'x');
  const SessionKeyFinder finder(
      {.digest_function = state.range(1) != 0 ? HashFunction::kXxh3 : HashFunction::kFurc});
  RoutingKey key;
  for (auto _ : state) {
    finder.Find({.prompt = prompt}, &key);
    benchmark::DoNotOptimize(key);
  }
  if (key.hash_key_source != RoutingKey::HashKeySource::kBody) state.SkipWithError("no digest was made");
  state.SetBytesProcessed(state.iterations() * state.range(0));
}
BENCHMARK(BM_SessionKeyDigest)->ArgNames({"bytes", "xxh3"})->ArgsProduct({{67, 4096, 65'536}, {0, 1}});

}  // namespace
}  // namespace vllm_router
