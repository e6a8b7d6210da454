#include "routing/cache_control.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "base/text.h"
#include "routing/billing_header.h"
#include "routing/json_scanner.h"

namespace vllm_router {
namespace {

using Member = BodyMap::Member;
using Result = CacheControlResult;
using Type = BodyMap::Type;

constexpr std::string_view kName = "cache_control";
constexpr std::string_view kBeforeText = R"([{"type":"text","text":)";
constexpr std::string_view kMarker = R"(,"cache_control":{"type":"ephemeral"})";
constexpr std::string_view kMarkerBehindText = R"(,"cache_control":{"type":"ephemeral"}}])";

// Of an escape at the beginning, `\n`, `\u000b` or `\u0020`; 0: it means something else.
size_t BlankEscapeLength(std::string_view text) {
  constexpr std::string_view kBlanks = "bfnrt";
  if (text.size() >= 2 && kBlanks.find(text[1]) != std::string_view::npos) return 2;
  if (text.size() < 6 || !text.starts_with("\\u00")) return 0;
  const int high = HexDigit(text[4]);
  const int low = HexDigit(text[5]);
  if (high < 0 || low < 0) return 0;
  return high * 16 + low <= ' ' ? 6 : 0;
}

// It means more than blanks and control characters of ASCII.
bool HasText(const Member& member) {
  if (member.type != Type::kString) return false;
  std::string_view text = member.value.substr(1, member.value.size() - 2);
  while (!text.empty()) {
    const auto byte = static_cast<unsigned char>(text.front());
    const size_t blank = byte == '\\' ? BlankEscapeLength(text) : byte <= ' ' ? 1 : 0;
    if (blank == 0) return true;
    text.remove_prefix(blank);
  }
  return false;
}

// As many as there may be, or one with a time of its own, behind which none of the default time may stand. In a text the
// quotes would have backslashes.
bool HasMostMarkers(std::string_view body) {
  constexpr std::string_view kSpelled = R"("cache_control")";
  const bool has_times = body.find(R"("ttl")") != std::string_view::npos;
  if (has_times && body.find(kSpelled) != std::string_view::npos) return true;
  size_t count = 0;
  for (size_t at = body.find(kSpelled); at != std::string_view::npos; at = body.find(kSpelled, at + 1)) {
    if (++count == CacheControlEdit::kMaxMarkers) return true;
  }
  return false;
}

bool HasMarker(const BodyMap& object) {
  return std::ranges::any_of(object.members(), [](const Member& member) { return member.name == kName; });
}

// A billing header changes with each request, so nothing behind it could be found in the cache.
bool IsTextBlock(const BodyMap& block) {
  const Member* const type = block.Find("type");
  const Member* const text = block.Find("text");
  return type != nullptr && type->Holds("text") && text != nullptr && HasText(*text) &&
         !IsBillingHeader(text->Text().value_or(""));
}

}  // namespace

std::string_view CacheControlResultName(CacheControlResult result) {
  switch (result) {
    case Result::kAdded:
      return "added";
    case Result::kPresent:
      return "present";
    case Result::kLimit:
      return "limit";
    case Result::kNoText:
      return "no_text";
    case Result::kOddNames:
      return "odd_names";
    case Result::kUnreadable:
      return "unreadable";
  }
  return "";
}

CacheControlEdit CacheControlEdit::Of(const BodyMap& body) {
  if (!body.ok()) return CacheControlEdit(Result::kUnreadable);
  if (body.HasOddNames()) return CacheControlEdit(Result::kOddNames);
  if (HasMarker(body)) return CacheControlEdit(Result::kPresent);
  const Member* const system = body.Find("system");
  if (system != nullptr && system->type == Type::kString) return OfText(body, *system);
  if (system != nullptr && system->type == Type::kArray) return OfBlocks(body, *system);
  return CacheControlEdit(Result::kNoText);
}

CacheControlEdit CacheControlEdit::OfText(const BodyMap& body, const Member& system) {
  if (!HasText(system)) return CacheControlEdit(Result::kNoText);
  if (HasMostMarkers(body.body())) return CacheControlEdit(Result::kLimit);
  CacheControlEdit edit(Result::kAdded);
  edit.Add(system.value.data(), kBeforeText);
  edit.Add(system.value.data() + system.value.size(), kMarkerBehindText);
  return edit;
}

CacheControlEdit CacheControlEdit::OfBlocks(const BodyMap& body, const Member& system) {
  const std::optional<std::vector<std::string_view>> blocks = JsonElements(system.value, kMaxBlocks + 1);
  if (!blocks || blocks->size() > kMaxBlocks) return CacheControlEdit(Result::kUnreadable);
  const char* brace = nullptr;  // the closing one of the last block with text
  for (const std::string_view text : *blocks) {
    if (text.front() != '{') continue;
    const BodyMap block = BodyMap::Read(text);
    if (!block.ok()) return CacheControlEdit(Result::kUnreadable);
    if (block.HasOddNames()) return CacheControlEdit(Result::kOddNames);
    if (HasMarker(block)) return CacheControlEdit(Result::kPresent);
    if (IsTextBlock(block)) brace = &text.back();
  }
  if (brace == nullptr) return CacheControlEdit(Result::kNoText);
  if (HasMostMarkers(body.body())) return CacheControlEdit(Result::kLimit);
  CacheControlEdit edit(Result::kAdded);
  edit.Add(brace, kMarker);
  return edit;
}

}  // namespace vllm_router
