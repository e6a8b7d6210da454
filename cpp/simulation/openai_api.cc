#include "simulation/openai_api.h"

#include <simdjson.h>

#include <algorithm>
#include <cstdio>
#include <limits>

#include "base/text.h"
#include "routing/json_scanner.h"

namespace vllm_router {

namespace dom = simdjson::dom;

namespace {

// vLLM's limits: VLLM_MAX_COMPLETION_PROMPTS, and far below its VLLM_MAX_N_SEQUENCES.
constexpr size_t kMaxPrompts = 1024;
constexpr uint64_t kMaxChoices = 128;
constexpr uint64_t kMaxDimensions = 16384;

Status Invalid(std::string message) { return absl::InvalidArgumentError(message); }
// Of a right type: engines find out later.
Status OutOfRange(std::string message) { return absl::OutOfRangeError(message); }

// The field, or nullopt when it is absent or null.
std::optional<dom::element> Field(const dom::object& object, std::string_view name) {
  dom::element element;
  if (object.at_key(name).get(element) != simdjson::SUCCESS || element.is_null()) return std::nullopt;
  return element;
}

std::string Brief(dom::element element) {
  std::string text = simdjson::minify(element);
  if (text.size() > 64) text = text.substr(0, 61) + "...";
  return text;
}

// Leaves `value` alone when the field is absent.
Status ReadCount(
    const dom::object& object, std::string_view name, uint64_t least, uint64_t most, size_t* value,
    bool* present = nullptr) {
  const std::optional<dom::element> field = Field(object, name);
  if (!field) return absl::OkStatus();
  uint64_t number = 0;
  if (field->get(number) != simdjson::SUCCESS || number < least || number > most) {
    std::string message = "`" + std::string(name) + "` must be an integer from " + std::to_string(least) +
                          " to " + std::to_string(most) + ", but is " + Brief(*field) + ".";
    const bool is_integer = field->is<int64_t>() || field->is<uint64_t>();
    return is_integer ? OutOfRange(std::move(message)) : Invalid(std::move(message));
  }
  *value = number;
  if (present != nullptr) *present = true;
  return absl::OkStatus();
}

Status ReadFlag(const dom::object& object, std::string_view name, bool* value) {
  const std::optional<dom::element> field = Field(object, name);
  if (!field) return absl::OkStatus();
  if (field->get(*value) != simdjson::SUCCESS) {
    return Invalid("`" + std::string(name) + "` must be true or false, but is " + Brief(*field) + ".");
  }
  return absl::OkStatus();
}

// Text of a message's content: a string, or a list of parts. The text of text parts is taken; other
// kinds (images, tool results) are kept as their own JSON.
void AppendContent(dom::element content, std::string* text) {
  std::string_view string;
  if (content.get(string) == simdjson::SUCCESS) {
    text->append(string);
    return;
  }
  dom::array parts;
  if (content.get(parts) != simdjson::SUCCESS) {
    if (!content.is_null()) text->append(simdjson::minify(content));
    return;
  }
  for (const dom::element part : parts) {
    if (part.at_key("text").get(string) == simdjson::SUCCESS) {
      text->append(string);
    } else {
      text->append(simdjson::minify(part));
    }
  }
}

void OpenTurn(std::string_view role, std::string* text) { text->append("<|").append(role).append("|>\n"); }

Status AppendMessages(dom::element list, std::string_view name, std::string* text) {
  dom::array messages;
  if (list.get(messages) != simdjson::SUCCESS || messages.size() == 0) {
    return Invalid(
        "`" + std::string(name) + "` must be a list of at least one message, but is " + Brief(list) + ".");
  }
  for (const dom::element message : messages) {
    std::string_view role;
    if (message.at_key("role").get(role) != simdjson::SUCCESS) {
      return Invalid("a message of `" + std::string(name) + "` needs a \"role\": " + Brief(message) + ".");
    }
    OpenTurn(role, text);
    dom::element content;
    if (message.at_key("content").get(content) == simdjson::SUCCESS) AppendContent(content, text);
    dom::element calls;
    if (message.at_key("tool_calls").get(calls) == simdjson::SUCCESS && !calls.is_null()) {
      text->append(simdjson::minify(calls));
    }
    text->append("\n");
  }
  return absl::OkStatus();
}

// The chat as text, ready for the assistant to continue.
StatusOr<SimulatedPrompt> ReadChat(
    const dom::object& object, std::string_view list_name, std::string_view system_name) {
  std::string text;
  if (const auto tools = Field(object, "tools")) {
    OpenTurn("tools", &text);
    text.append(simdjson::minify(*tools)).append("\n");
  }
  if (!system_name.empty()) {
    if (const auto system = Field(object, system_name)) {
      OpenTurn("system", &text);
      AppendContent(*system, &text);
      text.append("\n");
    }
  }
  const std::optional<dom::element> list = Field(object, list_name);
  if (!list) return Invalid("`" + std::string(list_name) + "` is missing.");
  std::string_view input;
  if (list_name == "input" && list->get(input) == simdjson::SUCCESS) {
    OpenTurn("user", &text);
    text.append(input).append("\n");
  } else {
    ROUTER_RETURN_IF_ERROR(AppendMessages(*list, list_name, &text));
  }
  OpenTurn("assistant", &text);
  return SimulatedPrompt::FromText(text);
}

StatusOr<SimulatedPrompt> ReadTokenIds(dom::array ids, std::string_view name) {
  SimulatedPrompt prompt;
  for (const dom::element id : ids) {
    uint64_t number = 0;
    if (id.get(number) != simdjson::SUCCESS || number > std::numeric_limits<uint32_t>::max()) {
      return Invalid(
          "`" + std::string(name) + "` must hold token ids from 0 to 4294967295, but holds " + Brief(id) +
          ".");
    }
    prompt.tokens.push_back(static_cast<uint32_t>(number));
  }
  return prompt;
}

// A string, a list of strings, a list of token ids, or a list of such lists.
Status ReadPrompts(const dom::object& object, std::string_view name, std::vector<SimulatedPrompt>* prompts) {
  const std::optional<dom::element> field = Field(object, name);
  std::string_view text;
  if (field && field->get(text) == simdjson::SUCCESS) {
    prompts->push_back(SimulatedPrompt::FromText(text));
    return absl::OkStatus();
  }
  dom::array list;
  if (!field || field->get(list) != simdjson::SUCCESS || list.size() == 0) {
    return Invalid(
        "`" + std::string(name) + "` must be a string, a list of strings, or a list of token ids, but is " +
        (field ? Brief(*field) : "missing") + ".");
  }
  if (list.at(0).is_number()) {
    StatusOr<SimulatedPrompt> prompt = ReadTokenIds(list, name);
    if (!prompt.ok()) return prompt.status();
    prompts->push_back(*std::move(prompt));
    return absl::OkStatus();
  }
  for (const dom::element item : list) {
    dom::array ids;
    if (item.get(text) == simdjson::SUCCESS) {
      prompts->push_back(SimulatedPrompt::FromText(text));
    } else if (item.get(ids) == simdjson::SUCCESS) {
      StatusOr<SimulatedPrompt> prompt = ReadTokenIds(ids, name);
      if (!prompt.ok()) return prompt.status();
      prompts->push_back(*std::move(prompt));
    } else {
      return Invalid(
          "an item of `" + std::string(name) + "` must be a string or a list of token ids, but is " +
          Brief(item) + ".");
    }
  }
  if (prompts->size() > kMaxPrompts) {
    return Invalid(
        "`" + std::string(name) + "` holds " + std::to_string(prompts->size()) + " prompts; at most " +
        std::to_string(kMaxPrompts) + " are allowed. Send them in several requests.");
  }
  return absl::OkStatus();
}

Status ReadModel(const dom::object& object, const SimModel& model, std::string* asked) {
  *asked = model.name;
  const std::optional<dom::element> field = Field(object, "model");
  if (!field) return absl::OkStatus();
  std::string_view name;
  if (field->get(name) != simdjson::SUCCESS)
    return Invalid("`model` must be a string, but is " + Brief(*field) + ".");
  if (name != model.name && model.name != "*") {
    return absl::NotFoundError(
        "The model `" + std::string(name) + "` does not exist; this worker serves `" + model.name + "`.");
  }
  *asked = name;
  return absl::OkStatus();
}

size_t LongestPrompt(const SimRequest& request) {
  size_t longest = 0;
  for (const SimulatedPrompt& prompt : request.prompts) longest = std::max(longest, prompt.tokens.size());
  return longest;
}

// The length of the response: as requested, else the default, limited by the context.
Status ReadLength(const dom::object& object, const SimModel& model, SimRequest* request) {
  const uint64_t most = std::numeric_limits<uint32_t>::max();
  request->answer_tokens =
      request->api == Api::kCompletions ? model.default_completion_tokens : model.default_chat_tokens;
  for (const std::string_view name : {"max_tokens", "max_completion_tokens", "max_output_tokens"}) {
    ROUTER_RETURN_IF_ERROR(
        ReadCount(object, name, 1, most, &request->answer_tokens, &request->length_was_asked));
  }
  const size_t longest = LongestPrompt(*request);
  if (!request->length_was_asked && longest < model.max_model_len) {
    request->answer_tokens = std::min(request->answer_tokens, model.max_model_len - longest);
  }
  if (longest + request->answer_tokens > model.max_model_len) {
    return OutOfRange(
        "This model's maximum context length is " + std::to_string(model.max_model_len) +
        " tokens. However, you requested " + std::to_string(longest + request->answer_tokens) + " tokens (" +
        std::to_string(longest) + " in the prompt, " + std::to_string(request->answer_tokens) +
        " in the completion). Please reduce the length of the prompt or of the completion.");
  }
  return absl::OkStatus();
}

Status ReadEmbeddingFields(const dom::object& object, const SimModel& model, SimRequest* request) {
  if (const size_t longest = LongestPrompt(*request); longest > model.max_model_len) {
    return OutOfRange(
        "This model's maximum context length is " + std::to_string(model.max_model_len) +
        " tokens. However, you requested " + std::to_string(longest) +
        " tokens in the input for embedding generation. Please reduce the length of the input.");
  }
  ROUTER_RETURN_IF_ERROR(ReadCount(object, "dimensions", 1, kMaxDimensions, &request->embedding_dimensions));
  if (const auto format = Field(object, "encoding_format")) {
    std::string_view name;
    if (format->get(name) != simdjson::SUCCESS || (name != "float" && name != "base64")) {
      return Invalid("`encoding_format` must be \"float\" or \"base64\", but is " + Brief(*format) + ".");
    }
    request->base64 = name == "base64";
  }
  return absl::OkStatus();
}

Status ReadGenerationFields(const dom::object& object, const SimModel& model, SimRequest* request) {
  ROUTER_RETURN_IF_ERROR(ReadFlag(object, "stream", &request->stream));
  if (const auto options = Field(object, "stream_options")) {
    dom::object inner;
    if (options->get(inner) != simdjson::SUCCESS) {
      return Invalid("`stream_options` must be an object, but is " + Brief(*options) + ".");
    }
    ROUTER_RETURN_IF_ERROR(ReadFlag(inner, "include_usage", &request->include_usage));
  }
  ROUTER_RETURN_IF_ERROR(ReadCount(object, "n", 1, kMaxChoices, &request->choices_per_prompt));
  return ReadLength(object, model, request);
}

Status ReadPromptsOf(const dom::object& object, SimRequest* request) {
  StatusOr<SimulatedPrompt> chat = absl::UnknownError("not a chat");
  switch (request->api) {
    case Api::kCompletions:
      return ReadPrompts(object, "prompt", &request->prompts);
    case Api::kEmbeddings:
      return ReadPrompts(object, "input", &request->prompts);
    case Api::kDetokenize: {
      dom::array ids;
      const std::optional<dom::element> field = Field(object, "tokens");
      if (!field || field->get(ids) != simdjson::SUCCESS)
        return Invalid("`tokens` must be a list of token ids.");
      chat = ReadTokenIds(ids, "tokens");
      break;
    }
    case Api::kTokenize:
      if (!Field(object, "messages")) return ReadPrompts(object, "prompt", &request->prompts);
      chat = ReadChat(object, "messages", "");
      break;
    case Api::kChat:
      chat = ReadChat(object, "messages", "");
      break;
    case Api::kResponses:
      chat = ReadChat(object, "input", "instructions");
      break;
    case Api::kMessages:
      chat = ReadChat(object, "messages", "system");
      break;
  }
  if (!chat.ok()) return chat.status();
  request->prompts.push_back(*std::move(chat));
  return absl::OkStatus();
}

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
    case Api::kTokenize:
    case Api::kDetokenize:
      break;
  }
  return "";
}

