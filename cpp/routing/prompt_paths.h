// Which requests have their prompt computed. The others only look at it: an engine's HTTP server counts, encodes or
// renders it, so that its KV cache holds nothing more afterwards. Such a request is sent by load or session, never by
// its prompt; it reserves no prefill, and no index learns from it.
//
//   /v1/chat/completions                 computed
//   /v1/messages/count_tokens            not
//
// Pure. Cost: some comparisons.
#pragma once

#include <algorithm>
#include <array>
#include <string_view>

namespace vllm_router {

// `path`: without query; empty outside HTTP, where a prompt is one that is computed.
constexpr bool ComputesPrompt(std::string_view path) {
  constexpr std::array<std::string_view, 6> kPaths = {
      "/tokenize",   "/v1/tokenize",  "/v1/messages/count_tokens", "/v1/responses/input_tokens",
      "/detokenize", "/v1/detokenize"};
  constexpr std::string_view kRender =
      "/render";  // vLLM: /v1/chat/completions/render, /v1/completions/render
  return !path.ends_with(kRender) && std::ranges::find(kPaths, path) == kPaths.end();
}

}  // namespace vllm_router
