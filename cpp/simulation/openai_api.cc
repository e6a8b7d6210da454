#include "simulation/openai_api.h"

#include <algorithm>
#include <cstdio>

#include "simulation/chat_api.h"
#include "simulation/generate_api.h"
#include "simulation/messages_api.h"
#include "simulation/responses_api.h"

namespace vllm_router {

namespace {

std::string_view IdPrefix(Api api) {
  switch (api) {
    case Api::kChat:
      return "chatcmpl-";
    case Api::kCompletions:
      return "cmpl-";
    case Api::kResponses:
      return "resp_";
    case Api::kMessages:
      return "msg_";
    case Api::kEmbeddings:
      return "embd-";
    case Api::kGenerate:
      return "generate-tokens-";
    case Api::kTokenize:
    case Api::kDetokenize:
    case Api::kCountTokens:
    case Api::kInputTokens:
    case Api::kRenderMessages:
    case Api::kRenderResponses:
      break;
  }
  return "";
}

// One number in [-1, 1) with four decimals, so that JSON and base64 give the same value.
float EmbeddingValue(uint64_t seed, size_t dimension) {
  return static_cast<float>(static_cast<int64_t>(AnswerDraw(seed, dimension) % 20000) - 10000) / 10000.0F;
}

void AppendBase64(std::string_view bytes, std::string* out) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t three = 0;
    const size_t here = std::min<size_t>(3, bytes.size() - i);
    for (size_t k = 0; k < 3; ++k) three = three << 8 | (k < here ? static_cast<uint8_t>(bytes[i + k]) : 0);
    for (size_t k = 0; k < 4; ++k) out->push_back(k <= here ? kDigits[three >> (18 - 6 * k) & 63] : '=');
  }
}

void WriteEmbeddings(
    const SimRequest& request, const AnswerStamp& stamp, const Usage& usage, std::string* out) {
  Text{out} << R"({"id":")" << AnswerId(request.api, stamp.request_id) << R"(","object":"list","created":)"
            << stamp.created << R"(,"model":)" << JsonQuoted(request.model) << R"(,"data":[)";
  for (size_t i = 0; i < request.prompts.size(); ++i) {
    const uint64_t seed = AnswerSeed(request.prompts[i], 0);
    Text{out} << (i == 0 ? "" : ",") << R"({"index":)" << i << R"(,"object":"embedding","embedding":)";
    std::string floats;
    char number[16];
    for (size_t k = 0; k < request.embedding_dimensions; ++k) {
      const float value = EmbeddingValue(seed, k);
      if (request.base64) {
        floats.append(reinterpret_cast<const char*>(&value), sizeof(value));
      } else {
        std::snprintf(number, sizeof(number), "%s%.4f", k == 0 ? "" : ",", value);
        floats.append(number);
      }
    }
    if (request.base64) {
      out->append("\"");
      AppendBase64(floats, out);
      out->append("\"}");
    } else {
      Text{out} << "[" << floats << "]}";
    }
  }
  out->append(R"(],"usage":)");
  WriteUsage(usage, out);
  out->append("}");
}

void WriteTokens(const SimRequest& request, std::string* out) {
  const std::vector<uint32_t>& tokens = request.prompts[0].tokens;
  Text{out} << R"({"count":)" << tokens.size() << R"(,"max_model_len":)" << request.max_model_len
            << R"(,"tokens":)";
  WriteIds(tokens, out);
  out->append(R"(,"token_strs":null})");
}

// What vLLM's engine would get for the request.
void WriteRendered(const SimRequest& request, const AnswerStamp& stamp, std::string* out) {
  Text{out} << R"({"request_id":)" << JsonQuoted(stamp.request_id) << R"(,"token_ids":)";
  WriteIds(request.prompts[0].tokens, out);
  Text{out} << R"(,"features":null,"sampling_params":{},"model":)" << JsonQuoted(request.model)
            << R"(,"stream":false})";
}

}  // namespace

size_t SimRequest::prompt_tokens() const {
  size_t sum = 0;
  for (const SimulatedPrompt& prompt : prompts) sum += prompt.tokens.size();
  return sum;
}

// A client's request id may hold any byte that a header may; ours goes into JSON without quotes.
std::string AnswerId(Api api, std::string_view request_id) {
  const std::string quoted = JsonQuoted(request_id);
  return std::string(IdPrefix(api)) + quoted.substr(1, quoted.size() - 2);
}

void WriteIds(std::span<const uint32_t> ids, std::string* out) {
  Text text{out};
  text << "[";
  for (size_t i = 0; i < ids.size(); ++i) text << (i == 0 ? "" : ",") << uint64_t{ids[i]};
  text << "]";
}