// A client's request id may hold any byte that a header may; ours goes into JSON without quotes.
std::string AnswerId(Api api, std::string_view request_id) {
  const std::string quoted = JsonQuoted(request_id);
  return std::string(IdPrefix(api)) + quoted.substr(1, quoted.size() - 2);
}

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

void WriteUsage(const Usage& usage, std::string* out) {
  Text{out} << R"({"prompt_tokens":)" << usage.prompt_tokens << R"(,"total_tokens":)"
            << usage.prompt_tokens + usage.completion_tokens << R"(,"completion_tokens":)"
            << usage.completion_tokens << R"(,"prompt_tokens_details":{"cached_tokens":)"
            << usage.cached_tokens << "}}";
}

void WriteResponsesUsage(const Usage& usage, std::string* out) {
  Text{out} << R"({"input_tokens":)" << usage.prompt_tokens << R"(,"input_tokens_details":{"cached_tokens":)"
            << usage.cached_tokens << R"(},"output_tokens":)" << usage.completion_tokens
            << R"(,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":)"
            << usage.prompt_tokens + usage.completion_tokens << "}";
}

// `input_tokens` are those that were not in the cache.
void WriteMessagesUsage(const Usage& usage, std::string* out) {
  Text{out} << R"({"input_tokens":)" << usage.prompt_tokens - usage.cached_tokens << R"(,"output_tokens":)"
            << usage.completion_tokens << R"(,"cache_creation_input_tokens":0,"cache_read_input_tokens":)"
            << usage.cached_tokens << "}";
}

