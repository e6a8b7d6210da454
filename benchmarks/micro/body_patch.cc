// What do the two copies of a request for prefill and decode cost, by the body's length? And finding the parameters in
// the prefill worker's response, by its number of blocks?
#include "routing/body_patch.h"

#include <string>

#include <benchmark/benchmark.h>

#include "disaggregation/pd_plan.h"
#include "disaggregation/prefill_response.h"

namespace vllm_router {
namespace {

const std::string kTail =
    R"("temperature":0.7,"top_p":1.0,"stream_options":{"include_usage":true},"user":"ann","max_tokens":64})";

std::string ChatBody(size_t bytes) {
  std::string message = R"({"role":"user","content":")";
  for (int i = 0; i < 8; ++i) message += R"(The quick brown fox jumps over the lazy dog.\n)";
  message += R"("})";
  std::string body = R"({"model":"llama-3","stream":true,"messages":[)" + message;
  while (body.size() + message.size() + kTail.size() < bytes) body += "," + message;
  return body + "]," + kTail;
}

std::string TokenBody(size_t bytes) {
  std::string body = R"({"model":"llama-3","stream":true,"prompt":[1)";
  for (size_t id = 1000; body.size() + kTail.size() < bytes; id = id * 7 % 130'000)
    body += "," + std::to_string(id);
  return body + "]," + kTail;
}

void BM_ReadBodyMap(benchmark::State& state) {
  const auto bytes = static_cast<size_t>(state.range(0));
  const std::string body = state.range(1) != 0 ? TokenBody(bytes) : ChatBody(bytes);
  size_t members = 0;
  for (auto _ : state) members += BodyMap::Read(body).members().size();
  if (members != 8 * static_cast<size_t>(state.iterations())) state.SkipWithError("the members were misread");
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(body.size()));
}
BENCHMARK(BM_ReadBodyMap)
    ->ArgNames({"bytes", "tokens"})
    ->ArgsProduct({{1200, 4096, 16'384, 131'072, 409'600, 4'194'304}, {0, 1}});

// The pieces alone: the map and the patch are there.
void BM_ApplyPatch(benchmark::State& state) {
  const std::string body = ChatBody(static_cast<size_t>(state.range(0)));
  const BodyMap map = BodyMap::Read(body);
  BodyPatch patch;
  patch.Insert("max_tokens", "1");
  patch.Insert("stream", "false");
  patch.Remove("stream_options");
  size_t removed = 0;
  for (auto _ : state) removed += patch.Apply(map).removed;
  if (removed != 3 * static_cast<size_t>(state.iterations())) state.SkipWithError("the patch is wrong");
}
BENCHMARK(BM_ApplyPatch)->ArgName("bytes")->Arg(1200)->Arg(409'600);

// All that the router does with a request's body: map, plan and both copies.
void BM_TwoStages(benchmark::State& state) {
  const std::string body = ChatBody(static_cast<size_t>(state.range(0)));
  const KvConnector& nixl = *FindKvConnector("nixl");
  const PairAttempt attempt;
  size_t size = 0;
  for (auto _ : state) {
    const BodyMap map = BodyMap::Read(body);
    const PdPlan plan = MakePdPlan(PdRoute::kChat, map, nixl);
    const BodyPatch prefill = PrefillPatch(PdRoute::kChat, map, nixl, attempt);
    const BodyPatch decode = DecodePatch(PdRoute::kChat, plan, nixl, attempt, R"({"remote_host":"h"})");
    size += prefill.Apply(map).size + decode.Apply(map).size;
  }
  if (size < 2 * body.size()) state.SkipWithError("a copy is too short");
}
BENCHMARK(BM_TwoStages)->ArgName("bytes")->Arg(1200)->Arg(16'384)->Arg(409'600);

void BM_ReadPrefillResponse(benchmark::State& state) {
  std::string response =
      R"({"id":"cmpl-1","choices":[{"index":0,"text":" a","finish_reason":"length"}],"usage":{"prompt_tokens":9},)"
      R"("kv_transfer_params":{"do_remote_prefill":true,"remote_block_ids":[[1)";
  for (int64_t i = 1; i < state.range(0); ++i) response += "," + std::to_string(10'000 + i);
  response +=
      R"(]],"remote_engine_id":"e","remote_request_id":"r","remote_host":"10.0.0.1","remote_port":5600}})";
  const KvConnector& nixl = *FindKvConnector("nixl");
  size_t found = 0;
  for (auto _ : state) found += ReadPrefillResponse(response, nixl).parameters ? 1 : 0;
  if (found != static_cast<size_t>(state.iterations())) state.SkipWithError("the parameters were not found");
}
BENCHMARK(BM_ReadPrefillResponse)->ArgName("blocks")->Arg(14)->Arg(1000)->Arg(6000);

}  // namespace
}  // namespace vllm_router