std::string EndJson(const SimRequest& request) {
  std::string_view reason = request.length_was_asked ? "length" : "stop";
  if (request.turn != nullptr && !request.turn->calls.empty()) reason = "tool_calls";
  if (!request.stop.empty()) reason = "stop";
  return Concat(
      R"("finish_reason":")", reason, R"(","stop_reason":)",
      request.stop.empty() ? std::string("null") : JsonQuoted(request.stop));
}

void WriteUsage(const Usage& usage, std::string* out) {
  Text{out} << R"({"prompt_tokens":)" << usage.prompt_tokens << R"(,"total_tokens":)"
            << usage.prompt_tokens + usage.completion_tokens << R"(,"completion_tokens":)"
            << usage.completion_tokens << R"(,"prompt_tokens_details":{"cached_tokens":)"
            << usage.cached_tokens << "}}";
}

ReplyPiece Reply::Piece(size_t token) const {
  if (token >= tokens_) return {};
  if (turn_ != nullptr) return turn_->Piece(token);
  return {.json = generated_.Shown(token)};
}

std::string Reply::TextJson() const {
  if (turn_ == nullptr) return std::string(generated_.text());
  const std::string text = JsonQuoted(turn_->text);
  return text.substr(1, text.size() - 2);
}

std::vector<uint32_t> Reply::Ids(size_t token) const {
  if (turn_ != nullptr) return TokensOfText(Piece(token).json);
  if (token >= generated_.ids().size()) return {};
  return {generated_.ids()[token]};
}

std::vector<uint32_t> Reply::Ids() const {
  if (turn_ == nullptr) return generated_.ids();
  std::vector<uint32_t> all;
  for (size_t token = 0; token < tokens_; ++token) {
    const std::vector<uint32_t> ids = Ids(token);
    all.insert(all.end(), ids.begin(), ids.end());
  }
  return all;
}

void WriteAnswer(const SimRequest& request, const AnswerStamp& stamp, const Usage& usage, std::string* out) {
  switch (request.api) {
    case Api::kChat:
    case Api::kCompletions:
      return WriteChat(request, stamp, usage, out);
    case Api::kResponses:
      return WriteResponse(request, stamp, usage, out);
    case Api::kMessages:
      return WriteMessage(request, stamp, usage, out);
    case Api::kGenerate:
      return WriteGenerated(request, stamp, usage, out);
    case Api::kEmbeddings:
      return WriteEmbeddings(request, stamp, usage, out);
    case Api::kTokenize:
      return WriteTokens(request, out);
    case Api::kDetokenize:
      Text{out} << R"({"prompt":)" << JsonQuoted(TextOfTokens(request.prompts[0].tokens)) << "}";
      return;
    case Api::kCountTokens:
      Text{out} << R"({"input_tokens":)" << request.prompt_tokens() << "}";
      return;
    case Api::kInputTokens:
      Text{out} << R"({"object":"response.input_tokens","input_tokens":)" << request.prompt_tokens() << "}";
      return;
    case Api::kRenderMessages:
    case Api::kRenderResponses:
      return WriteRendered(request, stamp, out);
  }
}

std::unique_ptr<ResponseStream> ResponseStream::Open(const SimRequest& request, const AnswerStamp& stamp) {
  if (request.api == Api::kResponses) return StreamResponse(request, stamp);
  if (request.api == Api::kMessages) return StreamMessage(request, stamp);
  if (request.api == Api::kGenerate) return StreamGenerated(request, stamp);
  return StreamChat(request, stamp);
}

void WriteError(Api api, int status, std::string_view message, std::string* out, bool wrong_type) {
  if (api == Api::kMessages || api == Api::kCountTokens) {
    Text{out} << R"({"type":"error","error":{"type":")"
              << (status == 404  ? "not_found_error"
                  : status < 500 ? "invalid_request_error"
                                 : "api_error")
              << R"(","message":)" << JsonQuoted(message) << "}}";
    return;
  }
  Text{out} << R"({"error":{"message":)" << JsonQuoted(message) << R"(,"type":")"
            << (wrong_type      ? "Bad Request"
                : status == 404 ? "NotFoundError"
                : status == 501 ? "NotImplementedError"
                : status < 500  ? "BadRequestError"
                                : "InternalServerError")
            << R"(","param":null,"code":)" << static_cast<int64_t>(status) << "}}";
}

int HttpStatusOf(const Status& status) { return absl::IsNotFound(status) ? 404 : 400; }

bool IsWrongType(const Status& status) { return absl::IsInvalidArgument(status); }

std::vector<Reply> RepliesOf(const SimRequest& request) {
  std::vector<Reply> replies;
  for (const SimulatedPrompt& prompt : request.prompts) {
    for (size_t choice = 0; choice < request.choices_per_prompt; ++choice) {
      replies.emplace_back(request, prompt, choice);
    }
  }
  return replies;
}

}  // namespace vllm_router
