#include "bindings/option_values.h"

#include <array>
#include <cmath>
#include <string_view>

namespace vllm_router {

namespace py = pybind11;
using namespace py::literals;

OptionValue OptionValueOf(OptionKind kind, py::handle value) {
  if (value.is_none()) return std::monostate();
  switch (kind) {
    case OptionKind::kSwitch:
      return value.cast<bool>();
    case OptionKind::kCount:
      if (py::isinstance<py::str>(value)) return value.cast<std::string>();  // a word in place of a number
      return value.cast<uint64_t>();
    case OptionKind::kReal:
      return value.cast<double>();
    case OptionKind::kTexts:
      return value.cast<std::vector<std::string>>();
    case OptionKind::kText:
    case OptionKind::kWord:
      return value.cast<std::string>();
  }
  return std::monostate();
}

py::dict OptionRow(
    OptionKind kind, const OptionRange& range, double largest, const std::vector<OptionWord>& words,
    const OptionValue& usual) {
  constexpr std::array<const char*, 6> kKinds = {"switch", "count", "real", "text", "texts", "word"};
  const bool has_range = !range.what.empty();
  py::dict row(
      "kind"_a = kKinds[static_cast<size_t>(kind)], "default"_a = usual,
      "min"_a = has_range ? py::object(py::float_(range.min)) : py::none(),
      "max"_a = has_range && !std::isinf(range.max) ? py::object(py::float_(range.max)) : py::none(),
      "largest"_a = largest, "zero"_a = !range.zero.empty());
  py::list built;
  py::list not_built;
  for (const OptionWord& word : words) {
    (word.not_built.empty() ? built : not_built).append(word.word);
    if (word.not_built.empty() && usual == OptionValue(word.number)) row["default"] = word.word;
  }
  row["words"] = built;
  row["not_built"] = not_built;
  return row;
}

}  // namespace vllm_router
