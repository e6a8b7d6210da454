// Requests of all APIs: bytes in, a SimRequest or a sentence for the client out.
#include <simdjson.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "base/text.h"
#include "routing/json_scanner.h"
#include "simulation/openai_api.h"

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

// Claude Code's block that says who pays; engines drop it.
constexpr std::string_view kBillingHeader = "x-anthropic-billing-header:";

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
    if (part.at_key("text").get(string) != simdjson::SUCCESS) {
      text->append(simdjson::minify(part));
    } else if (string.substr(0, kBillingHeader.size()) != kBillingHeader) {
      text->append(string);
    }
  }
}

void OpenTurn(std::string_view role, std::string* text) { text->append("<|").append(role).append("|>\n"); }

std::string_view TextAt(dom::element object, std::string_view name) {
  std::string_view text;
  return object.at_key(name).get(text) == simdjson::SUCCESS ? text : std::string_view();
}

// Anthropic's: tool results are parts of a user's message.
bool HasToolResult(dom::element message) {
  dom::array parts;
  if (message.at_key("content").get(parts) != simdjson::SUCCESS) return false;
  for (const dom::element part : parts) {
    if (TextAt(part, "type") == "tool_result") return true;
  }
  return false;
}

// A chat as text and, for a script, how far its last task has come.
struct Chat {
  std::string text;
  ResponseCount responses;

  void Open(std::string_view role, bool is_result) {
    OpenTurn(role, &text);
    if (is_result) {
      responses.AddResult();
    } else if (role == "user") {
      responses.AddUser();
    } else if (role == "assistant") {
      responses.AddAssistant();
    }
  }
};

// An item of Responses that has a type in place of a role: a tool's call or output, reasoning. False: it has neither.
bool AppendItem(dom::element item, Chat* chat) {
  constexpr std::string_view kOutput = "_output";
  const std::string_view type = TextAt(item, "type");
  if (type.empty()) return false;
  const bool is_result = type.size() > kOutput.size() && type.substr(type.size() - kOutput.size()) == kOutput;
  chat->Open(is_result ? "tool" : "assistant", is_result);
  dom::element output;
  if (is_result && item.at_key("output").get(output) == simdjson::SUCCESS) {
    AppendContent(output, &chat->text);
  } else {
    chat->text.append(simdjson::minify(item));
  }
  return true;
}

Status AppendMessages(dom::element list, std::string_view name, Chat* chat) {
  dom::array messages;
  if (list.get(messages) != simdjson::SUCCESS || messages.size() == 0) {
    return Invalid(
        "`" + std::string(name) + "` must be a list of at least one message, but is " + Brief(list) + ".");
  }
  for (const dom::element message : messages) {
    const std::string_view role = TextAt(message, "role");
    if (role.empty() && !(name == "input" && AppendItem(message, chat))) {
      return Invalid("a message of `" + std::string(name) + "` needs a \"role\": " + Brief(message) + ".");
    }
    if (!role.empty()) {
      chat->Open(role, role == "tool" || HasToolResult(message));
      dom::element content;
      if (message.at_key("content").get(content) == simdjson::SUCCESS) AppendContent(content, &chat->text);
      dom::element calls;
      if (message.at_key("tool_calls").get(calls) == simdjson::SUCCESS && !calls.is_null()) {
        chat->text.append(simdjson::minify(calls));
      }
    }
    chat->text.append("\n");
  }
  return absl::OkStatus();
}

// How far a chat has come.
struct ChatState {
  size_t responses = 0;  // since the user's last message
  size_t begun = 0;      // tokens of the next response that the prompt has already
};

