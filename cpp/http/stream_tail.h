// StreamTail: the last bytes of an answer, kept while it streams by, and what they say about it: token usage, whether
// the stream ended with [DONE], whether it carried an error. The stream itself is neither delayed nor copied.
//
// Works for SSE (last `data:` events) and for a plain JSON answer (the `usage` object near its end).
// Cost: a memcpy of at most kStreamTailBytes per read. One thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace vllm_router {

struct StreamSummary {
  bool done = false;   // "data: [DONE]" was the last event
  bool error = false;  // the last event or the body is {"error": …}
  std::optional<uint64_t> prompt_tokens;
  std::optional<uint64_t> completion_tokens;
  std::optional<uint64_t> cached_tokens;  // usage.prompt_tokens_details.cached_tokens
};

class StreamTail {
 public:
  void Add(std::string_view body_data);
  StreamSummary Summarize() const;
  void Reset() { tail_.clear(); }

 private:
  std::string tail_;
};

}  // namespace vllm_router
