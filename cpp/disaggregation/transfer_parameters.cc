#include "disaggregation/transfer_parameters.h"

#include <array>

#include "base/text.h"
#include "routing/json_scanner.h"

namespace vllm_router {
namespace {

using Type = BodyMap::Type;

const BodyMap::Member* OnlyOfType(const BodyMap& object, std::string_view name, Type type) {
  const BodyMap::Member* const found = OnlyMember(object, name);
  return found != nullptr && found->type == type ? found : nullptr;
}

enum : uint8_t { kDigit = 1, kBetween = 2, kForeign = 4 };

constexpr std::array<uint8_t, 256> MakeKinds() {
  std::array<uint8_t, 256> kinds{};
  kinds.fill(kForeign);
  for (const unsigned char c : std::string_view("0123456789")) kinds[c] = kDigit;
  for (const unsigned char c : std::string_view("[], \t\r\n")) kinds[c] = kBetween;
  return kinds;
}

// A long prompt has thousands of blocks, so each byte is looked up once, without a branch.
bool HoldsOnlyNumbers(std::string_view list) {
  constexpr std::array<uint8_t, 256> kKinds = MakeKinds();
  uint8_t found = 0;
  for (const unsigned char c : list) found |= kKinds[c];
  return (found & kDigit) != 0 && (found & kForeign) == 0;
}

}  // namespace

const BodyMap::Member* OnlyMember(const BodyMap& object, std::string_view name) {
  const BodyMap::Member* only = nullptr;
  for (const BodyMap::Member& member : object.members()) {
    if (!member.Is(name)) continue;
    if (only != nullptr) return nullptr;
    only = &member;
  }
  return only;
}

bool HasText(const BodyMap& object, std::string_view name) {
  const BodyMap::Member* const found = OnlyOfType(object, name, Type::kString);
  return found != nullptr && found->value != R"("")";
}

bool HasPort(const BodyMap& object, std::string_view name) {
  return CountIn(object, name, UINT16_MAX).has_value();
}

bool HasBlocks(const BodyMap& object, std::string_view name) {
  const BodyMap::Member* const found = OnlyOfType(object, name, Type::kArray);
  return found != nullptr && HoldsOnlyNumbers(found->value);
}

std::optional<std::string> TextIn(const BodyMap& object, std::string_view name, size_t limit) {
  if (!HasText(object, name)) return std::nullopt;
  const std::optional<std::string> text = object.Find(name)->Text();
  if (!text || text->size() > limit) return std::nullopt;
  return *text;
}

std::optional<uint32_t> CountIn(const BodyMap& object, std::string_view name, uint32_t most) {
  const BodyMap::Member* const found = OnlyOfType(object, name, Type::kNumber);
  const std::optional<uint64_t> number = found != nullptr ? ParseDecimal(found->value) : std::nullopt;
  if (!number || *number == 0 || *number > most || found->value.front() == '0') return std::nullopt;
  return static_cast<uint32_t>(*number);
}

}  // namespace vllm_router
