// What does a decision cost from the parts of a request to the reserved load and back?
#include "routing/router.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

namespace vllm_router {
namespace {

constexpr const char* kPolicies[] = {"random",       "round_robin",     "least_load",
                                     "power_of_two", "consistent_hash", "rendezvous_hash"};

// One router for all threads of a benchmark.
std::shared_ptr<Router> MakeRouter(const std::string& policy, int64_t workers, HashFunction function) {
  RouterOptions options{.policy = {.policy = policy, .seed = 7, .hash_function = function}};
  for (int64_t i = 0; i < workers; ++i)
    options.worker_urls.push_back("http://w" + std::to_string(i) + ":8000");
  return *Router::Create(options);
}

std::vector<std::string> Sessions() {
  std::vector<std::string> sessions;
  for (int i = 0; i < 1024; ++i) sessions.push_back("conversation-" + std::to_string(i));
  return sessions;
}

// MakeKey from a session header among nine others, Select, Finish. One thread, as an upper bound on the policy's share.
void BM_RouterSelectFinish(benchmark::State& state, const char* policy, HashFunction function) {
  const std::shared_ptr<Router> router = MakeRouter(policy, state.range(0), function);
  const std::vector<std::string> sessions = Sessions();
  std::vector<HeaderField> headers = {
      {"Host", "router"},          {"User-Agent", "openai"},      {"Accept", "*/*"},
      {"Accept-Encoding", "gzip"}, {"Connection", "keep-alive"},  {"Content-Type", "application/json"},
      {"Content-Length", "4096"},  {"Authorization", "Bearer x"}, {"X-Stainless-Lang", "python"},
      {"X-Session-ID", ""}};
  Snapshot<FleetView>::Cached fleet(&router->fleet_snapshot());
  RoutingKey key;
  uint64_t checksum = 0;
  size_t i = 0;
  for (auto _ : state) {
    headers.back().value = sessions[i++ % sessions.size()];
    router->MakeKey({.headers = headers, .body_bytes = 4096}, &key);
    Ticket ticket = *router->Select(key, *fleet.Get());
    checksum += ticket.decision().position;
    ticket.Finish({.status = 200});
  }
  for (const FleetView::Member& member : router->fleet()->members()) {
    if (member.worker->load.open_requests() != 0) state.SkipWithError("load was left behind");
  }
  state.counters["checksum"] = static_cast<double>(checksum);
  state.SetItemsProcessed(state.iterations());
}

void Register() {
  for (const char* policy : kPolicies) {
    const bool hashes = std::string(policy).ends_with("hash");
    for (const HashFunction function : {HashFunction::kFurc, HashFunction::kXxh3}) {
      if (!hashes && function == HashFunction::kXxh3) continue;
      std::string name = std::string("BM_RouterSelectFinish/") + policy;
      if (hashes) name += function == HashFunction::kFurc ? "/furc" : "/xxh3";
      benchmark::RegisterBenchmark(name.c_str(), BM_RouterSelectFinish, policy, function)
          ->ArgName("workers")
          ->Arg(3)
          ->Arg(8)
          ->Arg(64);
    }
  }
}
[[maybe_unused]] const bool kRegistered = (Register(), true);

// One user message of that many bytes, without escapes: the body of benchmarks/end_to_end's json1k and json100k.
std::string OneMessage(size_t bytes) {
  constexpr std::string_view kText = "lorem ipsum dolor sit amet, consectetur ";
  constexpr std::string_view kEnd = R"("}],"max_tokens":16})";
  std::string body = R"({"model":"mock","stream":false,"messages":[{"role":"user","content":")";
  for (size_t i = 0; body.size() + kEnd.size() < bytes; ++i) body += kText[i % kText.size()];
  return body.append(kEnd);
}

// A conversation: messages of 400 bytes, a line break in every 45th of them.
std::string Conversation(size_t bytes) {
  std::string message = R"({"role":"user","content":")";
  for (int i = 0; i < 8; ++i) message += R"(The quick brown fox jumps over the lazy dog.\n)";
  message += R"("},)";
  std::string body = R"({"model":"mock","stream":false,"messages":[)";
  while (body.size() < bytes) body += message;
  return body + R"({"role":"user","content":"end"}],"max_tokens":16})";
}

// MakeKey from a body, Select, Finish: the default policy's share of a request whose prompt was seen before and
// whose response fills 16 blocks.
void BM_RouterChat(benchmark::State& state, const char* policy, std::string (*make)(size_t)) {
  const std::shared_ptr<Router> router = MakeRouter(policy, 3, HashFunction::kFurc);
  std::string body = make(static_cast<size_t>(state.range(0)));
  const size_t size = body.size();
  body.append(kBodyPadding, '\0');
  const RequestView request{
      .path = "/v1/chat/completions",
      .body = std::string_view(body.data(), size),
      .body_bytes = size,
      .body_is_padded = true};
  Snapshot<FleetView>::Cached fleet(&router->fleet_snapshot());
  uint64_t checksum = 0;
  for (auto _ : state) {
    RoutingKey key;  // one per request, as the server has it
    router->MakeKey(request, &key);
    Ticket ticket = *router->Select(key, *fleet.Get());
    checksum += key.blocks.size();
    ticket.Finish({.status = 200, .output_tokens = 256});
  }
  state.counters["checksum"] = static_cast<double>(checksum) / static_cast<double>(state.iterations());
}
BENCHMARK_CAPTURE(BM_RouterChat, auto / one_message, "auto", OneMessage) -> Arg(1024) -> Arg(102'400);
BENCHMARK_CAPTURE(BM_RouterChat, auto / conversation, "auto", Conversation) -> Arg(1024) -> Arg(102'400);
BENCHMARK_CAPTURE(BM_RouterChat, round_robin / one_message, "round_robin", OneMessage)->Arg(1024);

// Threads share the policy, the counters of three workers, and nothing else.
void BM_RouterSelectFinishThreads(benchmark::State& state) {
  static const std::shared_ptr<Router> router = MakeRouter("least_load", 3, HashFunction::kFurc);
  Snapshot<FleetView>::Cached fleet(&router->fleet_snapshot());
  const RoutingKey key;
  for (auto _ : state) {
    Ticket ticket = *router->Select(key, *fleet.Get());
    ticket.Finish({.status = 200});
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(BM_RouterSelectFinishThreads)->ThreadRange(1, 4)->UseRealTime();

}  // namespace
}  // namespace vllm_router
