// The HTTP APIs that a simulated worker speaks, as pure functions between bytes and values: request
// bodies in, responses and SSE events out, in the shapes of vLLM.
//
//   StatusOr<SimRequest> request = ParseRequest(Api::kChat, body, model);
//   WriteAnswer(*request, stamp, usage, &json);                        // not streamed, or
//   ResponseStream stream(*request, stamp);
//   stream.Begin(usage, &events); stream.Token(0, &events); … stream.End(usage, &events);
//
// Chats become text by a plain template, so that a chat's next turn starts with all earlier turns:
//
//   <|system|>\nBe brief.\n<|user|>\nHello\n<|assistant|>\n        + response + \n<|user|>\n …
//
// Fields that do not change the output (sampling, stop, tools' meaning) are read as text or not at all.
// Pure; any thread. Cost: about 2 us for a 1 KiB chat.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "simulation/response_text.h"

namespace vllm_router {

enum class Api : uint8_t {
  kChat,         // POST /v1/chat/completions
  kCompletions,  // POST /v1/completions
  kResponses,    // POST /v1/responses
  kMessages,     // POST /v1/messages (Anthropic)
  kEmbeddings,   // POST /v1/embeddings
  kTokenize,     // POST /tokenize
  kDetokenize,   // POST /detokenize
};

// The name and limits of the simulated model.
struct SimModel {
  std::string name = "simulated-model";
  size_t max_model_len = 131072;          // tokens of prompt and response together
  size_t default_chat_tokens = 64;        // length of a response unless the request sets one
  size_t default_completion_tokens = 16;  // vLLM's and OpenAI's own default for completions
};

struct SimRequest {
  Api api = Api::kChat;
  std::string model;                     // as requested; the served one if the request names none
  std::vector<SimulatedPrompt> prompts;  // more than one for completions and embeddings
  size_t choices_per_prompt = 1;         // `n`
  size_t answer_tokens = 0;              // of each choice
  bool length_was_asked = false;         // finish_reason "length", not "stop"
  bool stream = false;
  bool include_usage = false;  // stream_options.include_usage
  size_t embedding_dimensions = 64;
  bool base64 = false;  // encoding_format
  size_t max_model_len = 0;
  // The KV blocks of the prompts came from another worker, which had this many of their tokens in its cache: nothing
  // of them is computed.
  bool pulled = false;
  size_t pulled_cached_tokens = 0;

  size_t choices() const { return prompts.size() * choices_per_prompt; }
  size_t prompt_tokens() const;  // of all prompts
};

// With the sentence for the client: InvalidArgument (400: no JSON, or a value of a wrong type), which vLLM's API rejects
// before anything else; OutOfRange (400: a number too small or large, a context too long) or NotFound (404: another model).
StatusOr<SimRequest> ParseRequest(Api api, std::string_view body, const SimModel& model);

// The fields that every response and every event of one request repeat.
struct AnswerStamp {
  std::string_view request_id;  // behind "chatcmpl-", "cmpl-", …
  int64_t created = 0;          // seconds since 1970
  // Identifies the worker, in chats and completions: "sim-" and its port.
  std::string_view fingerprint = {};
};

struct Usage {
  size_t prompt_tokens = 0;
  size_t cached_tokens = 0;
  size_t completion_tokens = 0;
};

// A whole JSON body.
void WriteAnswer(const SimRequest& request, const AnswerStamp& stamp, const Usage& usage, std::string* out);

// The events of one streamed response, each in full: "data: {…}\n\n". Holds their common parts; the
// request need not outlive it. Call Begin, then Token for 0, 1, … answer_tokens - 1, then End.
class ResponseStream {
 public:
  ResponseStream(const SimRequest& request, const AnswerStamp& stamp);

  // The events before the first token: the role, or the opening of a block.
  void Begin(const Usage& usage, std::string* out) const;
  // Token number `token` of every choice.
  void Token(size_t token, std::string* out) const;
  // Finish reason, usage if requested, and the end mark.
  void End(const Usage& usage, std::string* out) const;

 private:
  void ChatBegin(std::string* out) const;
  void ChatEnd(const Usage& usage, std::string* out) const;
  void ResponsesBegin(std::string* out) const;
  void ResponsesEnd(const Usage& usage, std::string* out) const;
  void MessagesBegin(const Usage& usage, std::string* out) const;
  void MessagesEnd(const Usage& usage, std::string* out) const;

  Api api_;
  bool include_usage_;
  bool length_was_asked_;
  std::string id_;           // without quotes; needs no escaping
  std::string model_;        // JSON, quotes included
  std::string fingerprint_;  // JSON
  int64_t created_;
  std::string before_;  // of a token's event: up to the number of the choice (or of the event)
  std::string middle_;  // from there up to the text
  std::string after_;   // from behind the text to the end
  size_t answer_tokens_;
  std::vector<uint64_t> seeds_;  // one per choice
};

// {"error": {"message", "type", "param", "code"}} as vLLM writes it since 0.10.1; in Anthropic's shape for
// kMessages.
void WriteError(Api api, int status, std::string_view message, std::string* out, bool wrong_type = false);
int HttpStatusOf(const Status& status);
bool IsWrongType(const Status& status);  // or no JSON

}  // namespace vllm_router