// A whole response of /v1/responses, or the frame of one without text so far (`text` empty).
void WriteResponsesObject(
    std::string_view id, int64_t created, std::string_view model, std::string_view status,
    std::string_view text, const Usage* usage, std::string* out) {
  Text{out} << R"({"id":")" << id << R"(","object":"response","created_at":)" << created << R"(,"status":")"
            << status << R"(","model":)" << model
            << R"(,"parallel_tool_calls":true,"tool_choice":"auto","tools":[],"output":[)";
  if (usage != nullptr) {
    Text{out}
        << R"({"type":"message","id":"msg_)" << id
        << R"(","role":"assistant","status":"completed","content":[{"type":"output_text","annotations":[],"text":")"
        << text << R"("}]})";
  }
  out->append("]");
  if (usage != nullptr) {
    out->append(R"(,"usage":)");
    WriteResponsesUsage(*usage, out);
  }
  out->append("}");
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

void WriteChoices(const SimRequest& request, std::string* out) {
  size_t index = 0;
  const std::string_view reason = request.length_was_asked ? "length" : "stop";
  for (const SimulatedPrompt& prompt : request.prompts) {
    for (size_t choice = 0; choice < request.choices_per_prompt; ++choice, ++index) {
      Text text{out};
      text << (index == 0 ? "" : ",") << R"({"index":)" << index
           << (request.api == Api::kChat ? R"(,"message":{"role":"assistant","content":")" : R"(,"text":")");
      AppendAnswer(AnswerSeed(prompt, choice), request.answer_tokens, out);
      text << (request.api == Api::kChat ? R"("},"logprobs":null,"finish_reason":")"
                                         : R"(","logprobs":null,"finish_reason":")")
           << reason << R"(","stop_reason":null})";
    }
  }
}

}  // namespace

