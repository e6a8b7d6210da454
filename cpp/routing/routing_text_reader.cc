#include "routing/routing_text_reader.h"

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <utility>

#include "routing/billing_header.h"

namespace vllm_router {
namespace {

namespace ondemand = json::ondemand;
using json::ForEachElement;
using json::ForEachMember;
using json::IsNull;
using json::ReadRaw;
using json::ReadString;
using json::ReadToken;
using json::TypeOf;
using ondemand::json_type;

constexpr char kText = '\x1f';
constexpr char kTagged = '\x1d';
constexpr std::string_view kToolsItem = "\x1etools\x1f";

constexpr std::array<std::string_view, 5> kContext = {
    "cache_salt", "chat_template", "chat_template_kwargs", "documents", "reasoning_effort"};
constexpr size_t kDocuments = 3;

// What a chat template may print of a request that an engine renders, besides the text.
constexpr std::array<std::string_view, 4> kRenderOptions = {
    "output_config", "reasoning", "thinking", "tool_choice"};

void AppendTag(std::string_view tag, std::string* parts) {
  parts->push_back(kTagged);
  parts->append(tag).push_back(':');
}

// As received, without blanks outside strings.
void AppendMinified(std::string_view raw, std::string* out) {
  const size_t before = out->size();
  out->resize(before + raw.size());
  size_t size = 0;
  if (simdjson::minify(raw.data(), raw.size(), out->data() + before, size) != simdjson::SUCCESS) size = 0;
  out->resize(before + size);
}

// In one move, since tools of agents are as long as the rest.
void InsertPieces(size_t place, std::initializer_list<std::string_view> pieces, std::string* text) {
  size_t size = 0;
  for (const std::string_view piece : pieces) size += piece.size();
  text->insert(place, size, '\0');
  for (const std::string_view piece : pieces) place += piece.copy(text->data() + place, piece.size());
}

// A string unescaped, anything else as JSON. False when it is malformed.
bool AppendValue(ondemand::value& value, const char* end, std::string* out) {
  const std::optional<json_type> type = TypeOf(value);
  if (!type) return false;
  if (*type == json_type::string) {
    const std::optional<std::string_view> text = ReadString(value);
    if (!text) return false;
    out->append(*text);
  } else if (*type == json_type::object) {
    ondemand::object object;
    if (value.get_object().get(object) != simdjson::SUCCESS) return false;
    const std::optional<std::string_view> raw = ReadRaw(object, end);
    if (!raw) return false;
    AppendMinified(*raw, out);
  } else if (*type == json_type::array) {
    ondemand::array array;
    if (value.get_array().get(array) != simdjson::SUCCESS) return false;
    const std::optional<std::string_view> raw = ReadRaw(array, end);
    if (!raw) return false;
    AppendMinified(*raw, out);
  } else {
    out->append(ReadToken(value));
  }
  return true;
}

// False for anything but a string; null is accepted and leaves `out` alone.
template <typename Text>
bool TakeString(ondemand::value& value, Text* out) {
  if (IsNull(value)) return true;
  const std::optional<std::string_view> text = ReadString(value);
  if (text) *out = *text;
  return text.has_value();
}

// The contents of a data: URL; any other URL itself.
std::string UrlIdentity(std::string_view url) {
  if (!url.starts_with("data:")) return std::string(url);
  const size_t comma = url.find(',');
  return NameOfData(comma == std::string_view::npos ? url : url.substr(comma + 1));
}

std::string_view MediaTag(std::string_view type) {
  if (type == "image_url" || type == "input_image" || type == "image") return "image";
  if (type == "video_url" || type == "input_video" || type == "video") return "video";
  if (type == "audio_url" || type == "input_audio" || type == "audio") return "audio";
  if (type == "file" || type == "input_file" || type == "document") return "file";
  return {};
}

// Gemini's parts have no type.
std::string_view MimeTag(std::string_view mime_type) {
  for (const std::string_view tag : {"image", "video", "audio"}) {
    if (mime_type.starts_with(tag)) return tag;
  }
  return "file";
}

bool IsText(std::string_view type) {
  return type == "text" || type == "input_text" || type == "output_text" || type == "summary_text" ||
         type == "reasoning_text";
}

// Identifies an image, a video, an audio clip or a file: the first of these members that is not empty,
// in any order of arrival. For inline data it is a digest, so that nothing large is kept.
struct MediaIdentity {
  std::string uuid, data, url, file_id;
  std::string mime_type;  // does not identify it

