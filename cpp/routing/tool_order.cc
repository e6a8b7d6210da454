#include "routing/tool_order.h"

#include <algorithm>

#include "base/text.h"
#include "hashing/hash.h"

namespace vllm_router {
namespace {

constexpr uint64_t kOrderBits = 3;

// Some 80 tokens, more than a template prints around the system prompt.
constexpr std::string_view kTools =
    R"([{"type":"function","function":{"name":"read_file","description":"Returns the lines of a text file, )"
    R"(each with its number in front, from the first line that is wanted up to the last one. Files that are )"
    R"(longer than two thousand lines are cut off there; call it again with the number of the next line. )"
    R"(Pictures and archives are refused with the reason.","parameters":{"type":"object","properties":{"path":)"
    R"({"type":"string","description":"where the file is"}},"required":["path"]}}}])";

// More tokens than two prompts share by chance, or a template prints around them.
constexpr size_t kMargin = 32;

}  // namespace

ToolOrder ToolOrders::Of(std::string_view model) const {
  if (fixed_ != ToolOrder::kUnknown) return fixed_;
  const uint64_t hash = Xxh3(model);
  const uint64_t known = places_[hash % kPlaces].load(std::memory_order_relaxed);
  return (known | kOrderBits) == (hash | kOrderBits) ? static_cast<ToolOrder>(known & kOrderBits)
                                                     : ToolOrder::kUnknown;
}

void ToolOrders::Learn(std::string_view model, ToolOrder order) {
  if (fixed_ != ToolOrder::kUnknown) return;
  const uint64_t hash = Xxh3(model);
  places_[hash % kPlaces].store(
      (hash & ~kOrderBits) | static_cast<uint64_t>(order), std::memory_order_relaxed);
}

std::string WriteToolProbe(std::string_view model, bool second) {
  const std::string_view system =
      second ? "Reply in French, briefly." : "You are an assistant that speaks English";
  const std::string named = model.empty() ? std::string() : Concat(R"("model":)", JsonQuoted(model), ",");
  return Concat(
      "{", named, R"("messages":[{"role":"system","content":")", system,
      R"("},{"role":"user","content":"Hello."}],"tools":)", kTools, R"(,"add_generation_prompt":true})");
}

ToolOrder CompareToolProbes(std::span<const uint32_t> first, std::span<const uint32_t> second) {
  const auto start = std::ranges::mismatch(first, second).in1 - first.begin();
  const auto end = std::mismatch(first.rbegin(), first.rend(), second.rbegin(), second.rend()).first;
  const auto tail = end - first.rbegin();
  return start > tail + static_cast<ptrdiff_t>(kMargin) ? ToolOrder::kFirst : ToolOrder::kAfter;
}

}  // namespace vllm_router