size_t SimRequest::prompt_tokens() const {
  size_t sum = 0;
  for (const SimulatedPrompt& prompt : prompts) sum += prompt.tokens.size();
  return sum;
}

StatusOr<SimRequest> ParseRequest(Api api, std::string_view body, const SimModel& model) {
  // A parser keeps its memory between documents.
  thread_local dom::parser parser;
  dom::element document;
  body = WithoutByteOrderMark(body);
  if (const auto error = parser.parse(body.data(), body.size()).get(document); error != simdjson::SUCCESS) {
    return Invalid("The body is not valid JSON: " + std::string(simdjson::error_message(error)) + ".");
  }
  dom::object object;
  if (document.get(object) != simdjson::SUCCESS) {
    return Invalid("The body must be a JSON object, but is " + Brief(document) + ".");
  }
  SimRequest request{.api = api, .max_model_len = model.max_model_len};
  ROUTER_RETURN_IF_ERROR(ReadModel(object, model, &request.model));
  ROUTER_RETURN_IF_ERROR(ReadPromptsOf(object, &request));
  switch (api) {
    case Api::kTokenize:
    case Api::kDetokenize:
      break;
    case Api::kEmbeddings:
      ROUTER_RETURN_IF_ERROR(ReadEmbeddingFields(object, model, &request));
      break;
    case Api::kResponses:
    case Api::kMessages:
      ROUTER_RETURN_IF_ERROR(ReadGenerationFields(object, model, &request));
      request.choices_per_prompt = 1;  // these APIs have no `n`
      break;
    case Api::kChat:
    case Api::kCompletions:
      ROUTER_RETURN_IF_ERROR(ReadGenerationFields(object, model, &request));
      break;
  }
  return request;
}

