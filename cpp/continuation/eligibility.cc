#include "continuation/eligibility.h"

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "routing/json_scanner.h"

namespace vllm_router {
namespace {

using Member = BodyMap::Member;
using Type = BodyMap::Type;

constexpr size_t kMostMembers = 256;
constexpr size_t kMostElements = 4096;  // of a list that is looked through

constexpr std::array<std::string_view, kContinueMethods> kMethodNames = {"rerun", "tokens", "parsed_tokens"};
constexpr std::array<std::string_view, kContinueReasons> kReasonNames = {
    "none",           "route",        "not_streamed",     "not_json",
    "odd_names",      "state",        "beam_search",      "sampled",
    "format",         "no_token_ids", "several_choices",  "seed",
    "output_history", "media",        "hidden_reasoning", "echo",
    "stop",           "grammar",      "tool_call",        "no_tool_call"};

struct ApiRow {
  std::string_view path;
  ContinueApi api;
};
constexpr std::array<ApiRow, 6> kApis = {{
    {"/v1/completions", ContinueApi::kCompletions},
    {"/v1/chat/completions", ContinueApi::kChat},
    {"/v1/messages", ContinueApi::kMessages},
    {"/v1/responses", ContinueApi::kResponses},
    {"/inference/v1/generate", ContinueApi::kVllmGenerate},
    {"/generate", ContinueApi::kSglangGenerate},
}};

// A member that asks for something: neither absent nor null, false, 0, "", [] or {}.
bool IsGiven(const Member& member) {
  switch (member.type) {
    case Type::kNull:
    case Type::kFalse:
      return false;
    case Type::kNumber:
      return member.value.find_first_of("123456789") < member.value.find_first_of("eE");
    case Type::kString:
      return member.value.size() > 2;
    case Type::kArray:
    case Type::kObject:
      return member.value.find_first_not_of(" \t\r\n", 1) != member.value.size() - 1;
    case Type::kTrue:
    case Type::kOther:
      return true;
  }
  return true;
}

bool IsTrue(const BodyMap& body, std::string_view name) {
  const Member* const member = body.Find(name);
  return member != nullptr && member->type == Type::kTrue;
}

bool HasAny(const BodyMap& body, std::span<const std::string_view> names) {
  return std::ranges::any_of(names, [&body](std::string_view name) {
    const Member* const member = body.Find(name);
    return member != nullptr && IsGiven(*member);
  });
}

// Absent or null, or spelled "1".
bool IsOne(const BodyMap& body, std::string_view name) {
  const Member* const member = body.Find(name);
  return member == nullptr || member->type == Type::kNull || member->value == "1";
}

// Looks at the elements of an array of objects, at most kMostElements. What is no such array counts as found.
template <typename Test>
bool AnyElement(std::string_view array, Test test) {
  const std::optional<std::vector<std::string_view>> elements = JsonElements(array, kMostElements);
  if (!elements || elements->size() == kMostElements) return true;
  return std::ranges::any_of(*elements, [&test](std::string_view element) {
    const BodyMap object = BodyMap::Read(element);
    return !object.ok() || object.HasOddNames() || test(object);
  });
}

// The request, by API. `params` has the sampling parameters: the body itself, or its member of that name.
class Checks {
 public:
  Checks(ContinueApi api, const BodyMap& body, const BodyMap& params)
      : api_(api), body_(body), params_(params) {}

  ContinueReason OfAll() const {
    if (HasState()) return ContinueReason::kState;
    constexpr std::array<std::string_view, 1> kBeams = {"use_beam_search"};
    if (HasAny(body_, kBeams) || HasAny(params_, kBeams)) return ContinueReason::kBeamSearch;
    return ContinueReason::kNone;
  }

  ContinueReason OfRerun() const {
    if (!IsGreedy() && !HasSeed()) return ContinueReason::kSampled;
    const bool is_verified = api_ == ContinueApi::kCompletions || api_ == ContinueApi::kChat;
    return is_verified ? ContinueReason::kNone : ContinueReason::kFormat;
  }

