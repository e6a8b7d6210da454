// HeaderField: one name and value of an HTTP header, as views into bytes that it does not own.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "base/text.h"

namespace vllm_router {

struct HeaderField {
  std::string_view name;
  std::string_view value;
};

// Value of the first field with this name (any case), or nullopt.
inline std::optional<std::string_view> FindHeader(
    std::span<const HeaderField> fields, std::string_view name) {
  for (const HeaderField& field : fields) {
    if (EqualsIgnoreCase(field.name, name)) return field.value;
  }
  return std::nullopt;
}

}  // namespace vllm_router