  const std::string& First() const {
    for (const std::string* identity : {&uuid, &data, &url}) {
      if (!identity->empty()) return *identity;
    }
    return file_id;
  }
};

// False for anything but a string; an empty one is ignored.
bool TakeData(ondemand::value& value, std::string* identity) {
  const std::optional<std::string_view> data = ReadString(value);
  if (data && !data->empty()) *identity = data->starts_with("data:") ? UrlIdentity(*data) : NameOfData(*data);
  return data.has_value();
}

bool TakeUrl(ondemand::value& value, std::string* identity) {
  const std::optional<std::string_view> url = ReadString(value);
  if (url && !url->empty()) *identity = UrlIdentity(*url);
  return url.has_value();
}

// {"url": …} or {"data": …} or {"file_id": …}, in each API's form.
bool ReadSource(ondemand::value& value, const char* end, MediaIdentity* media) {
  ondemand::object source;
  if (value.get_object().get(source) != simdjson::SUCCESS) return false;
  return ForEachMember(source, end, [&](std::string_view member, ondemand::value& field) {
    if (IsNull(field)) return true;
    if (member == "uuid") return TakeString(field, &media->uuid);
    if (member == "data" || member == "file_data") return TakeData(field, &media->data);
    if (member == "url" || member == "fileUri" || member == "file_uri") return TakeUrl(field, &media->url);
    if (member == "mimeType" || member == "mime_type") return TakeString(field, &media->mime_type);
    if (member == "file_id") return TakeUrl(field, &media->file_id);
    return true;
  });
}

// Reads a part, or an item of `input`, again from its start, after all its members have been read.
bool AppendWhole(ondemand::object& object, std::string* parts) {
  std::string_view raw;
  if (object.reset().error() != simdjson::SUCCESS || object.raw_json().get(raw) != simdjson::SUCCESS)
    return false;
  AppendTag("other", parts);
  AppendMinified(raw, parts);
  return true;
}

}  // namespace

RoutingTextReader::RoutingTextReader(const PromptWanted& wanted, std::string_view body)
    : PromptWalker(body.data() + body.size()),
      responses_(wanted.path.ends_with("/responses")),
      pathless_(wanted.path.empty()),
      anthropic_(wanted.path.ends_with("/messages")),
      opening_(wanted.opening),
      scoped_(wanted.scoped),
      tool_orders_(wanted.tool_orders),
      limit_(wanted.limit),
      most_(std::min(wanted.limit, body.size())),
      out_(wanted.text) {
  items_.swap(out_->text);
  items_.clear();
  out_->kind = RoutingText::Kind::kMissing;
  out_->framed = false;
  out_->scope = 0;
  out_->token_call.reset();
  out_->render_options.clear();
  out_->lacks_tool_order = false;
  out_->text.clear();
  out_->token_ids.clear();
  out_->cache_salt.clear();
  out_->media = 0;
}

void RoutingTextReader::Read(std::string_view name, ondemand::value& value) {
  if (!broken_) broken_ = !ReadMember(name, value);
}

bool RoutingTextReader::ReadOther(std::string_view name, ondemand::value& value) {
  if (name == "tools") return ReadTools(value);
  for (size_t i = 0; i < kContext.size(); ++i) {
    if (name == kContext[i]) return ReadContext(i, name, value);
  }
  return !(responses_ || anthropic_) || ReadRenderOption(name, value);
}

// ---- prompts

void RoutingTextReader::StartOver(PromptForm form) {
  framed_ = form == PromptForm::kMessages || form == PromptForm::kContents;
  tokens_ = plain_input_ = asked_ = opening_ended_ = false;
  items_.clear();
  lead_size_ = 0;
  out_->token_ids.clear();
  if (framed_) items_.reserve(most_);
}

void RoutingTextReader::Message::Clear() {
  type = role = name = {};
  text.reset();
  for (std::string* member : {&reasoning, &content, &calls, &arguments, &result}) member->clear();
}

bool RoutingTextReader::ReadMessageContent(ondemand::value& value) {
  Message& read = message_;
  if (!read.text && read.content.empty() && TypeOf(value) == json_type::string) {
    read.text = ReadString(value);
    return read.text.has_value();
  }
  if (read.text) AddText(*std::exchange(read.text, std::nullopt), &read.content);
  return ReadContent(value, &read.content);
}

// One item; its parts in a canonical order, since the client's order of members has no meaning:
// reasoning, content, calls.
bool RoutingTextReader::ReadMessage(ondemand::value& value) {
  ondemand::object message;
  if (value.get_object().get(message) != simdjson::SUCCESS) return false;
  framed_ = true;
  message_.Clear();
  Message& read = message_;
  const std::string_view content = form_ == PromptForm::kContents ? "parts" : "content";
  const bool whole = ForEachMember(message, end_, [&](std::string_view member, ondemand::value& field) {
    if (member == "role") return TakeString(field, &read.role);
    if (member == content) return IsNull(field) || ReadMessageContent(field);
    if (member == "type") return TakeString(field, &read.type);
    if (member == "tool_calls") return IsNull(field) || ReadCalls(field, &read.calls);
    if (member == "function_call") return IsNull(field) || ReadCall(field, &read.calls);
    if (member == "reasoning_content" || member == "reasoning" || member == "summary") {
      return IsNull(field) || ReadTagged("reasoning", field, &read.reasoning);
    }
    if (member == "name") return TakeString(field, &read.name);
    if (member == "arguments") return AppendValue(field, end_, &read.arguments);
    if (member == "output") return IsNull(field) || ReadTagged("result", field, &read.result);
    return true;
  });
  if (!whole) return false;
  if (read.type == "function_call") {
    read.role = "assistant";
    AppendTag("call", &read.calls);
    read.calls.append(std::exchange(read.name, {})).append(":").append(read.arguments);
  } else if (read.type == "function_call_output") {
    read.role = "tool";
    read.text.reset();
    read.content = read.result;
  } else if (read.type == "reasoning") {
    read.role = "assistant";
  }
  if (opening_ && !IsLead(read.role)) {
    const bool is_user = read.role == "user" || (read.role.empty() && read.type.empty());
    if (!is_user) return opening_ended_ = true;
    asked_ = true;
  }
  const bool leads = lead_size_ == items_.size() && IsLead(read.role);
  items_.push_back(kRoutingItem);
  items_.append(read.role);
  if (!read.name.empty()) items_.append(":").append(read.name);
  if (!read.type.empty() && read.type != "message" && read.role.empty()) {
    if (!AppendWhole(message, &items_)) return false;
  } else {
    items_.append(read.reasoning);
    if (read.text) AddText(*read.text, &items_);
    items_.append(read.content).append(read.calls);
  }
  if (leads) lead_size_ = items_.size();
  return true;
}

void RoutingTextReader::SetText(std::string_view text, bool alone) {
  plain_input_ = alone && form_ == PromptForm::kInput;
  framed_ = asked_ = plain_input_ && responses_;
  if (framed_) items_.append({kRoutingItem}).append("user").append({kText});
  if (form_ == PromptForm::kPromptEmbeds && !text.empty()) {
    AppendTag("embeds", &items_);
    items_.append(NameOfData(text));
  } else {
    items_.append(text);
  }
}

void RoutingTextReader::AddId(uint32_t id) {
  tokens_ = true;
  out_->token_ids.push_back(id);
}

// ---- around a conversation

bool RoutingTextReader::ReadContext(size_t place, std::string_view name, ondemand::value& value) {
  std::string& context = context_[place];
  context.clear();
  context.append({kText}).append(name).append("=");
  const size_t prefix = context.size();
  if (!AppendValue(value, end_, &context)) return false;
  if (place == 0) out_->cache_salt = context.substr(prefix);
  return true;
}

bool RoutingTextReader::ReadRenderOption(std::string_view name, ondemand::value& value) {
  if (name == "previous_response_id" && !json::IsNull(value)) ContinuesStored();
  for (size_t i = 0; i < kRenderOptions.size(); ++i) {
    if (name != kRenderOptions[i]) continue;
    render_options_[i].assign(name).append("=");
    return AppendValue(value, end_, &render_options_[i]);
  }
  return true;
}

std::string* RoutingTextReader::System(std::string_view name) {
  if (name == "instructions") instructions_ = true;
  is_system_ = name == "system";
  system_.clear();
  system_.append({kRoutingItem}).append("system");
  return &system_;
}

bool RoutingTextReader::ReadTools(ondemand::value& value) {
  tools_.clear();
  if (TypeOf(value) != json_type::array) return true;
  if (!AppendValue(value, end_, &tools_)) return false;
  if (tools_ == "[]") tools_.clear();
  return true;
}

// ---- parts

void RoutingTextReader::StartPart(std::string* parts) {
  if (part_starts_ != nullptr) part_starts_->push_back(parts->size());
}

void RoutingTextReader::AddText(std::string_view text, std::string* parts) {
  parts->push_back(kText);
  parts->append(text);
}

bool RoutingTextReader::ReadPart(ondemand::value& value, std::string* parts) {
  ondemand::object part;
  if (value.get_object().get(part) != simdjson::SUCCESS) return false;
  std::string_view type, text, uuid, name;
  std::string input, result, calls;
  MediaIdentity media;
  const bool gemini = form_ == PromptForm::kContents;
  bool has_text = false;
  const bool whole = ForEachMember(part, end_, [&](std::string_view member, ondemand::value& field) {
    if (IsNull(field)) return true;
    if (member == "type") return TakeString(field, &type);
    if (member == "uuid") return TakeString(field, &uuid);
    if (member == "name") return TakeString(field, &name);
    if (member == "input") return AppendValue(field, end_, &input);
    if (member == "content") return ReadTagged("result", field, &result);
    if (member == "text" || member == "thinking") {
      has_text = true;
      return TakeString(field, &text);
    }
    if (gemini && (member == "functionCall" || member == "function_call")) return ReadCall(field, &calls);
    if (gemini && (member == "inlineData" || member == "inline_data" || member == "fileData")) {
      return ReadSource(field, end_, &media);
    }
    if (member == "image_url" || member == "video_url" || member == "audio_url" || member == "file_url" ||
        member == "source" || member == "input_audio" || member == "file" || member == "file_id" ||
        member == "file_data") {
      if (TypeOf(field) == json_type::object) return ReadSource(field, end_, &media);
      if (member == "file_data") return TakeData(field, &media.data);
      return TakeUrl(field, member == "file_id" ? &media.file_id : &media.url);
    }
    return true;
  });
  if (!whole) return false;

  if (IsText(type) || (type.empty() && has_text)) {
    if (parts == &system_ && is_system_ && IsBillingHeader(text)) return true;
    AddText(text, parts);
  } else if (const std::string_view tag = MediaTag(type); !tag.empty()) {
    ++out_->media;
    AppendTag(tag, parts);
    parts->append(uuid.empty() ? std::string_view(media.First()) : uuid);
  } else if (type == "tool_use" || type == "server_tool_use") {
    AppendTag("call", parts);
    parts->append(name).append(":").append(input);
  } else if (type == "tool_result") {
    if (result.empty()) AppendTag("result", &result);
    parts->append(result);
  } else if (type == "thinking" || type == "reasoning") {
    AppendTag("reasoning", parts);
    parts->append(text);
  } else if (!calls.empty()) {
    parts->append(calls);
  } else if (gemini && !media.First().empty()) {
    ++out_->media;
    AppendTag(MimeTag(media.mime_type), parts);
    parts->append(media.First());
  } else {
    return AppendWhole(part, parts);
  }
  return true;
}

// Content under a tag: its texts joined, then its other parts.
bool RoutingTextReader::ReadTagged(std::string_view tag, ondemand::value& value, std::string* parts) {
  std::string content;
  std::vector<size_t> starts;  // of its parts, whose texts may hold any bytes
  std::vector<size_t>* const outer = std::exchange(part_starts_, &starts);
  const bool read = ReadContent(value, &content);
  part_starts_ = outer;
  if (!read) return false;
  std::string texts, others;
  for (size_t i = 0; i < starts.size(); ++i) {
    const size_t end = i + 1 < starts.size() ? starts[i + 1] : content.size();
    const std::string_view part = std::string_view(content).substr(starts[i], end - starts[i]);
    if (part.front() == kText) {
      texts.append(part.substr(1));
    } else {
      others.append(part);
    }
  }
  AppendTag(tag, parts);
  parts->append(texts).append(others);
  return true;
}

bool RoutingTextReader::ReadCalls(ondemand::value& value, std::string* calls) {
  ondemand::array array;
  if (value.get_array().get(array) != simdjson::SUCCESS) return false;
  return ForEachElement(array, end_, [&](ondemand::value& call) { return ReadCall(call, calls); });
}

// {"function": {"name": …, "arguments": …}}, or that object itself; Gemini's name is args.
bool RoutingTextReader::ReadCall(ondemand::value& value, std::string* calls) {
  ondemand::object call;
  if (value.get_object().get(call) != simdjson::SUCCESS) return false;
  std::string name, arguments;
  bool inner = false;
  const std::string_view arguments_too = form_ == PromptForm::kContents ? "args" : "arguments";
  const bool whole = ForEachMember(call, end_, [&](std::string_view member, ondemand::value& field) {
    if (member == "function" || member == "custom") {
      inner = TypeOf(field) == json_type::object;
      return !inner || ReadCall(field, calls);
    }
    if (member == "name") return TakeString(field, &name);
    if (member == "arguments" || member == "input" || member == arguments_too) {
      return AppendValue(field, end_, &arguments);
    }
    return true;
  });
  if (!whole || inner) return whole;
  AppendTag("call", calls);
  calls->append(name).append(":").append(arguments);
  return true;
}

// Of a conversation with both tools and a system prompt.
bool RoutingTextReader::ToolsComeFirst(std::string_view model) {
  if (tool_orders_ == nullptr || (system_.empty() && lead_size_ == 0)) return false;
  const ToolOrder order = tool_orders_->Of(model);
  out_->lacks_tool_order = order == ToolOrder::kUnknown;
  return order == ToolOrder::kFirst;
}

void RoutingTextReader::Finish(std::string_view model) {
  if (form_ == PromptForm::kNone || broken_) return;
  if (pathless_ && plain_input_ && instructions_ && form_ == PromptForm::kInput) {
    items_.insert(0, std::string({kRoutingItem}).append("user").append({kText}));
    framed_ = asked_ = true;
  }
  // What precedes all users' words says of no conversation which it is.
  if (opening_ && !asked_) return;
  // A conversation has its salt in its own context.
  const std::string_view salt = framed_ ? std::string_view() : std::string_view(out_->cache_salt);
  if (tokens_) {
    out_->kind = RoutingText::Kind::kTokens;
    if (!scoped_ || (model.empty() && salt.empty())) return;
    const auto scope = TokenScope(model, salt);
    out_->scope = scope.size();
    out_->token_ids.insert(out_->token_ids.begin(), scope.begin(), scope.end());
    return;
  }
  out_->kind = RoutingText::Kind::kText;
  out_->framed = framed_;
  out_->token_ids.clear();
  std::string before = scoped_ ? TextScope(model, salt) : std::string();
  out_->scope = before.size();
  const size_t limit = limit_ + before.size();
  const bool any_items = !items_.empty();
  if (framed_) {
    bool any = false;
    for (const std::string& context : context_) {
      if (context.empty()) continue;
      if (!std::exchange(any, true)) before.append({kRoutingItem}).append("context");
      before.append(context);
    }
    if (tools_.empty()) {
      InsertPieces(0, {before, system_}, &items_);
    } else if (ToolsComeFirst(model)) {
      InsertPieces(0, {before, kToolsItem, tools_, system_}, &items_);
    } else {
      InsertPieces(lead_size_, {kToolsItem, tools_}, &items_);
      InsertPieces(0, {before, system_}, &items_);
    }
  } else {
    items_.insert(0, before);
  }
  if (any_items) out_->token_call = CallForIds(limit);
  for (const std::string& option : render_options_) out_->render_options.append(option);
  items_.resize(std::min(items_.size(), limit));
  out_->text.swap(items_);
}

std::optional<TokenCall> RoutingTextReader::CallForIds(size_t limit) const {
  if (items_.size() > limit) return std::nullopt;
  if (!framed_) return form_ < PromptForm::kInputIds ? std::optional(TokenCall::kPrompt) : std::nullopt;
  if (out_->media != 0 || !context_[kDocuments].empty()) return std::nullopt;
  if (form_ == PromptForm::kInput && responses_ && !continues_) return TokenCall::kResponses;
  if (form_ != PromptForm::kMessages) return std::nullopt;
  if (anthropic_) return TokenCall::kMessages;
  return system_.empty() ? std::optional(TokenCall::kChat) : std::nullopt;
}

}  // namespace vllm_router