void WriteAnswer(const SimRequest& request, const AnswerStamp& stamp, const Usage& usage, std::string* out) {
  const std::string id = AnswerId(request.api, stamp.request_id);
  const std::string model = JsonQuoted(request.model);
  Text text{out};
  switch (request.api) {
    case Api::kChat:
    case Api::kCompletions:
      text << R"({"id":")" << id << R"(","object":")"
           << (request.api == Api::kChat ? "chat.completion" : "text_completion") << R"(","created":)"
           << stamp.created << R"(,"model":)" << model << R"(,"choices":[)";
      WriteChoices(request, out);
      text << R"(],"system_fingerprint":)" << JsonQuoted(stamp.fingerprint) << R"(,"usage":)";
      WriteUsage(usage, out);
      text << "}";
      return;
    case Api::kResponses:
    case Api::kMessages: {
      std::string answer;
      AppendAnswer(AnswerSeed(request.prompts[0], 0), request.answer_tokens, &answer);
      if (request.api == Api::kResponses) {
        WriteResponsesObject(id, stamp.created, model, "completed", answer, &usage, out);
        return;
      }
      text << R"({"id":")" << id << R"(","type":"message","role":"assistant","model":)" << model
           << R"(,"content":[{"type":"text","text":")" << answer << R"("}],"stop_reason":")"
           << (request.length_was_asked ? "max_tokens" : "end_turn") << R"(","stop_sequence":null,"usage":)";
      WriteMessagesUsage(usage, out);
      text << "}";
      return;
    }
    case Api::kEmbeddings:
      WriteEmbeddings(request, stamp, usage, out);
      return;
    case Api::kTokenize: {
      const std::vector<uint32_t>& tokens = request.prompts[0].tokens;
      text << R"({"count":)" << tokens.size() << R"(,"max_model_len":)" << request.max_model_len
           << R"(,"tokens":[)";
      for (size_t i = 0; i < tokens.size(); ++i) text << (i == 0 ? "" : ",") << uint64_t{tokens[i]};
      text << R"(],"token_strs":null})";
      return;
    }
    case Api::kDetokenize:
      text << R"({"prompt":)" << JsonQuoted(TextOfTokens(request.prompts[0].tokens)) << "}";
      return;
  }
}

