#include "disaggregation/pd_plan.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>
#include <vector>

#include "base/text.h"
#include "routing/json_scanner.h"
#include "routing/stored_path.h"

namespace vllm_router {
namespace {

using Member = BodyMap::Member;
using Type = BodyMap::Type;

constexpr size_t kMaxTools = 1024;
constexpr size_t kMaxParts = 65'536;  // of one list

// Of all members of that name.
template <typename Holds>
bool AnyOf(const BodyMap& body, std::string_view name, Holds holds) {
  return std::ranges::any_of(
      body.members(), [&](const Member& member) { return holds(member) && member.Is(name); });
}

bool IsBool(Type type) { return type == Type::kTrue || type == Type::kFalse; }

// What no double holds counts as far from 0.
bool IsAbove(const Member& member, double limit) {
  if (member.type != Type::kNumber) return false;
  double number = 0;
  const auto [end, error] =
      std::from_chars(member.value.data(), member.value.data() + member.value.size(), number);
  if (error == std::errc::result_out_of_range) return !member.value.starts_with('-');
  return number > limit;
}

bool IsAboveOne(const Member& member) { return IsAbove(member, 1); }

// n, best_of
LocalReason CheckSequences(const Member& member) {
  if (member.type == Type::kNull || member.value == "1") return LocalReason::kNone;
  return IsAboveOne(member) ? LocalReason::kSeveralSequences : LocalReason::kWrongType;
}

// A whole number; what engines reject would leave its blocks at prefill, whose copy has another number.
LocalReason CheckCount(const Member& member, int minimum) {
  if (member.type == Type::kNull) return LocalReason::kNone;
  const bool is_whole =
      member.type == Type::kNumber && member.value.find_first_of(".eE") == std::string_view::npos;
  return is_whole && IsAbove(member, minimum - 1) ? LocalReason::kNone : LocalReason::kWrongType;
}

LocalReason CheckBool(const Member& member) {
  const bool fine = member.type == Type::kNull || IsBool(member.type);
  return fine ? LocalReason::kNone : LocalReason::kWrongType;
}

LocalReason CheckOff(const Member& member, LocalReason if_on) {
  return member.type == Type::kTrue ? if_on : CheckBool(member);
}

// vLLM takes 0 and less for the context's length without max_tokens.
LocalReason CheckPromptLength(const Member& member) {
  if (member.type == Type::kNull) return LocalReason::kNone;
  if (member.type != Type::kNumber) return LocalReason::kWrongType;
  return IsAbove(member, 0) ? LocalReason::kNone : LocalReason::kTruncation;
}

// A text, token ids, or a list of one text.
LocalReason CheckPrompt(const Member& member) {
  if (member.type == Type::kNull || member.type == Type::kString) return LocalReason::kNone;
  if (member.type != Type::kArray) return LocalReason::kWrongType;
  const std::optional<std::vector<std::string_view>> first = JsonElements(member.value, 2);
  if (!first || first->empty()) return LocalReason::kWrongType;
  const char begin = first->front().front();
  if (begin == '[' || begin == '{') return LocalReason::kBatch;
  if (begin == '"') return first->size() == 1 ? LocalReason::kNone : LocalReason::kBatch;
  return IsJsonNumber(first->front()) ? LocalReason::kNone : LocalReason::kWrongType;
}

// A URL that has what it names in itself.
bool IsInline(const Member& url) { return url.value.starts_with(R"("data:)"); }

// Both workers get the same bytes of it. What lies behind a URL is fetched by each worker, and may have changed; a
// uuid names what a worker has seen before.
bool IsInlineMedia(const BodyMap& part) {
  constexpr std::array<std::string_view, 5> kMedia = {
      "image_url", "audio_url", "video_url", "input_audio", "source"};
  bool found = false;
  for (const Member& member : part.members()) {
    if (member.Is("uuid")) return false;
    if (std::ranges::none_of(kMedia, [&](std::string_view name) { return member.Is(name); })) continue;
    const BodyMap inner = BodyMap::Read(member.value);
    const Member* const url = inner.Find("url");
    const Member* const data = inner.Find("data");
    const bool is_inline = member.type == Type::kString ? IsInline(member)
                           : url != nullptr             ? data == nullptr && IsInline(*url)
                                                        : data != nullptr && data->type == Type::kString;
    if (!is_inline) return false;
    found = true;
  }
  return found;
}

constexpr int kMessageDepth = 3;  // messages, parts of one, and parts of a tool's result

bool HasSharedContent(std::string_view content, int depth);

// A message, at kMessageDepth, or a part of its content.
bool IsShared(std::string_view part, int depth) {
  constexpr std::array<std::string_view, 10> kTexts = {
      "text",     "input_text",  "output_text", "refusal",       "thinking",
      "tool_use", "tool_result", "message",     "function_call", "function_call_output"};
  constexpr std::array<std::string_view, 5> kInline = {
      "image_url", "input_audio", "image", "input_image", "video_url"};
  const BodyMap map = BodyMap::Read(part);
  if (!map.ok()) return part.front() != '{';  // a text, or what every worker rejects
  for (const Member& member : map.members()) {
    const bool is_content = member.Is("content") || member.Is("output");
    if (is_content && member.type == Type::kArray && !HasSharedContent(member.value, depth - 1)) return false;
  }
  const Member* const type = map.Find("type");
  if (type == nullptr) {
    // vLLM takes the type of a part without one from its other members.
    return depth == kMessageDepth || (map.members().size() == 1 && map.members().front().Is("text"));
  }
  const auto is = [type](std::string_view name) { return type->Holds(name); };
  if (std::ranges::any_of(kTexts, is)) return true;
  return std::ranges::any_of(kInline, is) && IsInlineMedia(map);
}

bool HasSharedContent(std::string_view content, int depth) {
  if (depth == 0) return false;
  const std::optional<std::vector<std::string_view>> parts = JsonElements(content, kMaxParts);
  return parts && parts->size() < kMaxParts &&
         std::ranges::all_of(*parts, [depth](std::string_view part) { return IsShared(part, depth); });
}

// messages, input and system: a text, or a list whose parts both workers see alike.
LocalReason CheckContent(const Member& member, int depth = kMessageDepth) {
  if (member.type != Type::kArray) return LocalReason::kNone;
  return HasSharedContent(member.value, depth) ? LocalReason::kNone : LocalReason::kMedia;
}

// One conversation: a list of objects.
LocalReason CheckMessages(const Member& member) {
  if (member.type != Type::kArray) return LocalReason::kWrongType;
  const std::optional<std::vector<std::string_view>> first = JsonElements(member.value, 1);
  if (!first || first->empty()) return LocalReason::kWrongType;
  if (first->front().front() == '[') return LocalReason::kBatch;
  return first->front().front() == '{' ? CheckContent(member) : LocalReason::kWrongType;
}

// A template of the client may render another prompt each time.
LocalReason CheckTemplate(std::string_view name, const Member& member) {
  if (member.type == Type::kNull) return LocalReason::kNone;
  if (name == "chat_template") return LocalReason::kTemplate;
  const BodyMap inner = BodyMap::Read(member.value);
  if (!inner.ok()) return LocalReason::kWrongType;
  const Member* const given = inner.Find("chat_template");
  return given == nullptr || given->type == Type::kNull ? LocalReason::kNone : LocalReason::kTemplate;
}

bool IsFunction(std::string_view tool) {
  const BodyMap map = BodyMap::Read(tool);
  const Member* const type = map.Find("type");
  return type != nullptr && type->Holds("function");
}

LocalReason CheckTools(const Member& member) {
  if (member.type == Type::kNull) return LocalReason::kNone;
  const std::optional<std::vector<std::string_view>> tools = JsonElements(member.value, kMaxTools);
  if (!tools) return LocalReason::kWrongType;
  const bool plain = tools->size() < kMaxTools && std::ranges::all_of(*tools, IsFunction);
  return plain ? LocalReason::kNone : LocalReason::kServerTools;
}

LocalReason CheckSampling(std::string_view name, const Member& member) {
  if (name == "n" || name == "best_of") return CheckSequences(member);
  if (name == "use_beam_search") return CheckOff(member, LocalReason::kBeamSearch);
  if (name == "max_tokens") return CheckCount(member, 1);
  if (name == "min_tokens") return CheckCount(member, 0);
  return LocalReason::kNone;
}

constexpr size_t kMaxStops = 1024;

template <typename IsOne>
LocalReason CheckStopList(const Member& member, IsOne is_one) {
  const std::optional<std::vector<std::string_view>> elements = JsonElements(member.value, kMaxStops);
  const bool fine = elements && elements->size() < kMaxStops && std::ranges::all_of(*elements, is_one);
  return fine ? LocalReason::kNone : LocalReason::kWrongType;
}

// Where prefill's copy has none of them: what decode rejects would leave prefill's blocks waiting for it.
LocalReason CheckStop(PdRoute route, std::string_view name, const Member& member) {
  if (member.type == Type::kNull) return LocalReason::kNone;
  if (name == "ignore_eos") return CheckBool(member);
  if (name == "stop_token_ids") {
    return CheckStopList(member, [](std::string_view one) {
      return IsJsonNumber(one) && one.find_first_of(".eE") == std::string_view::npos;
    });
  }
  const bool is_texts = name == "stop" || (name == "stop_sequences" && route == PdRoute::kMessages);
  if (!is_texts || member.type == Type::kString) return LocalReason::kNone;
  return CheckStopList(member, [](std::string_view one) { return one.starts_with('"'); });
}

LocalReason CheckSamplingParams(const Member& member, bool ends_by_length) {
  if (member.type == Type::kNull) return LocalReason::kNone;
  const BodyMap sampling = BodyMap::Read(member.value);
  if (!sampling.ok()) return LocalReason::kWrongType;
  std::string scratch;
  for (const Member& inner : sampling.members()) {
    const std::string_view name = inner.Name(&scratch).value_or("");
    LocalReason reason = CheckSampling(name, inner);
    if (reason == LocalReason::kNone && ends_by_length)
      reason = CheckStop(PdRoute::kInferenceGenerate, name, inner);
    if (reason != LocalReason::kNone) return reason;
  }
  return LocalReason::kNone;
}

LocalReason CheckResponses(std::string_view name, const Member& member) {
  const bool continues = name == "previous_response_id" || name == "conversation";
  if (continues && member.type != Type::kNull) return LocalReason::kStoredResponse;
  if (name == "background") return CheckOff(member, LocalReason::kBackground);
  if (name == "max_output_tokens") return CheckCount(member, 1);
  if (name == "input") return CheckContent(member);
  if (name == "tools") return CheckTools(member);
  if (name == "truncation" && member.type != Type::kNull && !member.Holds("disabled"))
    return LocalReason::kTruncation;
  return LocalReason::kNone;
}

bool HasPrompt(PdRoute route) {
  return route == PdRoute::kCompletions || route == PdRoute::kGenerate || route == PdRoute::kExtra ||
         route == PdRoute::kInferenceGenerate;
}

bool HasMessages(PdRoute route) { return route == PdRoute::kChat || route == PdRoute::kMessages; }

LocalReason CheckMember(PdRoute route, std::string_view name, const Member& member) {
  constexpr std::array<std::string_view, 5> kPrompts = {
      "prompt", "text", "input_ids", "token_ids", "prompt_token_ids"};
  if (name == "stream") return CheckBool(member);
  if (name == "max_completion_tokens") return CheckCount(member, 1);
  if (name == "truncate_prompt_tokens" || name == "pad_prompt_tokens") return CheckPromptLength(member);
  if (name == "messages" && HasMessages(route)) return CheckMessages(member);
  if (name == "system" && route == PdRoute::kMessages) return CheckContent(member, kMessageDepth - 1);
  if (name == "chat_template" || name == "chat_template_kwargs") return CheckTemplate(name, member);
  if (name == "prompt_embeds" && member.type != Type::kNull) return LocalReason::kPromptEmbeds;
  if (HasPrompt(route) && std::ranges::find(kPrompts, name) != kPrompts.end()) return CheckPrompt(member);
  if (route == PdRoute::kResponses) {
    if (const LocalReason reason = CheckResponses(name, member); reason != LocalReason::kNone) return reason;
  }
  return CheckSampling(name, member);
}

// What workers reject before their engine sees the request, which then frees no blocks at prefill; its copy would
// have been fine.
LocalReason CheckTogether(PdRoute route, const BodyMap& body) {
  const bool streams = AnyOf(body, "stream", [](const Member& one) { return one.type == Type::kTrue; });
  const bool all_stream = !AnyOf(body, "stream", [](const Member& one) { return one.type != Type::kTrue; });
  const bool takes_options = streams && all_stream;
  if (AnyOf(body, "stream_options", [takes_options](const Member& one) {
        return one.type != Type::kNull && (one.type != Type::kObject || !takes_options);
      }))
    return LocalReason::kWrongType;
  if (streams && AnyOf(body, "prompt_logprobs", [](const Member& one) { return one.type != Type::kNull; }))
    return LocalReason::kWrongType;
  if (route != PdRoute::kMessages) return LocalReason::kNone;
  const Member* const limit = body.Find("max_tokens");
  const bool has_limit = limit != nullptr && limit->type != Type::kNull;
  return has_limit ? LocalReason::kNone : LocalReason::kWrongType;
}

LocalReason FindLocalReason(PdRoute route, const BodyMap& body, bool ends_by_length) {
  if (route == PdRoute::kBatchChat) return LocalReason::kBatch;
  std::string scratch;
  bool has_sampling = false;
  for (const Member& member : body.members()) {
    const std::string_view name = member.Name(&scratch).value_or("");
    const bool is_sampling = route == PdRoute::kInferenceGenerate && name == "sampling_params";
    LocalReason reason =
        is_sampling ? CheckSamplingParams(member, ends_by_length) : CheckMember(route, name, member);
    if (reason == LocalReason::kNone && ends_by_length) reason = CheckStop(route, name, member);
    if (reason != LocalReason::kNone) return reason;
    if (is_sampling && std::exchange(has_sampling, true)) return LocalReason::kDuplicate;
  }
  return CheckTogether(route, body);
}

// Python's json also reads UTF-16 and UTF-32 and steps over a byte order mark.
bool MayBeObject(std::string_view body) {
  constexpr std::string_view kBefore(" \t\r\n\0\xef\xbb\xbf\xfe\xff", 10);
  const size_t first = body.find_first_not_of(kBefore);
  return first != std::string_view::npos && body[first] == '{';
}

std::string ProblemText(const BodyMap& body) {
  if (body.problem() == BodyMap::Problem::kTooManyMembers)
    return Concat("The request body has more than ", BodyMap::kMaxMembers, " members; send fewer.");
  return Concat(
      "The request body is not a JSON object in UTF-8: reading stopped at byte ", body.problem_at(),
      "; send one object and nothing after it.");
}

PdPlan Rejected(std::string error) {
  PdPlan plan;
  plan.kind = PdKind::kRejected;
  plan.error = std::move(error);
  return plan;
}

// n above 1, or of a type that a worker may read so: samples of a prompt would share its room.
bool IsSeveral(const Member& member) {
  if (member.type == Type::kNull || IsBool(member.type)) return false;
  return member.type != Type::kNumber || IsAboveOne(member);
}

const Member* FindSeveral(const BodyMap& object) {
  const auto found = std::ranges::find_if(
      object.members(), [](const Member& member) { return member.Is("n") && IsSeveral(member); });
  return found == object.members().end() ? nullptr : &*found;
}

// sampling_params: an object, or one for each prompt.
std::string_view SeveralInside(const Member& sampling_params) {
  std::vector<std::string_view> objects = {sampling_params.value};
  if (sampling_params.type == Type::kArray)
    objects =
        JsonElements(sampling_params.value, kMaxListedPrompts).value_or(std::vector<std::string_view>());
  for (const std::string_view object : objects) {
    const BodyMap sampling = BodyMap::Read(object);
    if (const Member* const n = FindSeveral(sampling)) return n->value;
  }
  return {};
}

// Its value; empty if the request makes one sequence of each prompt.
std::string_view FindSeveralSequences(PdRoute route, const BodyMap& body) {
  if (const Member* const n = FindSeveral(body)) return n->value;
  if (route != PdRoute::kGenerate && route != PdRoute::kExtra) return {};
  for (const Member& member : body.members()) {
    if (!member.Is("sampling_params")) continue;
    const std::string_view several = SeveralInside(member);
    if (!several.empty()) return several;
  }
  return {};
}

// How many prompts a member lists; nullopt for one that is no list.
std::optional<size_t> ListedIn(std::string_view name, const Member& member) {
  if (member.type != Type::kArray) return std::nullopt;
  const auto elements = JsonElements(member.value, kMaxListedPrompts + 1);
  if (!elements || elements->empty()) return std::nullopt;
  std::string_view first = elements->front();
  if (name == "input_embeds") {  // a list of lists of numbers is one prompt
    const auto inner = JsonElements(first, 1);
    if (!inner || inner->empty()) return std::nullopt;
    first = inner->front();
  }
  if (IsJsonNumber(first)) return std::nullopt;
  return elements->size();
}

std::string SetListedPrompts(const BodyMap& body, std::optional<size_t>* listed) {
  constexpr std::array<std::string_view, 4> kLists = {"prompt", "text", "input_ids", "input_embeds"};
  bool seen = false;
  std::string scratch;
  for (const Member& member : body.members()) {
    const std::string_view name = member.Name(&scratch).value_or("");
    if (std::ranges::find(kLists, name) == kLists.end() || member.type == Type::kNull) continue;
    const std::optional<size_t> here = ListedIn(name, member);
    if (here > kMaxListedPrompts)
      return Concat("The request has more than ", kMaxListedPrompts, " prompts; send fewer.");
    if (std::exchange(seen, true) && here != *listed)
      return "The request has its prompts in several members; send them in one.";
    *listed = here;
  }
  return {};
}

// Behind workers that meet in rooms.
void PlanRooms(PdRoute route, const BodyMap& body, PdPlan* plan) {
  constexpr size_t kShownBytes = 32;
  plan->kind = PdKind::kTwoStages;
  if (const std::string_view n = FindSeveralSequences(route, body); !n.empty()) {
    plan->error = Concat(
        "n is ", CutAtCharacter(n, kShownBytes),
        "; behind SGLang prefill/decode one request makes one sequence: send n requests");
  } else if (HasPrompt(route)) {
    plan->error = SetListedPrompts(body, &plan->listed_prompts);
  }
  if (!plan->error.empty()) *plan = Rejected(std::move(plan->error));
}

void LimitToOneToken(const BodyMap& body, BodyPatch* patch) {
  patch->Insert("max_tokens", "1");
  if (body.Find("max_completion_tokens") != nullptr) patch->Insert("max_completion_tokens", "1");
  if (AnyOf(body, "min_tokens", IsAboveOne)) patch->Insert("min_tokens", "1");
}

void EndByLength(PdRoute route, BodyPatch* patch) {
  patch->Insert("ignore_eos", "true");
  patch->Remove("stop");
  patch->Remove("stop_token_ids");
  if (route == PdRoute::kMessages) patch->Remove("stop_sequences");
}

void LimitToOneTokenInside(const BodyMap& body, bool ends_by_length, BodyPatch* patch) {
  const Member* const member = body.Find("sampling_params");
  if (member == nullptr || member->type == Type::kNull) {
    patch->Insert(
        "sampling_params", ends_by_length ? R"({"max_tokens":1,"min_tokens":1,"ignore_eos":true})"
                                          : R"({"max_tokens":1,"min_tokens":1})");
    return;
  }
  const BodyMap sampling = BodyMap::Read(member->value);
  BodyPatch inside;
  StripSamplingParams(sampling, &inside);
  inside.Insert("max_tokens", "1");
  if (AnyOf(sampling, "min_tokens", IsAboveOne)) inside.Insert("min_tokens", "1");
  if (ends_by_length) EndByLength(PdRoute::kInferenceGenerate, &inside);
  patch->InsertPatched("sampling_params", sampling, inside);
}

void Shorten(PdRoute route, const BodyMap& body, bool ends_by_length, BodyPatch* patch) {
  if (route == PdRoute::kInferenceGenerate) {
    LimitToOneTokenInside(body, ends_by_length, patch);
  } else if (route == PdRoute::kResponses) {
    patch->Insert("max_output_tokens", "1");
    patch->Insert("store", "false");
  } else {
    LimitToOneToken(body, patch);
  }
  patch->Insert("stream", "false");
  patch->Remove("stream_options");
  if (ends_by_length && route != PdRoute::kInferenceGenerate) EndByLength(route, patch);
}

constexpr std::string_view kCancel = "/cancel";

// /v1/responses/{id}, or its /cancel: an id without further segments, spelled as engines make them.
bool IsStoredResponse(std::string_view path) {
  const std::string_view stored = StoredPathOf(path);
  const std::string_view below = path.substr(stored.size());
  const bool is_response = !stored.empty() && !IsConversation(stored) && HasPlainId(stored);
  return is_response && (below.empty() || below == kCancel);
}

// What a client can do about a request that two workers cannot share.
std::string_view RemedyFor(LocalReason reason) {
  switch (reason) {
    case LocalReason::kNone:
      return "";
    case LocalReason::kBatch:
      return "send a request for each prompt";
    case LocalReason::kSeveralSequences:
      return "send n requests with n and best_of 1";
    case LocalReason::kBeamSearch:
      return "leave use_beam_search out";
    case LocalReason::kWrongType:
      return "send each member with the type and in the range that the engine's API documents";
    case LocalReason::kStoredResponse:
      return "send the whole conversation as input, without previous_response_id or conversation";
    case LocalReason::kBackground:
      return "leave background out";
    case LocalReason::kServerTools:
      return "send only tools of the type function";
    case LocalReason::kPromptEmbeds:
      return "send a text or token ids";
    case LocalReason::kTruncation:
      return "leave truncation, truncate_prompt_tokens and pad_prompt_tokens out";
    case LocalReason::kDuplicate:
      return "send one sampling_params";
    case LocalReason::kMedia:
      return "send media in the request, as data: URLs without uuid";
    case LocalReason::kTemplate:
      return "leave chat_template out";
  }
  return "";
}

PdPlan RejectedByBoth(LocalReason reason, const KvConnector& connector) {
  PdPlan plan = Rejected(Concat(
      "The request cannot be shared by a prefill and a decode worker (", LocalReasonName(reason),
      "), and with --kv-connector ", connector.traits().name, " no worker serves a request alone; ",
      RemedyFor(reason), "."));
  plan.reason = reason;
  return plan;
}

// Engines that read their peers' addresses in a request's id take it from the body here, not from X-Request-Id.
void NamePairInBody(
    PdRoute route, const KvConnector& connector, const PairAttempt& attempt, BodyPatch* patch) {
  const bool reads = route == PdRoute::kResponses && connector.traits().id_form == PairIdForm::kAddresses;
  if (reads) patch->Insert("request_id", JsonQuoted(Concat("resp_", attempt.id)));
}

}  // namespace

PdRoute PdRouteOf(std::string_view method, std::string_view path, bool websocket, const PdPaths& paths) {
  struct Known {
    std::string_view path;
    PdRoute route;
  };
  constexpr std::array kKnown = {
      Known{"/v1/completions", PdRoute::kCompletions},
      Known{"/v1/chat/completions", PdRoute::kChat},
      Known{"/v1/chat/completions/batch", PdRoute::kBatchChat},
      Known{"/v1/responses", PdRoute::kResponses},
      Known{"/v1/messages", PdRoute::kMessages},
      Known{"/inference/v1/generate", PdRoute::kInferenceGenerate},
      Known{"/generate", PdRoute::kGenerate},
      Known{"/v1/embeddings", PdRoute::kOneEngine},
      Known{"/rerank", PdRoute::kOneEngine},
      Known{"/v1/rerank", PdRoute::kOneEngine},
      Known{"/v2/rerank", PdRoute::kOneEngine},
      Known{"/score", PdRoute::kOneEngine},
      Known{"/v1/score", PdRoute::kOneEngine},
      Known{"/classify", PdRoute::kOneEngine},
      Known{"/pooling", PdRoute::kOneEngine},
      Known{"/v2/embed", PdRoute::kOneEngine},
      Known{"/v1/audio/transcriptions", PdRoute::kOneEngine},
      Known{"/v1/audio/translations", PdRoute::kOneEngine},
      Known{"/v1/audio/speech", PdRoute::kOneEngine},
      Known{"/invocations", PdRoute::kOneEngine},
      Known{"/v1/responses/compact", PdRoute::kOneEngine},
      Known{"/v1/responses/input_tokens", PdRoute::kOther},
      Known{"/v1/messages/count_tokens", PdRoute::kOther},
      Known{"/tokenize", PdRoute::kOther},
      Known{"/detokenize", PdRoute::kOther},
  };
  const bool posts = method == "POST" && !websocket;
  if (posts) {
    const auto known = std::ranges::find(kKnown, path, &Known::path);
    const bool is_known = known != kKnown.end();
    if (is_known && known->route < PdRoute::kExtra) return known->route;
    if (std::ranges::find(paths.two_stages, path) != paths.two_stages.end()) return PdRoute::kExtra;
    if (is_known) return known->route;
  }
  if (std::ranges::find(paths.passed, path) != paths.passed.end()) return PdRoute::kOther;
  // No engine generates for one of these. A WebSocket begins as GET, and what it carries is not read.
  const bool only_reads = method == "GET" || method == "HEAD" || method == "OPTIONS";
  if (only_reads && !websocket) return PdRoute::kOther;
  const bool ends_response = (posts && path.ends_with(kCancel)) || method == "DELETE";
  return ends_response && IsStoredResponse(path) ? PdRoute::kOther : PdRoute::kUnknown;
}

std::string_view LocalReasonName(LocalReason reason) {
  switch (reason) {
    case LocalReason::kNone:
      return "none";
    case LocalReason::kBatch:
      return "batch";
    case LocalReason::kSeveralSequences:
      return "several_sequences";
    case LocalReason::kBeamSearch:
      return "beam_search";
    case LocalReason::kWrongType:
      return "wrong_type";
    case LocalReason::kStoredResponse:
      return "stored_response";
    case LocalReason::kBackground:
      return "background";
    case LocalReason::kServerTools:
      return "server_tools";
    case LocalReason::kPromptEmbeds:
      return "prompt_embeds";
    case LocalReason::kTruncation:
      return "truncation";
    case LocalReason::kDuplicate:
      return "duplicate";
    case LocalReason::kMedia:
      return "media";
    case LocalReason::kTemplate:
      return "template";
  }
  return "";
}

namespace {

PdPlan StrippedPlan(const BodyMap& body, StripScope scope, bool may_be_anything) {
  PdPlan plan;
  if (!body.ok()) {
    if (may_be_anything && !MayBeObject(body.body())) return plan;
    return Rejected(ProblemText(body));
  }
  plan.stripped = StripTransferMembers(body, scope, &plan.plain);
  if (plan.stripped.unreadable)
    return Rejected(Concat(
        "sampling_params or another member with further arguments has more than ", BodyMap::kMaxMembers,
        " members or ", kMaxListedPrompts, " elements; send fewer."));
  return plan;
}

}  // namespace

PdPlan MakeSinglePlan(const BodyMap& body) {
  return StrippedPlan(body, StripScope::kTransfers, /*may_be_anything=*/true);
}

PdPlan MakePdPlan(PdRoute route, const BodyMap& body, const KvConnector& connector) {
  const bool is_single = route == PdRoute::kOther || route == PdRoute::kOneEngine;
  const KvConnector::Traits& traits = connector.traits();
  // vLLM's /generate reads no X-Request-Id.
  const bool has_no_pair = route == PdRoute::kOneEngine || route == PdRoute::kGenerate;
  if (has_no_pair && traits.prefill_needs_pair)
    return Rejected(Concat(
        "This path cannot be served with --kv-connector ", traits.name,
        ": an engine would compute the request without an id that names its peer, and end; send it to "
        "workers "
        "without stages."));
  PdPlan plan = StrippedPlan(body, StripScope::kStaged, is_single);
  if (is_single || plan.kind == PdKind::kRejected) return plan;
  if (traits.meets_in_rooms) {
    PlanRooms(route, body, &plan);
    return plan;
  }
  plan.reason = FindLocalReason(route, body, traits.ends_by_length);
  plan.kind = plan.reason == LocalReason::kNone ? PdKind::kTwoStages : PdKind::kLocal;
  if (plan.kind == PdKind::kLocal && !traits.decode_can_prefill)
    return RejectedByBoth(plan.reason, connector);
  return plan;
}

BodyPatch PrefillPatch(
    PdRoute route, const BodyMap& body, const KvConnector& connector, const PairAttempt& attempt) {
  BodyPatch patch;
  StripTransferMembers(body, StripScope::kStaged, &patch);
  const KvConnector::Traits& traits = connector.traits();
  if (traits.shortens_prefill) Shorten(route, body, traits.ends_by_length, &patch);
  if (connector.Missing(attempt).empty()) connector.EditPrefill(attempt, &patch);
  NamePairInBody(route, connector, attempt, &patch);
  return patch;
}

BodyPatch DecodePatch(
    PdRoute route, const PdPlan& plan, const KvConnector& connector, const PairAttempt& attempt,
    std::optional<std::string_view> parameters) {
  BodyPatch patch = plan.plain;
  if (connector.Missing(attempt).empty()) connector.EditDecode(attempt, parameters, &patch);
  NamePairInBody(route, connector, attempt, &patch);
  return patch;
}

BodyPatch DecodePatchWithout(
    PdRoute route, const PdPlan& plan, const KvConnector& connector, const PairAttempt& attempt) {
  BodyPatch patch = plan.plain;
  NamePairInBody(route, connector, attempt, &patch);
  return patch;
}

}  // namespace vllm_router