// The chat as text, ready for the assistant to continue.
StatusOr<Chat> ReadChat(const dom::object& object, std::string_view list_name, std::string_view system_name) {
  Chat chat;
  if (const auto tools = Field(object, "tools")) {
    OpenTurn("tools", &chat.text);
    chat.text.append(simdjson::minify(*tools)).append("\n");
  }
  if (!system_name.empty()) {
    if (const auto system = Field(object, system_name)) {
      OpenTurn("system", &chat.text);
      AppendContent(*system, &chat.text);
      chat.text.append("\n");
    }
  }
  const std::optional<dom::element> list = Field(object, list_name);
  if (!list) return Invalid("`" + std::string(list_name) + "` is missing.");
  std::string_view input;
  if (list_name == "input" && list->get(input) == simdjson::SUCCESS) {
    chat.Open("user", false);
    chat.text.append(input).append("\n");
  } else {
    ROUTER_RETURN_IF_ERROR(AppendMessages(*list, list_name, &chat));
  }
  OpenTurn("assistant", &chat.text);
  return chat;
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

bool HasTools(const dom::object& object) {
  dom::array tools;
  const std::optional<dom::element> field = Field(object, "tools");
  return field && field->get(tools) == simdjson::SUCCESS && tools.size() > 0;
}

// Of a model with a script: its turn for a request with tools, else a text that a length limits and does not extend.
void ApplyScript(const dom::object& object, const SimModel& model, size_t responses, SimRequest* request) {
  request->length_was_asked = false;
  if (HasTools(object)) {
    request->turn = {model.script, &model.script->Turn(responses)};
    request->answer_tokens = request->turn->tokens();
  } else {
    request->answer_tokens = std::min(request->answer_tokens, model.default_chat_tokens);
  }
}

// The length of the response: as requested, else the default, limited by the context.
Status ReadLength(
    const dom::object& object, const SimModel& model, const ChatState& chat, SimRequest* request) {
  const uint64_t most = std::numeric_limits<uint32_t>::max();
  request->answer_tokens =
      request->api == Api::kCompletions
          ? model.default_completion_tokens
          : model.default_chat_tokens - std::min(model.default_chat_tokens - 1, chat.begun);
  for (const std::string_view name : {"max_tokens", "max_completion_tokens", "max_output_tokens"}) {
    ROUTER_RETURN_IF_ERROR(
        ReadCount(object, name, 1, most, &request->answer_tokens, &request->length_was_asked));
  }
  if (model.script != nullptr && request->api != Api::kCompletions)
    ApplyScript(object, model, chat.responses, request);
  const size_t longest = LongestPrompt(*request);
  if (!request->length_was_asked && request->turn == nullptr && longest < model.max_model_len) {
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

// A string or a list of such; empty ones end nothing.
Status ReadStops(const dom::object& object, std::vector<std::string>* stops) {
  const std::optional<dom::element> field = Field(object, "stop");
  std::string_view text;
  dom::array list;
  if (!field) return absl::OkStatus();
  if (field->get(text) == simdjson::SUCCESS) {
    if (!text.empty()) stops->emplace_back(text);
    return absl::OkStatus();
  }
  if (field->get(list) != simdjson::SUCCESS) {
    return Invalid("`stop` must be a string or a list of strings, but is " + Brief(*field) + ".");
  }
  for (const dom::element item : list) {
    if (item.get(text) != simdjson::SUCCESS) {
      return Invalid("an item of `stop` must be a string, but is " + Brief(item) + ".");
    }
    if (!text.empty()) stops->emplace_back(text);
  }
  return absl::OkStatus();
}

// What says how the model draws. A response that a stop string ends is as long as it is.
Status ReadSampling(const dom::object& sampling, SimRequest* request) {
  GenerationOptions& generation = request->generation;
  double temperature = 1;
  if (const auto field = Field(sampling, "temperature")) {
    if (field->get(temperature) != simdjson::SUCCESS)
      return Invalid("`temperature` must be a number, but is " + Brief(*field) + ".");
  }
  if (const auto field = Field(sampling, "seed"); field && temperature > 0) {
    int64_t seed = 0;
    if (field->get(seed) != simdjson::SUCCESS)
      return Invalid("`seed` must be an integer, but is " + Brief(*field) + ".");
    generation.seed = static_cast<uint64_t>(seed);
  }
  ROUTER_RETURN_IF_ERROR(ReadStops(sampling, &generation.stops));
  if (generation.stops.empty() || request->choices() > 1 || request->turn != nullptr) {
    generation.stops.clear();
    return absl::OkStatus();
  }
  const GeneratedText text(request->prompts[0], 0, request->answer_tokens, generation);
  request->answer_tokens = text.ids().size();
  request->stop = text.stop();
  return absl::OkStatus();
}

Status ReadOutputMode(const dom::object& object, SimRequest* request) {
  request->with_text = false;
  const std::optional<dom::element> mode = Field(object, "output_mode");
  std::string_view name;
  if (!mode) return absl::OkStatus();
  if (mode->get(name) != simdjson::SUCCESS || (name != "tokens" && name != "text")) {
    return Invalid("`output_mode` must be \"tokens\" or \"text\", but is " + Brief(*mode) + ".");
  }
  request->with_text = name == "text";
  return absl::OkStatus();
}

Status ReadGenerationFields(
    const dom::object& object, const SimModel& model, const ChatState& chat, SimRequest* request) {
  ROUTER_RETURN_IF_ERROR(ReadFlag(object, "stream", &request->stream));
  ROUTER_RETURN_IF_ERROR(ReadFlag(object, "return_token_ids", &request->return_token_ids));
  if (const auto options = Field(object, "stream_options")) {
    dom::object inner;
    if (options->get(inner) != simdjson::SUCCESS) {
      return Invalid("`stream_options` must be an object, but is " + Brief(*options) + ".");
    }
    ROUTER_RETURN_IF_ERROR(ReadFlag(inner, "include_usage", &request->include_usage));
  }
  dom::object sampling = object;
  if (request->api == Api::kGenerate) {
    ROUTER_RETURN_IF_ERROR(ReadOutputMode(object, request));
    const std::optional<dom::element> params = Field(object, "sampling_params");
    if (!params || params->get(sampling) != simdjson::SUCCESS) {
      return Invalid(
          "`sampling_params` must be an object, but is " + (params ? Brief(*params) : "missing") + ".");
    }
  }
  ROUTER_RETURN_IF_ERROR(ReadCount(sampling, "n", 1, kMaxChoices, &request->choices_per_prompt));
  ROUTER_RETURN_IF_ERROR(ReadLength(sampling, model, chat, request));
  if (request->api == Api::kMessages) return absl::OkStatus();
  if (request->api != Api::kResponses) return ReadSampling(sampling, request);
  ROUTER_RETURN_IF_ERROR(ReadFlag(object, "generate", &request->generates));
  if (!request->generates) {
    request->turn = nullptr;
    request->answer_tokens = 1;  // an engine computes a prompt for its first token
  }
  return absl::OkStatus();
}

Status ReadIds(const dom::object& object, std::string_view name, std::vector<SimulatedPrompt>* prompts) {
  dom::array ids;
  const std::optional<dom::element> field = Field(object, name);
  if (!field || field->get(ids) != simdjson::SUCCESS)
    return Invalid("`" + std::string(name) + "` must be a list of token ids.");
  StatusOr<SimulatedPrompt> prompt = ReadTokenIds(ids, name);
  if (!prompt.ok()) return prompt.status();
  prompts->push_back(*std::move(prompt));
  return absl::OkStatus();
}

// A chat may bring the ids of its prompt, which are taken in place of its messages.
Status ReadPromptIds(const dom::object& object, SimRequest* request, ChatState* state) {
  dom::object params;
  const std::optional<dom::element> field = Field(object, "kv_transfer_params");
  if (!field || field->get(params) != simdjson::SUCCESS || !Field(params, "prompt_token_ids"))
    return absl::OkStatus();
  const size_t chat_tokens = request->prompts[0].tokens.size();
  request->prompts.clear();
  ROUTER_RETURN_IF_ERROR(ReadIds(params, "prompt_token_ids", &request->prompts));
  const size_t tokens = request->prompts[0].tokens.size();
  if (tokens == 0) return Invalid("`prompt_token_ids` must be a list of at least one token id.");
  state->begun = tokens - std::min(tokens, chat_tokens);
  return absl::OkStatus();
}

Status ReadPromptsOf(
    const dom::object& object, const SimModel& model, SimRequest* request, ChatState* state) {
  StatusOr<Chat> chat = absl::UnknownError("not a chat");
  switch (request->api) {
    case Api::kCompletions:
      return ReadPrompts(object, "prompt", &request->prompts);
    case Api::kEmbeddings:
      return ReadPrompts(object, "input", &request->prompts);
    case Api::kDetokenize:
      return ReadIds(object, "tokens", &request->prompts);
    case Api::kGenerate:
      return ReadIds(object, "token_ids", &request->prompts);
    case Api::kTokenize:
      if (!Field(object, "messages")) return ReadPrompts(object, "prompt", &request->prompts);
      chat = ReadChat(object, "messages", "");
      break;
    case Api::kChat:
      chat = ReadChat(object, "messages", "");
      break;
    case Api::kResponses:
    case Api::kInputTokens:
    case Api::kRenderResponses:
      chat = ReadChat(object, "input", "instructions");
      break;
    case Api::kMessages:
    case Api::kCountTokens:
    case Api::kRenderMessages:
      chat = ReadChat(object, "messages", "system");
      break;
  }
  if (!chat.ok()) return chat.status();
  request->prompts.push_back(SimulatedPrompt::FromText(chat->text));
  state->responses = chat->responses.count();
  if (ComputesNothing(request->api) || model.ignore_prompt_ids) return absl::OkStatus();
  return ReadPromptIds(object, request, state);
}

}  // namespace

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
  request.generation.wide_text = model.wide_text;
  ROUTER_RETURN_IF_ERROR(ReadModel(object, model, &request.model));
  ChatState chat;
  ROUTER_RETURN_IF_ERROR(ReadPromptsOf(object, model, &request, &chat));
  switch (api) {
    case Api::kTokenize:
    case Api::kDetokenize:
    case Api::kCountTokens:
    case Api::kInputTokens:
    case Api::kRenderMessages:
    case Api::kRenderResponses:
      break;
    case Api::kEmbeddings:
      ROUTER_RETURN_IF_ERROR(ReadEmbeddingFields(object, model, &request));
      break;
    case Api::kResponses:
    case Api::kMessages:
      ROUTER_RETURN_IF_ERROR(ReadGenerationFields(object, model, chat, &request));
      request.choices_per_prompt = 1;  // these APIs have no `n`
      break;
    case Api::kChat:
    case Api::kCompletions:
    case Api::kGenerate:
      ROUTER_RETURN_IF_ERROR(ReadGenerationFields(object, model, chat, &request));
      break;
  }
  return request;
}

}  // namespace vllm_router