ResponseStream::ResponseStream(const SimRequest& request, const AnswerStamp& stamp)
    : api_(request.api),
      include_usage_(request.include_usage),
      length_was_asked_(request.length_was_asked),
      id_(AnswerId(request.api, stamp.request_id)),
      model_(JsonQuoted(request.model)),
      fingerprint_(JsonQuoted(stamp.fingerprint)),
      created_(stamp.created),
      answer_tokens_(request.answer_tokens) {
  for (const SimulatedPrompt& prompt : request.prompts) {
    for (size_t choice = 0; choice < request.choices_per_prompt; ++choice) {
      seeds_.push_back(AnswerSeed(prompt, choice));
    }
  }
  Text before{&before_};
  switch (api_) {
    case Api::kResponses:
      before << R"(event: response.output_text.delta
data: {"type":"response.output_text.delta","sequence_number":)";
      Text{&middle_} << R"(,"item_id":"msg_)" << id_ << R"(","output_index":0,"content_index":0,"delta":")";
      after_ = "\"}\n\n";
      return;
    case Api::kMessages:
      before << R"(event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":")";
      after_ = "\"}}\n\n";
      return;
    default:
      before << R"(data: {"id":")" << id_ << R"(","object":")"
             << (api_ == Api::kChat ? "chat.completion.chunk" : "text_completion") << R"(","created":)"
             << created_ << R"(,"model":)" << model_ << R"(,"choices":[{"index":)";
      middle_ = api_ == Api::kChat ? R"(,"delta":{"content":")" : R"(,"text":")";
      after_ = api_ == Api::kChat ? R"("},"logprobs":null,"finish_reason":null}]})"
                                  : R"(","logprobs":null,"finish_reason":null}]})";
      after_ += "\n\n";
  }
}

void ResponseStream::Begin(const Usage& usage, std::string* out) const {
  if (api_ == Api::kChat) ChatBegin(out);
  if (api_ == Api::kResponses) ResponsesBegin(out);
  if (api_ == Api::kMessages) MessagesBegin(usage, out);
}

void ResponseStream::Token(size_t token, std::string* out) const {
  for (size_t choice = 0; choice < seeds_.size(); ++choice) {
    out->append(before_);
    if (api_ == Api::kResponses) Text{out} << token + 3;  // events 0 to 2 opened the response
    if (api_ == Api::kChat || api_ == Api::kCompletions) Text{out} << choice;
    Text{out} << middle_ << AnswerToken(seeds_[choice], token) << after_;
  }
}

void ResponseStream::End(const Usage& usage, std::string* out) const {
  if (api_ == Api::kResponses) {
    ResponsesEnd(usage, out);
  } else if (api_ == Api::kMessages) {
    MessagesEnd(usage, out);
  } else {
    ChatEnd(usage, out);
  }
}

void ResponseStream::ChatBegin(std::string* out) const {
  for (size_t choice = 0; choice < seeds_.size(); ++choice) {
    Text{out} << before_ << choice
              << R"(,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]})"
              << "\n\n";
  }
}

void ResponseStream::ChatEnd(const Usage& usage, std::string* out) const {
  for (size_t choice = 0; choice < seeds_.size(); ++choice) {
    Text{out} << before_ << choice << (api_ == Api::kChat ? R"(,"delta":{})" : R"(,"text":"")")
              << R"(,"logprobs":null,"finish_reason":")" << (length_was_asked_ ? "length" : "stop")
              << R"(","stop_reason":null}],"system_fingerprint":)" << fingerprint_ << "}"
              << "\n\n";
  }
  if (include_usage_) {
    // The common prefix up to `"choices":[`, then an empty list.
    const std::string_view head = std::string_view(before_).substr(0, before_.find(R"({"index":)"));
    Text{out} << head << R"(],"usage":)";
    WriteUsage(usage, out);
    out->append("}\n\n");
  }
  out->append("data: [DONE]\n\n");
}

