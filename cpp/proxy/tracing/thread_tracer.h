// ThreadTracer: what a thread that serves clients keeps for the traces of its requests. Used by that thread alone, except for
// `spans` and the counters, which TraceExporter reads.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/random.h"
#include "hashing/keyed_hash.h"
#include "proxy/telemetry/counters.h"
#include "tracing/span_buffer.h"
#include "tracing/trace_context.h"

namespace vllm_router {

struct ThreadTracer {
  // So many spans are sent before the next interval ends.
  static constexpr size_t kEnoughSpans = 2048;

  // `conversation_key`: with attributes of the conventions in development, in which conversations have names.
  ThreadTracer(
      double ratio, std::vector<std::string> excluded_paths,
      const std::optional<KeyedHash::Key>& conversation_key)
      : sampler(ratio), excluded(std::move(excluded_paths)) {
    if (conversation_key) conversations.emplace(*conversation_key);
  }

  const TraceSampler sampler;
  const std::vector<std::string> excluded;
  std::optional<KeyedHash> conversations;
  // Not the router's, whose numbers repeat with --seed.
  Random ids{Random::EntropySeed()};
  std::function<void()> export_soon;  // set before the threads run

  SpanBuffer spans;
  std::string bytes;  // of the request that ends; kept for its capacity
  Counter dropped;    // spans that had no room
  Counter sampled_out;
  Counter invalid_contexts;
};

}  // namespace vllm_router
