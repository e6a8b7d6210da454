// StreamTail: the last bytes of a response, kept while it streams by, and what they tell of it: token
// usage, whether the stream ended with [DONE], whether it carried an error. The stream itself is neither
// delayed nor copied whole.
//
//   body   ...data: {"choices":[...]}\n\n data: {"choices":[],"usage":{...}}\n\n data: [DONE]\n\n
//   tail        `-- the last kStreamTailBytes, in a ring ----------------------------------------'
//
// Works for SSE (the last `data:` events; lines end with LF or CRLF) and for a plain JSON response,
// whose start is cut off when it is longer than the tail. Text inside JSON strings is never mistaken for
// a member. Numbers are taken from the last `usage` (OpenAI, Anthropic, Responses) or `meta_info`
// (SGLang /generate) object; input_tokens, output_tokens and cache_read_input_tokens count as what
// OpenAI calls prompt_tokens, completion_tokens and cached_tokens. Only Anthropic's input_tokens leaves
// out what was in the cache, so there the prompt is the sum of its three counts.
//
// vLLM puts the prompt's token ids and logprobs, which may be long, behind `usage` of a chat. So of a
// JSON object that is longer than the tail the last member `usage` is kept as well, with at most
// kUsageBytes.
//
// The reason for the end of the generation is read where its API has it. What stands before the tail, such as
// the choice that ended first of many, is not seen. Its place is told by the brackets that close behind it, so that
// neither a text nor a tool's arguments that say the same count, even if the tail begins amid them.
//
// Cost: Add() a memcpy of at most kStreamTailBytes, and a search for `usage` in a JSON object that is
// longer than the tail; Summarize() under 1 us for what engines send, once per response; one allocation
// per object, kept by Reset(). One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace vllm_router {

// Where the responses of an API say why they ended.
enum class ResponseForm : uint8_t {
  kChoices,   // finish_reason of each choice: OpenAI's chat and completions; of meta_info: SGLang's /generate
  kMessage,   // stop_reason: Anthropic's messages
  kResponse,  // status: OpenAI's responses
};

struct StreamSummary {
  bool done = false;  // "data: [DONE]" was the last event
  // The last event ([DONE] aside) or the body is {"error": …}, not null; only seen if it is whole.
  bool error = false;
  // The error is the server's failure, not an invalid request. Told by its `code` if that is an HTTP
  // status, else by the name in its `code` or `type`: vLLM's InternalServerError, OpenAI's server_error,
  // Anthropic's api_error and the like.
  bool server_error = false;
  // The engine aborted the generation, by the words of
  //   kChoices   "abort", of one choice at least, unless it comes with a 4xx, for then the request is the reason
  //   kMessage   "abort" or null, which vLLM writes for all that Anthropic has no word for; or no word in a plain one
  //   kResponse  cancelled; or incomplete, without a reason or with one of these words
  bool aborted = false;
  std::optional<uint64_t> prompt_tokens;
  std::optional<uint64_t> completion_tokens;
  std::optional<uint64_t> cached_tokens;  // usage.prompt_tokens_details.cached_tokens
};

class StreamTail {
 public:
  void Add(std::string_view body_data);
  // `form`: of the API, to look for an abort; null: none is looked for.
  StreamSummary Summarize(std::optional<ResponseForm> form = {}) const;
  // Estimated number of events in a stream of so many bytes, [DONE] aside, if all were like those in the
  // tail; 0 if it is not an event stream.
  uint64_t EstimateEvents(uint64_t stream_bytes) const;
  // No event is unfinished: an empty line came last, or nothing at all, or behind these only whole lines of comments.
  // Lines end with LF, CR or CRLF. False if all of the tail is part of one event or comment.
  bool EndsWithEvent() const;
  // The same, and that event is the last one of its stream: [DONE], Anthropic's message_stop, or one that ends a
  // response of OpenAI's (response.completed and the like), which may be longer than the tail.
  bool EndsWithLastEvent() const;
  void Reset() {
    tail_.clear();
    oldest_ = 0;
    cut_ = false;
    is_object_ = false;
    usage_.clear();
    seam_.clear();
  }

 private:
  std::string_view Text(std::string* unrolled) const;
  void KeepUsage(std::string_view body_data);

  std::string tail_;        // a ring once it is full
  size_t oldest_ = 0;       // where the ring starts
  bool cut_ = false;        // bytes before the tail were dropped
  bool is_object_ = false;  // the body begins with a brace
  std::string usage_;       // the last "usage" and what follows it; only of an object longer than the tail
  std::string seam_;        // the last bytes that were searched: "usage" may begin there
};

}  // namespace vllm_router