void ResponseStream::ResponsesBegin(std::string* out) const {
  Text text{out};
  text << "event: response.created\ndata: "
       << R"({"type":"response.created","sequence_number":0,"response":)";
  WriteResponsesObject(id_, created_, model_, "in_progress", "", nullptr, out);
  text
      << "}\n\nevent: response.output_item.added\ndata: "
      << R"({"type":"response.output_item.added","sequence_number":1,"output_index":0,"item":{"type":"message","id":"msg_)"
      << id_ << R"(","role":"assistant","status":"in_progress","content":[]}})"
      << "\n\nevent: response.content_part.added\ndata: "
      << R"({"type":"response.content_part.added","sequence_number":2,"item_id":"msg_)" << id_
      << R"(","output_index":0,"content_index":0,"part":{"type":"output_text","annotations":[],"text":""}})"
      << "\n\n";
}

void ResponseStream::ResponsesEnd(const Usage& usage, std::string* out) const {
  std::string answer;
  AppendAnswer(seeds_[0], answer_tokens_, &answer);
  Text text{out};
  const uint64_t next = answer_tokens_ + 3;
  const std::string part = R"({"type":"output_text","annotations":[],"text":")" + answer + R"("})";
  text << "event: response.output_text.done\ndata: "
       << R"({"type":"response.output_text.done","sequence_number":)" << next << R"(,"item_id":"msg_)" << id_
       << R"(","output_index":0,"content_index":0,"text":")" << answer << R"("})"
       << "\n\nevent: response.content_part.done\ndata: "
       << R"({"type":"response.content_part.done","sequence_number":)" << next + 1 << R"(,"item_id":"msg_)"
       << id_ << R"(","output_index":0,"content_index":0,"part":)" << part
       << "}\n\nevent: response.output_item.done\ndata: "
       << R"({"type":"response.output_item.done","sequence_number":)" << next + 2
       << R"(,"output_index":0,"item":{"type":"message","id":"msg_)" << id_
       << R"(","role":"assistant","status":"completed","content":[)" << part
       << "]}}\n\nevent: response.completed\ndata: "
       << R"({"type":"response.completed","sequence_number":)" << next + 3 << R"(,"response":)";
  WriteResponsesObject(id_, created_, model_, "completed", answer, &usage, out);
  text << "}\n\n";
}

void ResponseStream::MessagesBegin(const Usage& usage, std::string* out) const {
  Text text{out};
  text << "event: message_start\ndata: "
       << R"({"type":"message_start","message":{"id":")" << id_
       << R"(","type":"message","role":"assistant","model":)" << model_
       << R"(,"content":[],"stop_reason":null,"stop_sequence":null,"usage":)";
  WriteMessagesUsage({usage.prompt_tokens, usage.cached_tokens, 0}, out);
  text << "}}\n\nevent: content_block_start\ndata: "
       << R"({"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}})"
       << "\n\n";
}

void ResponseStream::MessagesEnd(const Usage& usage, std::string* out) const {
  Text text{out};
  text << "event: content_block_stop\ndata: "
       << R"({"type":"content_block_stop","index":0})"
       << "\n\nevent: message_delta\ndata: "
       << R"({"type":"message_delta","delta":{"stop_reason":")"
       << (length_was_asked_ ? "max_tokens" : "end_turn") << R"(","stop_sequence":null},"usage":)";
  WriteMessagesUsage(usage, out);
  text << "}\n\nevent: message_stop\ndata: "
       << R"({"type":"message_stop"})"
       << "\n\n";
}

void WriteError(Api api, int status, std::string_view message, std::string* out, bool wrong_type) {
  if (api == Api::kMessages) {
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

}  // namespace vllm_router
