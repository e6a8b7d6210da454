// The HTTP APIs that a simulated worker speaks, as pure functions between bytes and values: request
// bodies in, responses and SSE events out, in the shapes of vLLM.
//
//   StatusOr<SimRequest> request = ParseRequest(Api::kChat, body, model);
//   WriteAnswer(*request, stamp, usage, &json);                        // not streamed, or
//   std::unique_ptr<ResponseStream> stream = ResponseStream::Open(*request, stamp);
//   stream->Begin(usage, &events); stream->Token(0, &events); … stream->End(usage, &events);
//
// request_body.cc reads; chat_api.h, responses_api.h and messages_api.h write.
//
// Chats become text by a plain template, so that a chat's next turn starts with all earlier turns:
//
//   <|system|>\nBe brief.\n<|user|>\nHello\n<|assistant|>\n        + response + \n<|user|>\n …
//
// Fields that do not change the output (most of sampling, tools' meaning) are read as text or not at all.
// Pure; any thread. Cost: about 2 us for a 1 KiB chat.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/text.h"
#include "simulation/generated_text.h"
#include "simulation/response_text.h"
#include "simulation/tool_script.h"

namespace vllm_router {

enum class Api : uint8_t {
  kChat,             // POST /v1/chat/completions
  kCompletions,      // POST /v1/completions
  kResponses,        // POST /v1/responses
  kMessages,         // POST /v1/messages (Anthropic)
  kGenerate,         // POST /inference/v1/generate (vLLM: token ids in and out)
  kEmbeddings,       // POST /v1/embeddings
  kTokenize,         // POST /tokenize
  kDetokenize,       // POST /detokenize
  kCountTokens,      // POST /v1/messages/count_tokens
  kInputTokens,      // POST /v1/responses/input_tokens
  kRenderMessages,   // POST /v1/messages/render
  kRenderResponses,  // POST /v1/responses/render
};
// Such a request never reaches the engine.
inline bool ComputesNothing(Api api) { return api >= Api::kTokenize; }

// The name and limits of the simulated model.
struct SimModel {
  std::string name = "simulated-model";
  size_t max_model_len = 131072;          // tokens of prompt and response together
  size_t default_chat_tokens = 64;        // length of a response unless the request sets one
  size_t default_completion_tokens = 16;  // vLLM's and OpenAI's own default for completions
  // Null: none. With one, a length that a chat requests is a limit of its response.
  std::shared_ptr<const ToolScript> script;
  bool wide_text = false;          // generated_text.h
  bool ignore_prompt_ids = false;  // kv_transfer_params.prompt_token_ids of chats
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
  std::shared_ptr<const ScriptedTurn> turn;  // the response; null: text that the prompt decides
  GenerationOptions generation;              // of such a text
  std::string stop;                          // the string that ends it; "": none
  bool return_token_ids = false;
  bool with_text = true;  // kGenerate: output_mode is "text"
  bool generates = true;  // false (Responses): the prompt is computed, the response is empty
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

// The events of one streamed response, each in full: "data: {…}\n\n". The request need not outlive it.
// Call Begin, then Token for 0, 1, … answer_tokens - 1, then End.
class ResponseStream {
 public:
  static std::unique_ptr<ResponseStream> Open(const SimRequest& request, const AnswerStamp& stamp);
  virtual ~ResponseStream() = default;

  // The events before the first token.
  virtual void Begin(const Usage& usage, std::string* out) = 0;
  // Token number `token` of every choice.
  virtual void Token(size_t token, std::string* out) = 0;
  // Finish reason, usage if requested, and the end mark.
  virtual void End(const Usage& usage, std::string* out) = 0;
};

// {"error": {"message", "type", "param", "code"}} as vLLM writes it since 0.10.1; in Anthropic's shape for
// kMessages.
void WriteError(Api api, int status, std::string_view message, std::string* out, bool wrong_type = false);
int HttpStatusOf(const Status& status);
bool IsWrongType(const Status& status);  // or no JSON

// For the files of one API.

struct Text {  // a string with appended texts and numbers
  std::string* out;
  Text& operator<<(std::string_view text) {
    out->append(text);
    return *this;
  }
  Text& operator<<(uint64_t number) {
    out->append(std::to_string(number));
    return *this;
  }
  Text& operator<<(int64_t number) {
    out->append(std::to_string(number));
    return *this;
  }
};

// The response's id, in JSON but without quotes.
std::string AnswerId(Api api, std::string_view request_id);
void WriteIds(std::span<const uint32_t> ids, std::string* out);
// As its reason a response has what ended it: JSON of "finish_reason" and "stop_reason".
std::string EndJson(const SimRequest& request);
// In the shape of chats, completions and embeddings.
void WriteUsage(const Usage& usage, std::string* out);

// What one choice of a response consists of.
class Reply {
 public:
  Reply(const SimRequest& request, const SimulatedPrompt& prompt, size_t choice)
      : turn_(request.turn),
        generates_(request.generates),
        tokens_(request.generates ? request.answer_tokens : 0),
        seed_(AnswerSeed(prompt, choice)),
        generated_(prompt, choice, turn_ == nullptr ? tokens_ : 0, request.generation) {}

  // A piece of the generated text or of the scripted turn; one without text behind the end.
  ReplyPiece Piece(size_t token) const;
  std::string TextJson() const;  // all of the text, escaped as in a JSON string
  // Of one token, or of all. Those of a turn cannot be continued.
  std::vector<uint32_t> Ids(size_t token) const;
  std::vector<uint32_t> Ids() const;
  bool has_text() const { return generates_ && (turn_ == nullptr || !turn_->text.empty()); }
  size_t calls() const { return turn_ == nullptr ? 0 : turn_->calls.size(); }
  const ScriptedCall& call(size_t number) const { return turn_->calls[number]; }
  // 16 hex digits, the same whenever the same prompt gets this call.
  std::string CallId(size_t number) const { return Hex16(AnswerDraw(seed_, tokens_ + number)); }

 private:
  std::shared_ptr<const ScriptedTurn> turn_;
  bool generates_;
  size_t tokens_;
  uint64_t seed_;
  GeneratedText generated_;
};

// All choices of a response, prompt by prompt.
std::vector<Reply> RepliesOf(const SimRequest& request);

}  // namespace vllm_router
