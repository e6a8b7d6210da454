#include "routing/transfer_parameters.h"

#include "base/text.h"
#include "routing/json_scanner.h"

namespace vllm_router {
namespace {

using Type = BodyMap::Type;

const BodyMap::Member* OnlyOfType(const BodyMap& object, std::string_view name, Type type) {
  const BodyMap::Member* const found = OnlyMember(object, name);
  return found != nullptr && found->type == type ? found : nullptr;
}

}  // namespace

const BodyMap::Member* OnlyMember(const BodyMap& object, std::string_view name) {
  const BodyMap::Member* const found = object.Find(name);
  return found != nullptr && object.Count(name) == 1 ? found : nullptr;
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
  return found != nullptr && found->value.find_first_of("0123456789") != std::string_view::npos &&
         found->value.find_first_not_of("0123456789[], \t\r\n") == std::string_view::npos;
}

std::optional<std::string> TextIn(const BodyMap& object, std::string_view name, size_t limit) {
  if (!HasText(object, name)) return std::nullopt;
  const std::string_view quoted = object.Find(name)->value;
  const std::optional<std::string> text = UnescapedJson(quoted.substr(1, quoted.size() - 2));
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
