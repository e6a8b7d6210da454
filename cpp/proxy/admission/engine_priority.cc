#include "proxy/admission/engine_priority.h"

#include <charconv>
#include <optional>

#include "base/text.h"
#include "routing/body_map.h"

namespace vllm_router {
namespace {

constexpr std::string_view kName = "priority";

std::optional<int64_t> WholeNumber(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// A value that puts the request no further in front than its class.
bool IsWithin(std::string_view client, int32_t value, bool larger_first) {
  const std::optional<int64_t> own = WholeNumber(client);
  return own && (larger_first ? *own <= value : *own >= value);
}

}  // namespace

std::vector<BodyInsertion> PriorityEdits(
    const BodyMap& body, const EnginePriority& engine, PriorityClass priority_class, std::string* text) {
  const int32_t value = engine.ValueOf(priority_class);
  const BodyMap::Member* const own = body.Find(kName);
  std::vector<BodyInsertion> edits;
  if (own != nullptr) {
    using Client = EnginePriority::Client;
    const bool is_kept =
        engine.client == Client::kKeep || (engine.client == Client::kClamp && body.Count(kName) == 1 &&
                                           IsWithin(own->value, value, engine.larger_first));
    if (is_kept) return edits;
    *text = Concat(value);
    for (const BodyMap::Member& member : body.members()) {
      if (member.Is(kName))
        edits.push_back({.at = member.value.data(), .text = *text, .removed = member.value.size()});
    }
    return edits;
  }
  // In front of a member that no other edit removes.
  const BodyMap::Member* next = body.Find("messages");
  if (next == nullptr) next = body.Find("prompt");
  if (value == 0 || next == nullptr) return edits;
  *text = Concat(kName, "\":", value, ",\"");
  edits.push_back({.at = next->name.data(), .text = *text});
  return edits;
}

}  // namespace vllm_router
