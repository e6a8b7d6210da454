#include "response_cache/cacheability.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "routing/json_scanner.h"

namespace vllm_router {
namespace {

using Member = BodyMap::Member;
using Type = BodyMap::Type;

constexpr size_t kMaxMembers = 256;
constexpr size_t kMaxChoices = 1024;  // of a response
constexpr size_t kMaxParts = 4096;    // of one message's content, and messages of one request
constexpr std::string_view kMessages = "/v1/messages";
constexpr std::string_view kChat = "/v1/chat/completions";

constexpr std::array<std::string_view, 10> kRoutes = {
    "/v1/chat/completions",   "/v1/completions", kMessages,    "/v1/embeddings", "/generate",
    "/inference/v1/generate", "/rerank",         "/v1/rerank", "/score",         "/v1/score"};

constexpr std::array<std::string_view, 8> kIgnorable = {
    "user",       "metadata", "safety_identifier", "prompt_cache_key", "priority",
    "request_id", "rid",      "session_id"};

constexpr std::array<std::string_view, 6> kFiveParameters = {"model",      "messages", "temperature",
                                                             "max_tokens", "top_p",    "stream"};

// Its responses have a list of choices, each with a finish_reason.
bool HasChoices(std::string_view path) { return path == "/v1/chat/completions" || path == "/v1/completions"; }

bool Contains(std::span<const std::string_view> names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

// One of a comma-separated list's elements, without its parameters.
bool HasDirective(std::span<const HeaderField> fields, std::string_view name, std::string_view directive) {
  for (const HeaderField& field : fields) {
    if (!EqualsIgnoreCase(field.name, name)) continue;
    for (std::string_view rest = field.value; !rest.empty();) {
      const size_t comma = std::min(rest.find(','), rest.size());
      std::string_view element = rest.substr(0, comma);
      element = TrimBlanks(element.substr(0, std::min(element.find_first_of(";="), element.size())));
      if (EqualsIgnoreCase(element, directive)) return true;
      rest.remove_prefix(std::min(comma + 1, rest.size()));
    }
  }
  return false;
}

size_t CountOf(std::span<const HeaderField> fields, std::string_view name) {
  return static_cast<size_t>(std::ranges::count_if(
      fields, [name](const HeaderField& field) { return EqualsIgnoreCase(field.name, name); }));
}

std::string_view MediaType(std::string_view content_type) {
  return TrimBlanks(content_type.substr(0, std::min(content_type.find(';'), content_type.size())));
}

// It is named once, as this one.
bool HasType(std::span<const HeaderField> fields, std::string_view type) {
  const HeaderField* given = nullptr;
  for (const HeaderField& field : fields) {
    if (!EqualsIgnoreCase(field.name, "content-type")) continue;
    if (given != nullptr) return false;
    given = &field;
  }
  return given != nullptr && EqualsIgnoreCase(MediaType(given->value), type);
}

bool StartsWith(std::string_view name, std::string_view prefix) {
  return EqualsIgnoreCase(name.substr(0, prefix.size()), prefix);
}

// The router's own headers and SGLang's, which are read into the request, and those that name features of an API.
bool ChangesTheResponse(const HeaderField& field) {
  return StartsWith(field.name, "x-override-") || EqualsIgnoreCase(field.name, "x-vllm-router-override") ||
         EqualsIgnoreCase(field.name, "openai-beta") || EqualsIgnoreCase(field.name, "anthropic-beta");
}

std::string CredentialOf(std::span<const HeaderField> fields) {
  constexpr std::string_view kSeparator("\0", 1);
  const std::string_view bearer = TrimBlanks(FindHeader(fields, "authorization").value_or(""));
  const std::string_view key = TrimBlanks(FindHeader(fields, "x-api-key").value_or(""));
  const std::string_view azure = TrimBlanks(FindHeader(fields, "api-key").value_or(""));
  if (!azure.empty()) return Concat(bearer, kSeparator, key, kSeparator, azure);
  if (bearer.empty() || key.empty()) return std::string(bearer.empty() ? key : bearer);
  return Concat(bearer, kSeparator, key);  // a worker gets both
}

// ---- requests

// 0e9 is 0 as well; what underflows is not. REQUIRES: a number of JSON.
bool IsZero(std::string_view number) {
  const std::string_view mantissa = number.substr(0, number.find_first_of("eE"));
  return std::ranges::none_of(mantissa, [](char c) { return c >= '1' && c <= '9'; });
}

CacheBypass JudgeTemperature(const BodyMap& holder, const CacheRules& rules) {
  const Member* const temperature = holder.Find("temperature");
  if (temperature == nullptr || temperature->type == Type::kNull) {
    return rules.absent_temperature ? CacheBypass::kNone : CacheBypass::kTemperatureAbsent;
  }
  const bool zero = temperature->type == Type::kNumber && IsZero(temperature->value);
  return zero ? CacheBypass::kNone : CacheBypass::kTemperature;
}

bool IsOn(const Member& member) { return member.type != Type::kNull && member.type != Type::kFalse; }

// What a request reads or leaves at a worker, or lets a worker run.
bool HasState(const BodyMap& body) {
  constexpr std::array<std::string_view, 14> kState = {
      "session_params",       "kv_transfer_params", "ec_transfer_params", "bootstrap_host",
      "bootstrap_port",       "bootstrap_room",     "kv_hints",           "logits_processors",
      "previous_response_id", "conversation",       "background",         "store",
      "vllm_xargs",           "extra_args"};
  return std::ranges::any_of(
      body.members(), [&](const Member& member) { return Contains(kState, member.name) && IsOn(member); });
}

// `text` as a value: a string, an object or a list.
bool NamesRemoteMedia(std::string_view text, int depth);

// A part with a URL or an id. What cannot be told is taken as remote.
bool IsRemotePart(std::string_view part, int depth) {
  constexpr std::array<std::string_view, 15> kReferences = {
      "url",        "file_url",   "image_url", "video_url", "audio_url", "file_id", "file_data", "uuid",
      "image_file", "input_file", "input",     "source",    "image",     "video",   "audio"};
  const BodyMap map = BodyMap::Read(part);
  if (!map.ok() || map.HasOddNames()) return true;
  for (const Member& member : map.members()) {
    if (member.name == "text" || member.name == "role" || member.name == "type") continue;
    const bool is_reference = Contains(kReferences, member.name);
    if (member.type == Type::kString) {
      if (is_reference && !member.value.starts_with(R"("data:)")) return true;
    } else if (member.type == Type::kArray || member.type == Type::kObject) {
      if (NamesRemoteMedia(member.value, depth - 1)) return true;
    }
  }
  return false;
}

bool NamesRemoteMedia(std::string_view text, int depth) {
  if (text.empty() || (text.front() != '[' && text.front() != '{')) return false;
  if (depth == 0) return true;
  if (text.front() == '{') return IsRemotePart(text, depth);
  const std::optional<std::vector<std::string_view>> elements = JsonElements(text, kMaxParts);
  if (!elements || elements->size() == kMaxParts) return true;
  return std::ranges::any_of(
      *elements, [depth](std::string_view element) { return NamesRemoteMedia(element, depth - 1); });
}

// `text`: from behind a quote. The first byte tells nearly all names apart.
bool BeginsAsMedia(std::string_view text) {
  switch (text.empty() ? '\0' : text.front()) {
    case 'a':
      return text.starts_with("audio\"");
    case 'f':
      return text.starts_with("file");
    case 'i':
      return text.starts_with("image\"");
    case 's':
      return text.starts_with("source\"");
    case 'u':
      return text.starts_with("url\"") || text.starts_with("uuid\"");
    case 'v':
      return text.starts_with("video\"");
    default:
      return false;
  }
}

// Bodies without any of these names, which is nearly all, are not walked. An escape could hide one.
bool MayNameMedia(std::string_view text) {
  for (size_t quote = text.find('"'); quote != std::string_view::npos; quote = text.find('"', quote + 1)) {
    const std::string_view before = text.substr(0, quote);
    if (before.ends_with("_url") || before.ends_with("_file")) return true;
    if (BeginsAsMedia(text.substr(quote + 1))) return true;
  }
  return text.find("\\u00") != std::string_view::npos;
}

CacheBypass JudgeMedia(const BodyMap& body) {
  constexpr std::array<std::string_view, 4> kMedia = {"image", "video", "audio", "image_url"};
  constexpr int kDepth = 8;
  for (const Member& member : body.members()) {
    if (!IsOn(member)) continue;
    const bool is_media = member.name.ends_with("_data") ||
                          (Contains(kMedia, member.name) && !member.value.starts_with(R"("data:)"));
    if (is_media) return CacheBypass::kRemoteMedia;
    const bool has_parts = member.type == Type::kArray || member.type == Type::kObject;
    if (has_parts && MayNameMedia(member.value) && NamesRemoteMedia(member.value, kDepth))
      return CacheBypass::kRemoteMedia;
  }
  return CacheBypass::kNone;
}

// Which member holds the temperature; null: the route has none.
std::optional<std::string_view> SamplingHolder(std::string_view path) {
  if (path == "/generate" || path == "/inference/v1/generate") return "sampling_params";
  if (HasChoices(path) || path == kMessages) return "";
  return std::nullopt;
}

CacheBypass JudgeSampling(std::string_view path, const BodyMap& body, const CacheRules& rules) {
  const std::optional<std::string_view> holder = SamplingHolder(path);
  if (!holder) return CacheBypass::kNone;
  if (holder->empty()) return JudgeTemperature(body, rules);
  const Member* const params = body.Find(*holder);
  if (params == nullptr || params->type == Type::kNull) {
    return rules.absent_temperature ? CacheBypass::kNone : CacheBypass::kTemperatureAbsent;
  }
  const BodyMap inner = BodyMap::Read(params->value);
  if (!inner.ok()) return CacheBypass::kTemperature;  // a list of them, or what a worker rejects
  if (inner.HasOddNames()) return CacheBypass::kOddNames;
  return HasState(inner) ? CacheBypass::kState : JudgeTemperature(inner, rules);
}

std::optional<double> NumberOf(const BodyMap& body, std::string_view name) {
  const Member* const member = body.Find(name);
  double value = 0;
  if (member == nullptr || member->type != Type::kNumber) return std::nullopt;
  std::from_chars(member->value.data(), member->value.data() + member->value.size(), value);
  return value;
}

// The seed's key holds five members, each of one type. Anything else is not covered by it.
bool IsCovered(std::string_view path, const BodyMap& body) {
  if (path != kChat) return false;
  for (const Member& member : body.members()) {
    if (!Contains(kFiveParameters, member.name)) return false;
    if (member.name == "model" && member.type != Type::kString) return false;
    if (member.name == "messages" && member.type != Type::kArray) return false;
    if (member.name == "top_p" && member.type != Type::kNumber) return false;
    if (member.name == "max_tokens" && !ParseDecimal(member.value)) return false;
    // An engine may take 1 or "true" for true.
    const bool is_flag =
        member.type == Type::kTrue || member.type == Type::kFalse || member.type == Type::kNull;
    if (member.name == "stream" && !is_flag) return false;
  }
  const Member* const model = body.Find("model");
  const Member* const top_p = body.Find("top_p");
  if (top_p != nullptr && !IsJsonNumber(top_p->value)) return false;
  return model != nullptr && body.Find("messages") != nullptr && model->Text().has_value();
}

// Of a header that any client may set, the client's own tenant is told apart, too.
bool AddsClient(const CacheRequestHead& head, const CacheRules& rules) {
  return head.client == CacheRequestHead::Client::kOfPeer ||
         (head.client == CacheRequestHead::Client::kOfKey && rules.tenant == CacheTenant::kHeader);
}

std::optional<Digest256> TenantByRules(std::span<const HeaderField> fields, const CacheRules& rules) {
  const std::string credential = CredentialOf(fields);
  const auto of_header = [&] { return TrimBlanks(FindHeader(fields, rules.tenant_header).value_or("")); };
  switch (rules.tenant) {
    case CacheTenant::kShared:
      return std::nullopt;
    case CacheTenant::kHeader:
      return TenantOfHeader(of_header());
    case CacheTenant::kHeaderAndCredential:
      return TenantOfBoth(of_header(), credential);
    case CacheTenant::kCredential:
      break;
  }
  if (credential.empty()) return std::nullopt;
  return TenantOfCredential(credential);
}

std::optional<Digest256> TenantOf(const CacheRequestHead& head, const CacheRules& rules) {
  const std::optional<Digest256> tenant = TenantByRules(head.fields, rules);
  if (rules.tenant == CacheTenant::kShared || !AddsClient(head, rules)) return tenant;
  const std::string_view bytes =
      tenant ? std::string_view(reinterpret_cast<const char*>(tenant->data()), tenant->size())
             : std::string_view();
  return TenantOfBoth(head.client_tenant, bytes);
}

// ---- responses

// The reasons that say that the generation is complete: finish_reason of a choice, or stop_reason of a message.
constexpr std::array<std::string_view, 10> kCompleteReasons = {
    "stop",     "length",     "tool_calls", "function_call", "content_filter",
    "end_turn", "max_tokens", "tool_use",   "stop_sequence", "refusal"};

// SGLang's /generate writes {"type": "stop"}.
bool HasEnded(const Member* reason) {
  if (reason == nullptr) return false;
  if (reason->type == Type::kObject) {
    const BodyMap inner = BodyMap::Read(reason->value);
    const Member* const type = inner.Find("type");
    return type != nullptr && type->type == Type::kString && HasEnded(type);
  }
  return std::ranges::any_of(
      kCompleteReasons, [reason](std::string_view complete) { return reason->Holds(complete); });
}

bool HasError(const BodyMap& object) {
  const Member* const error = object.Find("error");
  if (error != nullptr && error->type != Type::kNull) return true;
  const Member* const type = object.Find("type");
  return type != nullptr && type->Holds("error");
}

// Reports (index, choice) of each element of `choices`. False: not a list of objects.
template <typename Take>
bool ForEachChoice(const BodyMap& object, Take take) {
  const Member* const choices = object.Find("choices");
  if (choices == nullptr) return true;
  const std::optional<std::vector<std::string_view>> elements = JsonElements(choices->value, kMaxChoices);
  if (!elements || elements->size() == kMaxChoices) return false;
  for (const std::string_view element : *elements) {
    const BodyMap choice = BodyMap::Read(element);
    if (!choice.ok()) return false;
    take(choice);
  }
  return true;
}

NotStored JudgeWhole(std::string_view path, std::string_view body) {
  if (path == "/generate" && body.starts_with('[')) return NotStored::kErrorInside;  // of a batch
  const BodyMap object = BodyMap::Read(body);
  if (!object.ok() || HasError(object)) return NotStored::kErrorInside;
  bool ended = true;
  size_t choices = 0;
  const bool readable = ForEachChoice(object, [&](const BodyMap& choice) {
    ++choices;
    ended = ended && HasEnded(choice.Find("finish_reason"));
  });
  if (path == kMessages) ended = HasEnded(object.Find("stop_reason"));
  if (path == "/generate") {
    const Member* const meta = object.Find("meta_info");
    const BodyMap inner = BodyMap::Read(meta != nullptr ? meta->value : "");
    ended = HasEnded(inner.Find("finish_reason"));
  }
  if (HasChoices(path) && choices == 0) return NotStored::kErrorInside;
  return readable && ended ? NotStored::kNone : NotStored::kErrorInside;
}

// The data of the next event, taken off the front of `rest`. Engines write one line of data per event; an event of several
// is nothing that they write, and `odd` says so. `is_error`: it is named so.
std::optional<std::string_view> NextEvent(std::string_view* rest, bool* odd, bool* is_error) {
  std::optional<std::string_view> data;
  while (!rest->empty()) {
    const size_t end = rest->find('\n');
    if (end == std::string_view::npos) {
      *odd = true;  // the last line does not end
      return std::nullopt;
    }
    std::string_view line = rest->substr(0, end);
    rest->remove_prefix(end + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) {
      if (data) return data;
      continue;
    }
    if (line.starts_with("event:") && TrimBlanks(line.substr(6)) == "error") *is_error = true;
    if (!line.starts_with("data:")) continue;
    if (data) *odd = true;
    data = TrimBlanks(line.substr(5));
  }
  if (data) *odd = true;  // no empty line ends the last event
  return std::nullopt;
}

}  // namespace

std::string_view CacheBypassName(CacheBypass why) {
  constexpr std::array<std::string_view, kCacheBypasses> kNames = {
      "none",      "route",        "content",          "header",      "tenant",
      "body_size", "not_json",     "odd_names",        "temperature", "temperature_absent",
      "state",     "remote_media", "uncovered_member", "stream",      "store_down",
      "memory"};
  return kNames[static_cast<size_t>(why)];
}

std::string_view NotStoredName(NotStored why) {
  constexpr std::array<std::string_view, kNotStoredReasons> kNames = {
      "none", "status", "incomplete", "size", "type", "error_inside", "generation", "memory"};
  return kNames[static_cast<size_t>(why)];
}

std::span<const std::string_view> IgnorableMembers() { return kIgnorable; }
std::span<const std::string_view> CacheableRoutes() { return kRoutes; }

CacheBypass JudgeHead(const CacheRequestHead& head, const CacheRules& rules) {
  if (head.method != "POST" || std::ranges::find(rules.routes, head.path) == rules.routes.end()) {
    return CacheBypass::kRoute;
  }
  const std::span<const HeaderField> fields = head.fields;
  if (!HasType(fields, "application/json")) return CacheBypass::kContent;
  for (const std::string_view name : {"content-encoding", "range", "upgrade"}) {
    if (CountOf(fields, name) > 0) return CacheBypass::kContent;
  }
  if (HasDirective(fields, "cache-control", "no-store") || std::ranges::any_of(fields, ChangesTheResponse)) {
    return CacheBypass::kHeader;
  }
  // Of several, nobody knows which one the worker takes.
  for (const std::string_view name : {"authorization", "x-api-key", "api-key"}) {
    if (CountOf(fields, name) > 1) return CacheBypass::kTenant;
  }
  if (head.client == CacheRequestHead::Client::kAmbiguous && rules.tenant != CacheTenant::kShared) {
    return CacheBypass::kTenant;
  }
  const bool by_header =
      rules.tenant == CacheTenant::kHeader || rules.tenant == CacheTenant::kHeaderAndCredential;
  if (by_header && (CountOf(fields, rules.tenant_header) != 1 ||
                    TrimBlanks(*FindHeader(fields, rules.tenant_header)).empty())) {
    return CacheBypass::kTenant;
  }
  if (head.body_bytes && *head.body_bytes > rules.max_request_bytes) return CacheBypass::kBodySize;
  return CacheBypass::kNone;
}

CacheBypass JudgeBody(std::string_view path, const BodyMap& body, const CacheRules& rules) {
  if (body.body().size() > rules.max_request_bytes) return CacheBypass::kBodySize;
  if (!body.ok() || body.members().size() > kMaxMembers) return CacheBypass::kNotJson;
  if (body.HasOddNames()) return CacheBypass::kOddNames;
  if (const CacheBypass why = JudgeSampling(path, body, rules); why != CacheBypass::kNone) return why;
  if (HasState(body)) return CacheBypass::kState;
  if (const CacheBypass why = JudgeMedia(body); why != CacheBypass::kNone) return why;
  if (rules.key_scheme == CacheKeyScheme::kSeed004 && !IsCovered(path, body))
    return CacheBypass::kUncoveredMember;
  return CacheBypass::kNone;
}

bool WantsFresh(std::span<const HeaderField> fields) {
  return HasDirective(fields, "cache-control", "no-cache") || HasDirective(fields, "pragma", "no-cache");
}

bool WantsStream(const BodyMap& body) {
  const Member* const stream = body.Find("stream");
  return stream != nullptr && stream->type == Type::kTrue;
}

CacheKey CacheKeyOf(
    const CacheRequestHead& head, std::string_view query, const BodyMap& body, const CacheRules& rules,
    uint64_t generation, std::string_view model) {
  const std::optional<Digest256> tenant = TenantOf(head, rules);
  if (rules.key_scheme == CacheKeyScheme::kSeed004) {
    const std::optional<std::string> model_text = body.Find("model")->Text();
    const Member* const max_tokens = body.Find("max_tokens");
    FiveParameters parameters{
        .model = *model_text,
        .messages = body.Find("messages")->value,
        .temperature = NumberOf(body, "temperature"),
        .max_tokens = max_tokens != nullptr ? ParseDecimal(max_tokens->value) : std::nullopt,
        .top_p = NumberOf(body, "top_p")};
    if (tenant) parameters.tenant.emplace(reinterpret_cast<const char*>(tenant->data()), tenant->size());
    const CacheKey key = DigestFiveParameters(parameters);
    if (!WantsStream(body)) return key;
    return Sha256({{reinterpret_cast<const char*>(key.data()), key.size()}, "stream"});
  }
  std::vector<RequestMember> members;
  members.reserve(body.members().size() + 1);
  const std::string named = model.empty() || body.Find("model") != nullptr ? "" : JsonQuoted(model);
  if (!named.empty()) members.push_back({.name = "model", .value = named});
  for (const Member& member : body.members()) {
    if (std::ranges::find(rules.ignored_members, member.name) != rules.ignored_members.end()) continue;
    members.push_back({.name = member.name, .value = member.value});
  }
  return DigestRequest(
      {.path = head.path, .query = query, .tenant = tenant, .generation = generation}, std::move(members));
}

NotStored JudgeResponseHead(const CacheResponseHead& head, bool is_stream, uint64_t max_bytes) {
  if (head.status != 200) return NotStored::kStatus;
  if (!head.has_end) return NotStored::kIncomplete;
  if (head.body_bytes && *head.body_bytes > max_bytes) return NotStored::kSize;
  const std::span<const HeaderField> fields = head.fields;
  if (!HasType(fields, is_stream ? "text/event-stream" : "application/json")) return NotStored::kType;
  if (CountOf(fields, "content-encoding") > 0 || CountOf(fields, "set-cookie") > 0) return NotStored::kType;
  if (HasDirective(fields, "vary", "*")) return NotStored::kType;
  for (const std::string_view directive : {"no-store", "private"}) {
    if (HasDirective(fields, "cache-control", directive)) return NotStored::kType;
  }
  return NotStored::kNone;
}

NotStored JudgeResponseBody(std::string_view path, bool is_stream, std::string_view body) {
  if (!is_stream) return JudgeWhole(path, body);
  StreamJudge judge(path, body);
  while (judge.Step(body.size())) continue;
  return judge.verdict();
}

StreamJudge::StreamJudge(std::string_view path, std::string_view body) : path_(path), rest_(body) {}

bool StreamJudge::Step(size_t bytes) {
  if (judged_) return false;
  const size_t until = rest_.size() - std::min(bytes, rest_.size());
  while (rest_.size() > until) {
    bool is_error = false;
    const std::optional<std::string_view> data = NextEvent(&rest_, &odd_, &is_error);
    if (!data && !is_error) break;
    judged_ = is_error || !TakeEvent(*data);
    if (judged_) verdict_ = NotStored::kErrorInside;
    if (judged_) return false;
  }
  // What is left behind the last event, if anything, has no data.
  if (!rest_.empty() && !odd_) return true;
  judged_ = true;
  verdict_ = AtEnd();
  return false;
}

// False: no response that is kept has such an event, or one at this place.
bool StreamJudge::TakeEvent(std::string_view data) {
  // Some engines have [DONE] behind Anthropic's own end.
  const bool is_message = path_ == kMessages;
  if (done_ && is_message && data == "[DONE]" && !std::exchange(closed_, true)) return true;
  if (done_) return false;  // more after the end
  if (data == "[DONE]") {
    closed_ = true;
    done_ = true;
    return true;
  }
  const BodyMap event = BodyMap::Read(data);
  if (!event.ok() || HasError(event)) return false;
  const bool readable = ForEachChoice(event, [&](const BodyMap& choice) {
    const Member* const index = choice.Find("index");
    const Member* const reason = choice.Find("finish_reason");
    bool& has_ended = ended_[index != nullptr ? index->value : "0"];
    if (reason == nullptr || reason->type == Type::kNull) return;
    failed_ = failed_ || !HasEnded(reason);
    has_ended = true;
  });
  if (!readable || ended_.size() > kMaxChoices) return false;
  if (path_ == "/generate") {
    const Member* const meta = event.Find("meta_info");
    const BodyMap inner = BodyMap::Read(meta != nullptr ? meta->value : "");
    const Member* const reason = inner.Find("finish_reason");
    bool& has_ended = ended_["0"];
    has_ended = reason != nullptr && reason->type != Type::kNull;
    failed_ = failed_ || (has_ended && !HasEnded(reason));
  }
  if (!is_message) return true;
  bool& has_ended = ended_[""];
  const Member* const type = event.Find("type");
  if (type != nullptr && type->Holds("message_delta")) {
    const Member* const delta = event.Find("delta");
    const BodyMap inner = BodyMap::Read(delta != nullptr ? delta->value : "");
    has_ended = HasEnded(inner.Find("stop_reason"));  // the last one counts
  }
  done_ = type != nullptr && type->Holds("message_stop");
  return true;
}

NotStored StreamJudge::AtEnd() const {
  if (!done_ || odd_) return NotStored::kIncomplete;
  const bool all_ended = std::ranges::all_of(ended_, [](const auto& choice) { return choice.second; }) &&
                         (!HasChoices(path_) || !ended_.empty());
  return all_ended && !failed_ ? NotStored::kNone : NotStored::kErrorInside;
}

}  // namespace vllm_router