  ContinueReason OfTokens() const {
    if (api_ == ContinueApi::kMessages || api_ == ContinueApi::kResponses) return ContinueReason::kNoTokenIds;
    if (HasSeveralChoices()) return ContinueReason::kSeveralChoices;
    if (!IsGreedy() && HasSeed()) return ContinueReason::kSeed;
    if (DependsOnHistory()) return ContinueReason::kOutputHistory;
    if (HasMedia()) return ContinueReason::kMedia;
    const Member* const reasoning = body_.Find("include_reasoning");
    if (reasoning != nullptr && reasoning->type != Type::kTrue) return ContinueReason::kHiddenReasoning;
    constexpr std::array<std::string_view, 1> kEchoes = {"echo"};
    if (HasAny(body_, kEchoes)) return ContinueReason::kEcho;
    constexpr std::array<std::string_view, 1> kStops = {"stop"};
    if (HasAny(params_, kStops)) return ContinueReason::kStop;
    return HasGrammar() ? ContinueReason::kGrammar : ContinueReason::kNone;
  }

  ContinueReason OfParsedTokens() const {
    const ContinueReason why = OfTokens();
    if (why != ContinueReason::kNone) return why;
    return HasTools() ? ContinueReason::kNone : ContinueReason::kNoToolCall;
  }

 private:
  bool HasState() const {
    constexpr std::array<std::string_view, 9> kState = {
        "previous_response_id", "conversation",   "background",     "session_params",    "kv_transfer_params",
        "bootstrap_host",       "bootstrap_port", "bootstrap_room", "ec_transfer_params"};
    if (HasAny(body_, kState)) return true;
    if (api_ != ContinueApi::kResponses) return false;
    const Member* const store = body_.Find("store");  // absent, it is true
    return store == nullptr || store->type != Type::kFalse;
  }

  // Engines' own default is another temperature.
  bool IsGreedy() const {
    const Member* const temperature = params_.Find("temperature");
    return temperature != nullptr && temperature->type == Type::kNumber && !IsGiven(*temperature);
  }

  bool HasSeed() const {
    const Member* const seed = params_.Find("seed");
    return seed != nullptr && seed->type != Type::kNull;  // engines read "5" as 5
  }

  bool HasSeveralChoices() const {
    if (!IsOne(params_, "n") || !IsOne(params_, "best_of")) return true;
    for (const std::string_view name : {"prompt", "text", "input_ids"}) {
      const Member* const prompt = body_.Find(name);
      if (prompt == nullptr || prompt->type != Type::kArray) continue;
      const std::optional<std::vector<std::string_view>> first = JsonElements(prompt->value, 1);
      if (!first || first->empty() || (first->front().front() != '"' && first->front().front() != '['))
        continue;
      // Texts or lists of ids, each a prompt.
      const std::optional<std::vector<std::string_view>> two = JsonElements(prompt->value, 2);
      if (!two || two->size() > 1) return true;
    }
    return false;
  }

  bool DependsOnHistory() const {
    constexpr std::array<std::string_view, 9> kHistory = {
        "presence_penalty",  "frequency_penalty",      "bad_words",     "repetition_detection", "vllm_xargs",
        "logits_processors", "custom_logit_processor", "custom_params", "no_repeat_ngram_size"};
    return HasAny(params_, kHistory) || HasAny(body_, kHistory);
  }

  bool HasMedia() const {
    constexpr std::array<std::string_view, 7> kMedia = {
        "image_data", "audio_data", "video_data", "features", "audio", "multi_modal_data", "prompt_embeds"};
    if (HasAny(body_, kMedia)) return true;
    const Member* const messages = body_.Find("messages");
    if (messages == nullptr) return false;
    return AnyElement(messages->value, [](const BodyMap& message) {
      const Member* const content = message.Find("content");
      if (content == nullptr || content->type == Type::kNull || content->type == Type::kString) return false;
      return AnyElement(content->value, [](const BodyMap& part) {
        const Member* const type = part.Find("type");
        return type == nullptr || !(type->Holds("text") || type->Holds("refusal") || type->Holds("thinking"));
      });
    });
  }

  bool HasTools() const {
    const Member* const choice = body_.Find("tool_choice");
    if (choice != nullptr && choice->Holds("none")) return false;
    constexpr std::array<std::string_view, 2> kTools = {"tools", "functions"};
    return HasAny(body_, kTools);
  }

