#include "simulation/conversation_store.h"

#include <simdjson.h>

#include <algorithm>
#include <array>
#include <span>

#include "base/text.h"
#include "simulation/responses_session.h"

namespace vllm_router {

namespace dom = simdjson::dom;

namespace {

constexpr std::string_view kCollection = "/v1/conversations";

Status Unknown(std::string_view what, std::string_view id) {
  return absl::NotFoundError(Concat(what, " with id ", Quoted(id), " not found."));
}
Status OtherMethod() { return absl::UnimplementedError("Method Not Allowed"); }

// The member's JSON; empty: it is missing or null, or the text is no object.
std::string MemberOf(std::string_view json, std::string_view name) {
  dom::parser parser;
  dom::element member;
  const auto error = parser.parse(json.data(), json.size()).at_key(name).get(member);
  return error != simdjson::SUCCESS || member.is_null() ? std::string()
                                                        : std::string(simdjson::minify(member));
}

// A string, or an object's `id`.
std::string IdIn(dom::element element) {
  std::string_view id;
  if (element.get(id) != simdjson::SUCCESS && element.at_key("id").get(id) != simdjson::SUCCESS) return "";
  return std::string(id);
}

std::string Described(std::string_view id, int64_t created, std::string_view metadata) {
  return Concat(
      R"({"id":)", JsonQuoted(id), R"(,"object":"conversation","created_at":)", created, R"(,"metadata":)",
      metadata.empty() ? "{}" : metadata, "}");
}

using Item = std::pair<std::string, std::string>;

std::string Listed(std::span<const Item> items) {
  std::string data;
  for (const Item& item : items) data += Concat(data.empty() ? "" : ",", item.second);
  const auto id = [&](const Item& item) { return JsonQuoted(item.first); };
  return Concat(
      R"({"object":"list","data":[)", data, R"(],"first_id":)", items.empty() ? "null" : id(items.front()),
      R"(,"last_id":)", items.empty() ? "null" : id(items.back()), R"(,"has_more":false})");
}

}  // namespace

StatusOr<size_t> ConversationStore::Append(
    std::string_view list, const std::string& id, Conversation* conversation) {
  dom::parser parser;
  dom::array items;
  if (parser.parse(list.data(), list.size()).get(items) != simdjson::SUCCESS)
    return absl::InvalidArgumentError("`items` must be a list.");
  const size_t first = conversation->items.size();
  for (const dom::element item : items) {
    if (!item.is_object()) {
      conversation->items.resize(first);
      return absl::InvalidArgumentError("Each of the `items` must be an object.");
    }
    std::string json(simdjson::minify(item));
    std::string name = IdIn(item);
    if (name.empty()) {
      name = Concat("msg_", id, "_", ++conversation->made);
      json = Concat(R"({"id":)", JsonQuoted(name), json.size() > 2 ? "," : "", json.substr(1));
    }
    conversation->items.emplace_back(std::move(name), std::move(json));
  }
  return first;
}

StatusOr<std::string> ConversationStore::Serve(const Request& request) {
  MutexLock lock(mutex_);
  if (request.path == kCollection) {
    if (request.method != "POST") return OtherMethod();
    const std::string id = Concat("conv_", request.id);
    Conversation made{.created = request.now, .metadata = MemberOf(request.body, "metadata")};
    const std::string items = MemberOf(request.body, "items");
    const StatusOr<size_t> added = Append(items.empty() ? "[]" : items, id, &made);
    if (!added.ok()) return added.status();
    const Conversation& kept = conversations_[id] = std::move(made);
    return Described(id, kept.created, kept.metadata);
  }
  const std::string_view rest = request.path.substr(kCollection.size() + 1);
  const size_t end = std::min(rest.find('/'), rest.size());
  return ServeOne(request, std::string(rest.substr(0, end)), rest.substr(end));
}

StatusOr<std::string> ConversationStore::ServeOne(
    const Request& request, const std::string& id, std::string_view below) {
  const auto found = conversations_.find(id);
  if (found == conversations_.end()) return Unknown("Conversation", id);
  Conversation& conversation = found->second;
  const bool gets = request.method == "GET", posts = request.method == "POST";
  if (below.empty()) {
    if (request.method == "DELETE") {
      conversations_.erase(found);
      return Concat(R"({"id":)", JsonQuoted(id), R"(,"object":"conversation.deleted","deleted":true})");
    }
    if (!gets && !posts) return OtherMethod();
    if (posts) conversation.metadata = MemberOf(request.body, "metadata");
    return Described(id, conversation.created, conversation.metadata);
  }
  constexpr std::string_view kItems = "/items";
  Items& items = conversation.items;
  if (below == kItems) {
    if (gets) return Listed(items);
    if (!posts) return OtherMethod();
    const StatusOr<size_t> first = Append(MemberOf(request.body, "items"), id, &conversation);
    if (!first.ok()) return first.status();
    return Listed(std::span<const Item>(items).subspan(*first));
  }
  const std::string_view name = below.substr(std::min(kItems.size() + 1, below.size()));
  const auto item = std::ranges::find(items, name, &Item::first);
  if (!below.starts_with(kItems) || item == items.end()) return Unknown("Item", name);
  if (gets) return item->second;
  if (request.method != "DELETE") return OtherMethod();
  items.erase(item);
  return Described(id, conversation.created, conversation.metadata);
}

StatusOr<std::optional<ConversationStore::Turn>> ConversationStore::Begin(std::string_view body) {
  if (body.find("\"conversation\"") == std::string_view::npos) return std::optional<Turn>();
  dom::parser parser;
  dom::element named;
  const auto error = parser.parse(body.data(), body.size()).at_key("conversation").get(named);
  if (error != simdjson::SUCCESS || named.is_null()) return std::optional<Turn>();
  Turn turn{.conversation = IdIn(named)};
  std::string before;
  {
    MutexLock lock(mutex_);
    const auto found = conversations_.find(turn.conversation);
    if (found == conversations_.end()) return Unknown("Conversation", turn.conversation);
    for (const Item& item : found->second.items) before += Concat(before.empty() ? "" : ",", item.second);
  }
  constexpr std::array<std::string_view, 1> kLeftOut = {"conversation"};
  StatusOr<std::string> whole = WithItemsBefore(body, before, kLeftOut, &turn.input);
  if (!whole.ok()) return whole.status();
  turn.body = *std::move(whole);
  return std::optional<Turn>(std::move(turn));
}

void ConversationStore::End(const Turn& turn) {
  MutexLock lock(mutex_);
  const auto found = conversations_.find(turn.conversation);
  if (found == conversations_.end()) return;
  const bool both = !turn.input.empty() && !turn.output.empty();
  const std::string list = Concat("[", turn.input, both ? "," : "", turn.output, "]");
  (void)Append(list, turn.conversation, &found->second);
}

}  // namespace vllm_router
