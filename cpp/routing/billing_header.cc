#include "routing/billing_header.h"

#include <cstddef>
#include <optional>
#include <string>

#include "routing/json_scanner.h"

namespace vllm_router {
namespace {

constexpr size_t kMaxBlocks = 1024;

// nullopt: it may be read as one by some parsers only.
std::optional<bool> HoldsBillingHeader(std::string_view text) {
  if (text.empty() || text.front() != '{') return false;
  const BodyMap block = BodyMap::Read(text);
  if (!block.ok() || block.HasOddNames()) return std::nullopt;
  const BodyMap::Member* const type = block.Find("type");
  const BodyMap::Member* const content = block.Find("text");
  if (type == nullptr || !type->Holds("text") || content == nullptr) return false;
  const std::optional<std::string> meaning = content->Text();
  return meaning && IsBillingHeader(*meaning);
}

BodyInsertion Removal(const char* begin, const char* end) {
  return {.at = begin, .text = {}, .removed = static_cast<size_t>(end - begin)};
}

}  // namespace

std::vector<BodyInsertion> BillingHeaderEdits(const BodyMap& body) {
  std::vector<BodyInsertion> edits;
  if (!body.ok() || body.HasOddNames()) return edits;
  const BodyMap::Member* const system = body.Find("system");
  if (system == nullptr || system->type != BodyMap::Type::kArray) return edits;
  const std::optional<std::vector<std::string_view>> blocks = JsonElements(system->value, kMaxBlocks + 1);
  if (!blocks || blocks->size() > kMaxBlocks) return edits;
  const std::string_view* kept = nullptr;  // the last block that stays
  for (size_t i = 0; i < blocks->size(); ++i) {
    const std::string_view& block = (*blocks)[i];
    const std::optional<bool> goes = HoldsBillingHeader(block);
    if (!goes) return {};
    if (!*goes) {
      kept = &block;
      continue;
    }
    // With one comma: that before it or, in front of all that stays, that behind it.
    const char* const end = block.data() + block.size();
    const bool has_next = i + 1 < blocks->size();
    BodyInsertion removal = Removal(block.data(), has_next ? (*blocks)[i + 1].data() : end);
    if (kept != nullptr) {
      const std::string_view& before = (*blocks)[i - 1];
      removal = Removal(before.data() + before.size(), end);
    }
    if (!edits.empty() && edits.back().at + edits.back().removed == removal.at) {
      edits.back().removed += removal.removed;
    } else {
      edits.push_back(removal);
    }
  }
  return edits;
}

}  // namespace vllm_router
