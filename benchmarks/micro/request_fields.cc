// What does reading a chat body's fields cost, by its length and by whether it must be copied first?
#include "routing/request_fields.h"

#include <string>

#include <benchmark/benchmark.h>

#include "routing/prefix_digest.h"
#include "routing/request_view.h"
#include "routing/routing_text.h"

namespace vllm_router {
namespace {

std::string ChatBody(size_t bytes) {
  const std::string head = R"({"model":"llama-3","stream":true,"messages":[)";
  const std::string tail = R"({"role":"user","content":"end"}],"max_tokens":64,"user":"ann"})";
  std::string message = R"({"role":"user","content":")";
  for (int i = 0; i < 8; ++i) message += R"(The quick brown fox jumps over the lazy dog.\n)";
  message += R"("},)";
  std::string body = head;
  while (body.size() + message.size() + tail.size() < bytes) body += message;
  return body + tail;
}

void BM_ParseRequestFields(benchmark::State& state) {
  std::string body = ChatBody(static_cast<size_t>(state.range(0)));
  const size_t size = body.size();
  body.append(kBodyPadding, '\0');
  const bool padded = state.range(1) != 0;
  size_t found = 0;
  for (auto _ : state) {
    const RequestFields fields = ParseRequestFields({body.data(), size}, padded);
    found += fields.user == "ann" && fields.max_tokens == 64u ? 1 : 0;
  }
  if (found != static_cast<size_t>(state.iterations())) state.SkipWithError("a field was misread");
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(size));
}
BENCHMARK(BM_ParseRequestFields)
    ->ArgNames({"bytes", "padded"})
    ->ArgsProduct({{256, 4096, 16'384, 65'536, 409'600, 2'097'152}, {0, 1}});

// The same pass when it also gathers the routing text, behind the scope of its model.
void BM_RoutingText(benchmark::State& state) {
  std::string body = ChatBody(static_cast<size_t>(state.range(0)));
  const size_t size = body.size();
  body.append(kBodyPadding, '\0');
  RoutingText text;
  size_t found = 0;
  for (auto _ : state) {
    const PromptWanted wanted{"/v1/chat/completions", kDefaultRoutingTextLimit, &text, true};
    const RequestFields fields = ParseRequestFields({body.data(), size}, true, &wanted);
    found += fields.user == "ann" && text.scope == 8 &&
                     text.text.ends_with(
                         "\x1euser\x1f"
                         "end")
                 ? 1
                 : 0;
  }
  if (found != static_cast<size_t>(state.iterations())) state.SkipWithError("a prompt was misread");
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(size));
}
BENCHMARK(BM_RoutingText)
    ->ArgName("bytes")
    ->Args({256})
    ->Args({4096})
    ->Args({16'384})
    ->Args({65'536})
    ->Args({409'600});

// The same pass when it also finds what names the prefix, and hashes that.
void BM_PrefixDigest(benchmark::State& state) {
  const std::string system(2000, 's');
  std::string body = ChatBody(static_cast<size_t>(state.range(0)));
  if (state.range(1) != 0) {
    const std::string_view list = "\"messages\":[";
    body.insert(body.find(list) + list.size(), R"({"role":"system","content":")" + system + R"("},)");
  }
  const size_t size = body.size();
  body.append(kBodyPadding, '\0');
  size_t found = 0;
  for (auto _ : state) {
    PrefixAnchor anchor;
    const PrefixWanted wanted{kDefaultPrefixLength, &anchor};
    const RequestFields fields = ParseRequestFields({body.data(), size}, true, nullptr, &wanted);
    benchmark::DoNotOptimize(PrefixDigest(*fields.model, anchor));
    found +=
        anchor.kind == (state.range(1) != 0 ? PrefixAnchor::Kind::kSystem : PrefixAnchor::Kind::kMessage);
  }
  if (found != static_cast<size_t>(state.iterations())) state.SkipWithError("the prefix was misread");
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(size));
}
BENCHMARK(BM_PrefixDigest)
    ->ArgNames({"bytes", "system"})
    ->ArgsProduct({{256, 4096, 65'536, 409'600}, {0, 1}});

}  // namespace
}  // namespace vllm_router
