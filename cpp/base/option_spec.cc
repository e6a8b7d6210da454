#include "base/option_spec.h"

#include <charconv>

#include "base/text.h"

namespace vllm_router {
namespace {

// 1.25, and 100000 rather than 1e+05.
std::string Plain(double value) {
  char digits[400];
  return {digits, std::to_chars(digits, digits + sizeof(digits), value, std::chars_format::fixed).ptr};
}

double NumberIn(const OptionValue& value) {
  const auto* const count = std::get_if<uint64_t>(&value);
  return count != nullptr ? static_cast<double>(*count) : std::get<double>(value);
}

std::string Shown(const OptionValue& value, const OptionRange& range, uint32_t scale) {
  if (const auto* count = std::get_if<uint64_t>(&value)) return std::to_string(*count);
  const double number = std::get<double>(value);
  if (range.in_parts) return Concat(std::llround(number * scale), " thousandths");
  return scale == 1 ? std::to_string(number) : Plain(number);
}

}  // namespace

std::string Listed(std::span<const std::string_view> names) {
  std::string list;
  for (const std::string_view name : names) {
    if (!list.empty()) list += ", ";
    list += name;
  }
  return list;
}

Status WordIsUnknown(std::string_view name, std::string_view word, std::span<const std::string_view> words) {
  const std::string_view nearest = NearestName(word, words);
  return absl::InvalidArgumentError(Concat(
      name, " is ", Quoted(word), "; it must be one of ", Listed(words),
      nearest.empty() ? std::string() : Concat(" (did you mean ", nearest, "?)")));
}

StatusOr<uint64_t> NumberOf(std::string_view word, std::string_view name, std::span<const OptionWord> words) {
  std::vector<std::string_view> built;
  for (const OptionWord& known : words) {
    if (known.word == word && known.not_built.empty()) return known.number;
    if (known.word == word) {
      return absl::UnimplementedError(Concat(name, " is ", Quoted(word), ", ", known.not_built));
    }
    if (known.not_built.empty()) built.push_back(known.word);
  }
  return WordIsUnknown(name, word, built);
}

bool IsAbove(double largest, const OptionValue& value) {
  if (const auto* count = std::get_if<uint64_t>(&value)) return static_cast<double>(*count) > largest;
  const auto* const real = std::get_if<double>(&value);
  return real != nullptr && *real > largest;
}

Status CheckRange(
    std::string_view name, const OptionRange& range, uint32_t scale, const OptionValue& value,
    const OptionValue& usual) {
  if (range.what.empty()) return absl::OkStatus();
  const double number = NumberIn(value);
  if (number >= range.min && number <= range.max) return absl::OkStatus();
  if (number == 0 && !range.zero.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(Concat(
      name, " is ", Shown(value, range, scale), "; it is ", range.what, " and must be ",
      std::isinf(range.max) ? Concat("at least ", Plain(range.min))
                            : Concat("between ", Plain(range.min), " and ", Plain(range.max)),
      range.zero.empty() ? std::string() : Concat(", or 0 to ", range.zero), " (default ",
      Plain(NumberIn(usual)), ")"));
}

}  // namespace vllm_router