  bool HasGrammar() const {
    constexpr std::array<std::string_view, 7> kGrammars = {
        "structured_outputs", "structural_tag", "json_schema", "regex", "ebnf", "grammar", "function_call"};
    if (HasAny(body_, kGrammars) || HasAny(params_, kGrammars)) return true;
    const auto is_guided = [](const Member& member) {
      return member.name.starts_with("guided_") && IsGiven(member);
    };
    if (std::ranges::any_of(body_.members(), is_guided)) return true;
    if (const Member* const format = body_.Find("response_format"); format != nullptr && IsGiven(*format)) {
      const BodyMap inner = BodyMap::Read(format->value);
      const Member* const type = inner.Find("type");
      if (type == nullptr || !type->Holds("text")) return true;
    }
    if (!HasTools()) return false;
    const Member* const choice = body_.Find("tool_choice");
    if (choice != nullptr && IsGiven(*choice) && !choice->Holds("auto")) return true;
    const Member* const tools = body_.Find("tools");
    return tools != nullptr && IsGiven(*tools) && AnyElement(tools->value, [](const BodyMap& tool) {
             const Member* const function = tool.Find("function");
             const BodyMap inner = BodyMap::Read(function != nullptr ? function->value : "{}");
             return IsTrue(tool, "strict") || IsTrue(inner, "strict");
           });
  }

  const ContinueApi api_;
  const BodyMap& body_;
  const BodyMap& params_;
};

Eligibility Never(ContinueReason why) { return {.why_not = {why, why, why}}; }

}  // namespace

std::string_view ContinueMethodName(ContinueMethod method) {
  return kMethodNames[static_cast<size_t>(method)];
}
std::string_view ContinueReasonName(ContinueReason reason) {
  return kReasonNames[static_cast<size_t>(reason)];
}

std::optional<ContinueApi> ContinueApiOf(std::string_view path) {
  const auto* const row = std::ranges::find(kApis, path, &ApiRow::path);
  if (row == kApis.end()) return std::nullopt;
  return row->api;
}

ContinueReason Eligibility::WhyNot(ContinueMethod method, ContinuePhase phase) const {
  const ContinueReason why = why_not[static_cast<size_t>(method)];
  if (method == ContinueMethod::kRerun) return why;
  if (method == ContinueMethod::kTokens) {
    if (why == ContinueReason::kGrammar && phase == ContinuePhase::kReasoning) return ContinueReason::kNone;
    if (why == ContinueReason::kNone && phase == ContinuePhase::kToolCall) return ContinueReason::kToolCall;
    return why;
  }
  if (why == ContinueReason::kNone && phase != ContinuePhase::kToolCall) return ContinueReason::kNoToolCall;
  return why;
}

bool Eligibility::MayContinue() const {
  return WhyNot(ContinueMethod::kRerun, ContinuePhase::kText) == ContinueReason::kNone ||
         WhyNot(ContinueMethod::kTokens, ContinuePhase::kReasoning) == ContinueReason::kNone;
}

Eligibility CheckEligibility(std::string_view path, const BodyMap& body) {
  const std::optional<ContinueApi> api = ContinueApiOf(path);
  if (!api) return Never(ContinueReason::kRoute);
  if (!body.ok() || body.members().size() > kMostMembers) return Never(ContinueReason::kNotJson);
  if (body.HasOddNames()) return Never(ContinueReason::kOddNames);
  if (!IsTrue(body, "stream")) return Never(ContinueReason::kNotStreamed);
  const bool is_nested = *api == ContinueApi::kVllmGenerate || *api == ContinueApi::kSglangGenerate;
  const Member* const nested = is_nested ? body.Find("sampling_params") : nullptr;
  const bool is_given = nested != nullptr && nested->type != Type::kNull;
  const BodyMap params = BodyMap::Read(is_nested ? (is_given ? nested->value : "{}") : body.body());
  if (!params.ok()) return Never(ContinueReason::kNotJson);  // a list of them, or what a worker rejects
  if (params.HasOddNames()) return Never(ContinueReason::kOddNames);
  const Checks checks(*api, body, params);
  if (const ContinueReason why = checks.OfAll(); why != ContinueReason::kNone) return Never(why);
  return {.why_not = {checks.OfRerun(), checks.OfTokens(), checks.OfParsedTokens()}};
}

}  // namespace vllm_router
